//! Matrix of plans and rules: the decision about every plan under every policy.

#![allow(clippy::unwrap_used, reason = "a test of a policy that cannot be parsed fails")]

use agenix_policy::{Decision, Policy};
use agenix_protocol::documents::{Plan, parse};

/// Policies, by their column.
const POLICIES: [&str; 11] = [
    // 0: nothing is listed.
    "version = 1",
    // 1: the whole library, and no file.
    "version = 1\nlibrary = true",
    // 2: the whole library reads /data.
    "version = 1\nlibrary = true\n[paths]\nread = ['/data']",
    // 3: the whole library reads /data and writes below it.
    "version = 1\nlibrary = true\n[paths]\nread = ['/data']\nwrite = ['/data/out']",
    // 4: inputs may be anything.
    "version = 1\nlibrary = true\ninputs = 'any'\n[paths]\nread = ['/data']",
    // 5: a narrow sort.
    "version = 1\n[paths]\nread = ['/data']\n[tools.sort]\noptions = ['-n', '-k KEYDEF']\nargs = 'read*'",
    // 6: sort asks.
    "version = 1\n[paths]\nread = ['/data']\n[tools.sort]\nlike = 'sort'\nask = true",
    // 7: interpreters ask, and nothing else is listed.
    "version = 1\n[tools.sh]\nclass = 'interpreter'\n[tools.awk]\nclass = 'interpreter'",
    // 8: a sandbox profile, and a variable.
    "version = 1\nlibrary = true\nprofile = 'reader'\n[paths]\nread = ['/data']\n[env]\nLC_ALL = 'NAME'",
    // 9: the whole library reads the working directory.
    "version = 1\nlibrary = true\n[paths]\nread = ['.']",
    // 10: the sandbox profile of the policy asks.
    "version = 1\nlibrary = true\nprofile = 'net'\n[ask]\nprofiles = ['net']",
];

/// Plans, and the decision under each policy: `.` allow, `?` ask, `x` refuse.
const PLANS: [(&str, &str); 18] = [
    (r#"{"command": "true"}"#, "x....xxx..?"),
    (r#"{"command": "sort"}"#, "x.....?x..?"),
    (r#"{"command": "sort", "args": ["-n", "/data/a"]}"#, "xx....?x.xx"),
    (r#"{"command": "sort", "args": ["-r", "/data/a"]}"#, "xx...x?x.xx"),
    (r#"{"command": "sort", "args": ["-n", "a"]}"#, "xxxxxxxxx.x"),
    (r#"{"command": "sort", "args": ["-n", "/etc/passwd"]}"#, "xxxxxxxxxxx"),
    (r#"{"command": "sort", "args": ["-n", "/data/../etc/passwd"]}"#, "xxxxxxxxxxx"),
    (r#"{"command": "sort", "args": ["-o", "/data/out/x"]}"#, "xxxxxxxxxxx"),
    (r#"{"command": "sort", "args": ["--compress-program=sh"]}"#, "xxxxxxxxxxx"),
    (r#"{"command": "sort", "stdout": "/data/out/x"}"#, "xxx.xxxxxxx"),
    (r#"{"command": "sort", "stdin_file": "/data/x"}"#, "xx....?x.xx"),
    (r#"{"command": "sort", "env": {"LC_ALL": "C"}}"#, "xxxxxxxx.xx"),
    (r#"{"command": "sort", "env": {"LD_PRELOAD": "/data/x.so"}}"#, "xxxxxxxxxxx"),
    (r#"{"command": "sort", "args": ["{{input.file}}"]}"#, "xxxxxxxxxxx"),
    (r#"{"command": "sort", "args": ["--", "{{input.file}}"]}"#, "xxxx.xxxxxx"),
    (r#"{"command": "sh", "args": ["-c", "id"]}"#, "xxxxxxx?xxx"),
    (r#"{"command": "/usr/bin/sort"}"#, "xxxxxxxxxxx"),
    (r#"{"command": "find", "args": ["/data", "-exec", "sh", ";"]}"#, "xxxxxxxxxxx"),
];

#[test]
fn every_plan_has_the_listed_decision_under_every_policy() {
    let policies = POLICIES.map(|text| Policy::parse(text).unwrap());
    for (task, expected) in PLANS {
        let task = task.replacen('{', r#"{"task_number": 1, "#, 1);
        let plan: Plan = parse(format!(r#"{{"tasks": [{task}]}}"#).as_bytes()).unwrap();
        let decided: String = policies
            .iter()
            .map(|policy| match policy.judge(&plan).decision {
                Decision::Allow => '.',
                Decision::Ask => '?',
                Decision::Refuse => 'x',
            })
            .collect();
        assert_eq!(decided, expected, "{task}");
    }
}
