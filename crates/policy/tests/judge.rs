//! Judgement of plans: places, reasons, nearest allowed forms, and the order of decisions.

#![allow(clippy::unwrap_used, reason = "a test of a policy that cannot be parsed fails")]

use agenix_policy::{Decision, Judgement, Policy, TaskJudgement};
use agenix_protocol::documents::{Plan, parse};

const POLICY: &str = r#"
version = 1
profile = "reader"
use = ["cat", "echo", "find", "grep", "sort", "split", "tee", "uniq"]

[paths]
read = ["/data"]
write = ["/data/out"]

[env]
LC_ALL = "NAME"

[tools.jq]
like = "jq"
path = "/opt/jq"
sha256 = "00000000000000000000000000000000000000000000000000000000000000ff"
env = { JQ_COLORS = "TEXT", N = "INT" }
secrets = ["TOKEN"]

[tools.awk]
class = "interpreter"

[tools.tac]
like = "tac"
ask = true
"#;

fn policy() -> Policy {
    Policy::parse(POLICY).unwrap()
}

fn judged(task: &str) -> TaskJudgement {
    plan(&format!(r#"{{"tasks": [{{"task_number": 1, {task}}}]}}"#)).tasks.remove(0)
}

fn plan(json: &str) -> Judgement {
    policy().judge(&parse::<Plan>(json.as_bytes()).unwrap())
}

/// Returns decision, place, reason and advice of the first finding.
fn first(task: &str) -> (Decision, String, String, String) {
    let judged = judged(task);
    let finding = judged.findings.into_iter().next().unwrap_or_else(|| panic!("{task} is allowed"));
    (finding.decision, finding.place, finding.reason, finding.instead.unwrap_or_default())
}

#[test]
fn plans_that_the_policy_lists_are_allowed() {
    for task in [
        r#""command": "sort", "args": ["-rn", "/data/a"]"#,
        r#""command": "sort", "args": ["-nrk2,2n", "-t,", "--", "/data//x/./a"]"#,
        r#""command": "sort", "args": ["a"], "cwd": "/data/x""#,
        r#""command": "cat", "stdin_file": "/data/a", "stdout": "/data/out/b", "stderr": "&1""#,
        r#""command": "cat", "args": ["-"], "stdin": "{{input.text}}""#,
        r#""command": "grep", "args": ["-e", "{{input.pattern}}", "/data/a"]"#,
        r#""command": "grep", "args": ["--regexp={{input.pattern}}", "/data/a"]"#,
        r#""command": "grep", "args": ["--", "{{input.pattern}}", "/data/gpu{{slot}}"]"#,
        r#""command": "echo", "args": ["--", "{{input.words[]}}"]"#,
        r#""command": "echo", "args": ["x{{input.word}}"], "env": {"LC_ALL": "C.UTF-8"}"#,
        r#""command": "find", "args": ["/data", "-name", "{{input.pattern}}"]"#,
        r#""command": "/opt/jq", "args": ["-r", ".a", "/data/a"], "env": {"JQ_COLORS": "1"}"#,
    ] {
        let judged = judged(task);
        assert_eq!(judged.decision, Decision::Allow, "{task}: {:?}", judged.findings);
    }
}

#[test]
fn plans_that_the_policy_does_not_list_are_refused_with_the_place() {
    for (task, place) in [
        (r#""command": "sh", "args": ["-c", "id"]"#, "command"),
        (r#""command": "/usr/bin/sort""#, "command"),
        (r#""command": "./sort""#, "command"),
        (r#""command": "env", "args": ["sort"]"#, "command"),
        (r#""command": "sort", "args": ["-n", "-o", "/data/out/a"]"#, "args[1]"),
        (r#""command": "sort", "args": ["/data/a", "/etc/passwd"]"#, "args[1]"),
        (r#""command": "sort", "args": ["/data/../etc/passwd"]"#, "args[0]"),
        (r#""command": "sort", "args": ["/database/a"]"#, "args[0]"),
        (r#""command": "sort", "args": ["a"]"#, "args[0]"),
        (r#""command": "sort", "args": ["../b"], "cwd": "/data/x""#, "args[0]"),
        (r#""command": "sort", "args": ["--out", "/data/out/a"]"#, "args[0]"),
        (r#""command": "sort", "args": ["--numeric-s"]"#, "args[0]"),
        (r#""command": "sort", "args": ["-k"]"#, "args[0]"),
        (r#""command": "sort", "args": ["--key"]"#, "args[0]"),
        (r#""command": "sort", "args": ["-r", "-k", "x"]"#, "args[2]"),
        (r#""command": "sort", "args": ["-n=1"]"#, "args[0]"),
        (r#""command": "sort", "args": ["--unique=1"]"#, "args[0]"),
        (r#""command": "sort", "args": ["{{input.file}}"]"#, "args[0]"),
        (r#""command": "sort", "args": ["--", "{{input.file}}"]"#, "args[1]"),
        (r#""command": "sort", "args": ["/data/{{input.file}}"]"#, "args[0]"),
        (r#""command": "sort", "args": ["-{{input.flags}}"]"#, "args[0]"),
        (r#""command": "sort", "args": ["--{{input.option}}"]"#, "args[0]"),
        (r#""command": "sort", "args": ["--key={{input.key}}"]"#, "args[0]"),
        (r#""command": "sort", "args": ["-r{{input.flags}}"]"#, "args[0]"),
        (r#""command": "grep", "args": ["-e{{input.pattern}}", "/data/a"]"#, "args[0]"),
        (r#""command": "grep", "args": ["{{input.pattern}}", "/data/a"]"#, "args[0]"),
        (r#""command": "grep", "args": ["--", "{{input.words[]}}"]"#, "args[1]"),
        (r#""command": "grep", "args": ["-e", "{{input.words[]}}"]"#, "args[1]"),
        (r#""command": "grep", "args": []"#, "args[0]"),
        (r#""command": "echo", "args": ["{{input.word}}"]"#, "args[0]"),
        (r#""command": "echo", "args": ["{{input.words[]}}"]"#, "args[0]"),
        (r#""command": "echo", "args": ["a\u0000b"]"#, "args[0]"),
        (r#""command": "find", "args": ["{{input.x}}"]"#, "args[0]"),
        (r#""command": "find", "args": ["/data", "-exec", "id", ";"]"#, "args[1]"),
        (r#""command": "find", "args": ["/data", "--", "-delete"]"#, "args[1]"),
        (r#""command": "jq", "args": [".a | {{input.x}}"]"#, "args[0]"),
        (r#""command": "split", "args": ["/data/a", "/data/out"]"#, "args[1]"),
        (r#""command": "tee", "args": ["/data/a"]"#, "args[0]"),
        (r#""command": "uniq", "args": ["/data/a", "/data/b"]"#, "args[1]"),
        (r#""command": "cat", "cwd": "/root""#, "cwd"),
        (r#""command": "cat", "cwd": "{{input.dir}}""#, "cwd"),
        (r#""command": "cat", "stdin_file": "/etc/shadow""#, "stdin_file"),
        (r#""command": "cat", "stdin_file": "{{input.file}}""#, "stdin_file"),
        (r#""command": "cat", "stdout": "/data/a""#, "stdout"),
        (r#""command": "cat", "stderr": "/data/a""#, "stderr"),
        (r#""command": "cat", "env": {"LD_PRELOAD": "/data/x.so"}"#, "env.LD_PRELOAD"),
        (r#""command": "cat", "env": {"PATH": "/data"}"#, "env.PATH"),
        (r#""command": "cat", "env": {"BASH_ENV": "/data/x"}"#, "env.BASH_ENV"),
        (r#""command": "cat", "env": {"LC_ALL": "../x"}"#, "env.LC_ALL"),
        (r#""command": "cat", "env": {"LC_ALL": "{{input.x}}"}"#, "env.LC_ALL"),
        (r#""command": "cat", "env": {"JQ_COLORS": "1"}"#, "env.JQ_COLORS"),
        (r#""command": "awk", "args": ["{print}"], "stdout": "/etc/x""#, "stdout"),
    ] {
        let judged = judged(task);
        assert_eq!(judged.decision, Decision::Refuse, "{task}");
        let refused = judged.findings.iter().find(|finding| finding.decision == Decision::Refuse).unwrap();
        assert_eq!(refused.place, place, "{task}: {refused:?}");
        assert!(refused.instead.is_some(), "{task}: {refused:?}");
    }
}

#[test]
fn findings_name_the_reason_and_the_nearest_allowed_form() {
    let (decision, place, reason, instead) = first(r#""command": "sort", "args": ["--uniq", "/data/a"]"#);
    assert_eq!((decision, &*place), (Decision::Refuse, "args[0]"));
    assert_eq!((&*reason, &*instead), ("'--uniq' abbreviates an option", "write --unique"));
    let (.., reason, instead) = first(r#""command": "cat", "args": ["-x"]"#);
    assert_eq!(reason, "the option '-x' is not listed");
    assert!(
        instead.starts_with("leave -x out: [-A, --show-all] ") && instead.ends_with("read*"),
        "{instead}"
    );
    let (.., reason, instead) = first(r#""command": "grep", "args": ["{{input.p}}"]"#);
    assert_eq!(reason, "the input in '{{input.p}}' may begin with '-' and be an option");
    assert_eq!(instead, "write -- before it");
    let (.., reason, instead) = first(r#""command": "tee", "args": ["/etc/x"]"#);
    assert_eq!(reason, "'/etc/x' is not below a directory that may be written");
    assert_eq!(instead, "name a file below /data/out");
    let (.., instead) = first(r#""command": "grep", "args": ["-e{{input.p}}"]"#);
    assert_eq!(instead, "write -e and the value as two arguments");
}

#[test]
fn interpreters_and_marked_tools_ask() {
    let (decision, _, reason, _) = first(r#""command": "awk", "args": ["BEGIN {system(\"id\")}"]"#);
    assert_eq!(
        (decision, &*reason),
        (Decision::Ask, "tools.awk is an interpreter: it runs code of the plan")
    );
    assert_eq!(first(r#""command": "tac", "args": ["/data/a"]"#).0, Decision::Ask);
    assert_eq!(judged(r#""command": "tac", "args": ["/etc/passwd"]"#).decision, Decision::Refuse);
}

#[test]
fn strictest_decision_of_a_plan_wins() {
    let tasks = |commands: &[&str]| {
        let task =
            |(n, command): (usize, &&str)| format!(r#"{{"task_number": {}, "command": "{command}"}}"#, n + 1);
        let tasks: Vec<String> = commands.iter().enumerate().map(task).collect();
        plan(&format!(r#"{{"tasks": [{}]}}"#, tasks.join(","))).decision
    };
    assert_eq!(tasks(&["cat", "sort"]), Decision::Allow);
    assert_eq!(tasks(&["cat", "tac", "sort"]), Decision::Ask);
    assert_eq!(tasks(&["sh", "tac", "sort"]), Decision::Refuse);
}

#[test]
fn plan_names_no_other_sandbox_profile_than_the_policy() {
    let with = |profile: &str| {
        plan(&format!(
            r#"{{"tasks": [{{"task_number": 1, "command": "cat"}}], "sandbox": {{"profile": "{profile}"}}}}"#
        ))
    };
    assert_eq!(
        (with("reader").decision, with("reader").profile.as_deref()),
        (Decision::Allow, Some("reader"))
    );
    let other = with("builder");
    assert_eq!((other.decision, &*other.findings[0].place), (Decision::Refuse, "sandbox.profile"));
}

#[test]
fn pins_are_in_the_judgement() {
    let jq = judged(r#""command": "jq", "args": ["."]"#);
    assert_eq!((jq.rule.as_deref(), jq.path.as_deref()), (Some("tools.jq"), Some("/opt/jq")));
    assert!(jq.sha256.unwrap().ends_with("ff"));
}

#[test]
fn any_inputs_may_name_files_but_never_code_or_options() {
    let any = Policy::parse(&POLICY.replace("version = 1", "version = 1\ninputs = \"any\"")).unwrap();
    let decision = |program: &str, args: &[&str]| {
        any.judge_argv(program, &args.iter().map(ToString::to_string).collect::<Vec<_>>()).decision
    };
    assert_eq!(decision("cat", &["--", "{{input.file}}"]), Decision::Allow);
    assert_eq!(decision("cat", &["/data/{{input.file}}"]), Decision::Allow);
    assert_eq!(decision("cat", &["/etc/{{input.file}}"]), Decision::Refuse);
    assert_eq!(decision("cat", &["{{input.file}}"]), Decision::Refuse);
    assert_eq!(decision("jq", &["--", "{{input.filter}}"]), Decision::Refuse);
}

#[test]
fn typed_inputs_may_name_files_below_the_roots() {
    let decision = |args: &str, inputs: &str| {
        let task = format!(r#"{{"task_number": 1, "command": "sort", "args": {args}}}"#);
        plan(&format!(r#"{{"tasks": [{task}], "inputs": {inputs}}}"#)).decision
    };
    for (args, inputs, expected) in [
        (r#"["{{input.f}}"]"#, r#"{"f": {"type": "path", "under": "/data/x"}}"#, Decision::Allow),
        (r#"["{{input.f[]}}"]"#, r#"{"f": {"type": "path", "under": "/data"}}"#, Decision::Allow),
        (r#"["/data/{{input.f}}.txt"]"#, r#"{"f": {"type": "name"}}"#, Decision::Allow),
        (r#"["-k{{input.f}}"]"#, r#"{"f": {"type": "enum", "values": ["1", "2,2n"]}}"#, Decision::Allow),
        (
            r#"["--parallel", "{{input.f}}"]"#,
            r#"{"f": {"type": "int", "min": 1, "max": 4}}"#,
            Decision::Allow,
        ),
        (r#"["{{input.f}}"]"#, r#"{"f": {"type": "path", "under": "/"}}"#, Decision::Refuse),
        (r#"["{{input.f}}/../../etc"]"#, r#"{"f": {"type": "path", "under": "/data"}}"#, Decision::Refuse),
        (r#"["/data/x{{input.f}}"]"#, r#"{"f": {"type": "path", "under": "/data"}}"#, Decision::Refuse),
        (r#"["{{input.f}}"]"#, r#"{"f": {"type": "name"}}"#, Decision::Refuse),
        (r#"["/etc/{{input.f}}"]"#, r#"{"f": {"type": "name"}}"#, Decision::Refuse),
        (r#"["/data/{{input.f}}"]"#, r#"{"f": {"type": "text"}}"#, Decision::Refuse),
        (r#"["--parallel", "{{input.f}}"]"#, r#"{"f": {"type": "int", "min": 1}}"#, Decision::Refuse),
        (r#"["-k", "{{input.f}}"]"#, r#"{"f": {"type": "enum", "values": ["1", "a"]}}"#, Decision::Refuse),
    ] {
        assert_eq!(decision(args, inputs), expected, "{args} {inputs}");
    }
}

#[test]
fn relative_paths_below_a_directory_of_an_input_are_refused() {
    let task = |args: &str| {
        let task =
            format!(r#"{{"task_number": 1, "command": "cat", "cwd": "{{{{input.d}}}}", "args": [{args}]}}"#);
        plan(&format!(r#"{{"tasks": [{task}], "inputs": {{"d": {{"type": "path", "under": "/data"}}}}}}"#))
            .decision
    };
    assert_eq!(
        (task(""), task(r#""/data/a""#), task(r#""a""#)),
        (Decision::Allow, Decision::Allow, Decision::Refuse)
    );
}

#[test]
fn invalid_policies_name_the_place() {
    for (text, expected) in [
        ("version = 2", "version: 2 is not supported: write 1"),
        ("", "missing field `version`"),
        ("version = 1\nbest_effort = true", "unknown field `best_effort`"),
        ("version = 1\n[tools.a]\noption = []", "unknown field `option`"),
        ("version = 1\n[paths]\nexec = []", "unknown field `exec`"),
        ("version = 1\nuse = [\"sh\"]", "use: the library has no 'sh'"),
        ("version = 1\n[tools.a]\noptions = [\"-k NUM\"]", "tools.a: option '-k NUM': 'NUM' is not a type"),
        ("version = 1\n[tools.a]\noptions = [\"-k\", \"-k\"]", "tools.a: the option '-k' is listed twice"),
        ("version = 1\n[tools.a]\nargs = \"read* TEXT*\"", "tools.a: args 'read* TEXT*': two items"),
        ("version = 1\n[tools.a]\nargs_with = { -e = \"\" }", "tools.a: args_with: '-e' is not in options"),
        ("version = 1\n[tools.a]\nsha256 = \"00\"", "tools.a: sha256 is not 64"),
        ("version = 1\n[tools.a]\npath = \"bin/a\"", "tools.a: path is not absolute"),
        ("version = 1\n[tools.a]\nlike = \"sh\"", "tools.a: like: the library has no 'sh'"),
        (
            "version = 1\n[tools.a]\nclass = \"interpreter\"\nargs = \"read\"",
            "tools.a: options and args cannot",
        ),
        (
            "version = 1\n[tools.a]\npath = \"/a\"\n[tools.b]\npath = \"/a\"",
            "tools.b: tools.a has the same path",
        ),
        ("version = 1\n[paths]\nread = [\"/a/..\"]", "paths: '/a/..' has '..'"),
        ("version = 1\n[env]\n\"A=B\" = \"TEXT\"", "env: 'A=B' is not the name"),
        ("version = 1\nprofile = \"A B\"", "profile: 'A B' is not the name"),
    ] {
        let error = Policy::parse(text).unwrap_err().to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn examples_of_a_policy_are_tests() {
    let text = "version = 1\n[tools.a]\noptions = [\"-r\"]\nok = [[\"-r\"], [\"-x\"]]\nno = [[\"-y\"], []]\n";
    let failed = Policy::parse(text).unwrap().failed_examples();
    let shown: Vec<_> = failed.iter().map(|example| (example.list, example.args.join(" "))).collect();
    assert_eq!(shown, [("ok", "-x".to_owned()), ("no", String::new())]);
    assert_eq!(failed[0].reason.as_deref(), Some("the option '-x' is not listed"));
}

#[test]
fn secret_is_allowed_for_the_tools_that_list_it() {
    let jq = |env: &str| format!(r#""command": "jq", "args": ["."], "env": {{{env}}}"#);
    assert_eq!(judged(&jq(r#""JQ_COLORS": "{{secret.TOKEN}}""#)).decision, Decision::Allow);
    for (task, place, why) in [
        (
            jq(r#""JQ_COLORS": "{{secret.OTHER}}""#),
            "env.JQ_COLORS",
            "the secret 'OTHER' is not listed in secrets",
        ),
        (
            jq(r#""N": "{{secret.TOKEN}}""#),
            "env.N",
            "a secret may be any text, and the variable has to be INT",
        ),
        (jq(r#""X": "{{secret.TOKEN}}""#), "env.X", "the variable 'X' is not listed"),
        (jq(r#""JQ_COLORS": "x{{secret.TOKEN}}""#), "env.JQ_COLORS", "stands for a secret"),
        (
            r#""command": "cat", "env": {"LC_ALL": "{{secret.TOKEN}}"}"#.to_owned(),
            "env.LC_ALL",
            "is not listed in secrets of tools.cat",
        ),
        (r#""command": "echo", "args": ["{{secret.TOKEN}}"]"#.to_owned(), "args[0]", "stands for a secret"),
        (
            r#""command": "cat", "stdin_file": "{{secret.TOKEN}}""#.to_owned(),
            "stdin_file",
            "stands for a secret",
        ),
    ] {
        let (decision, at, reason, _) = first(&task);
        assert_eq!((decision, at.as_str()), (Decision::Refuse, place), "{task}");
        assert!(reason.contains(why), "{task}: {reason}");
    }
    let wrong = Policy::parse("version = 1\n[tools.a]\nargs = \"TEXT\"\nsecrets = [\"a b\"]")
        .unwrap_err()
        .to_string();
    assert!(wrong.contains("secrets: 'a b' is not the name of a secret"), "{wrong}");
}

#[test]
fn policy_asks_about_profiles_agents_and_many_jobs() {
    let parse_policy = |ask: &str| Policy::parse(&format!("version = 1\nuse = ['true']\n[ask]\n{ask}"));
    let policy = parse_policy("profiles = ['net']\nagent_plans = true\njobs_over = 10").unwrap();
    let judge = |sandbox: &str| {
        let json = format!(r#"{{"tasks": [{{"task_number": 1, "command": "true"}}]{sandbox}}}"#);
        policy.judge(&parse::<Plan>(json.as_bytes()).unwrap())
    };
    assert_eq!(judge("").decision, Decision::Allow);
    assert_eq!(judge(r#", "sandbox": {"profile": "reader"}"#).decision, Decision::Allow);
    let asked = judge(r#", "sandbox": {"profile": "net"}"#);
    assert_eq!(asked.decision, Decision::Ask);
    let reason = asked.findings[0].to_string();
    assert_eq!(reason, "sandbox.profile: plans in the sandbox profile 'net' need approval");
    let asks = policy.asks();
    assert!(asks.about_agent_plan().is_some() && asks.about_jobs(10).is_none());
    assert_eq!(asks.about_jobs(11).unwrap(), "an action has 11 jobs, and more than 10 need approval");
    let nothing = parse_policy("").unwrap();
    assert!(nothing.asks().about_agent_plan().is_none() && nothing.asks().about_jobs(u64::MAX).is_none());
    let error = parse_policy("profiles = ['a b']").unwrap_err().to_string();
    assert_eq!(error, "ask.profiles: 'a b' is not the name of a sandbox profile");
    assert!(parse_policy("plans = true").is_err());
}
