//! Secrets of the owner of a worker: who gets them, and where they never are.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::Path,
};

use e2e::{Agq, Agw, Lab, Ran, eventually};
use serde_json::{Value, json};

use crate::support::{RawConnection, ended, only_job};

const TOKEN: &str = "s3cret-token-9d1f";
const VARIABLE: &str = "an0ther-secret";

/// Starts a worker that gives two secrets to sh: one from a file, one from a variable.
fn worker(lab: &Lab, agq: &Agq, more: &str) -> Agw {
    let token = lab.file("token", &format!("{TOKEN}\n"));
    fs::set_permissions(&token, Permissions::from_mode(0o600)).unwrap();
    let token = token.display();
    let secrets = format!(
        "TOKEN = {{ file = '{token}', tools = ['sh', 'printenv'] }}\nOTHER = {{ env = 'E2E_SECRET', tools = ['sh', 'printenv'] }}\n"
    );
    let config = lab.file("agw.toml", &format!("{more}\n[secrets]\n{secrets}"));
    let mut command = lab.command("agw");
    command.env("AGQ_ADDR", agq.address()).env("E2E_SECRET", VARIABLE).env("AGW_LOG", "debug");
    command.args(["--kill-grace", "1", "--config"]).arg(config);
    lab.agw_by("w1", command)
}

fn submit(lab: &Lab, agq: &Agq, id: &str, input: &Value, task: &Value) {
    let plan = json!({"plan_id": id, "tasks": [task]});
    lab.submit_plan(agq, &plan.to_string());
    lab.submit_action(agq, id, id, &json!([input]).to_string());
}

/// Returns a task of sh that runs in the directory of the lab, and gets both secrets.
fn shell(lab: &Lab, script: &str) -> Value {
    let env = json!({"TOKEN": "{{secret.TOKEN}}", "OTHER": "{{ secret.OTHER }}"});
    json!({"task_number": 1, "command": "sh", "args": ["-c", script], "cwd": lab.path(), "env": env})
}

/// Returns the files below `directory` that contain `bytes`.
fn files_with(directory: &Path, bytes: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files_with(&path, bytes));
        } else if fs::read(&path).is_ok_and(|all| all.windows(bytes.len()).any(|part| part == bytes)) {
            found.push(path.file_name().unwrap().to_string_lossy().into_owned());
        }
    }
    found
}

/// Base64 of `user:` and the token, as curl sends it.
const BASIC: &str = "dXNlcjpzM2NyZXQtdG9rZW4tOWQxZg==";

#[test]
fn secret_reaches_its_task_and_nothing_that_others_can_read() {
    let lab = Lab::on_files();
    let agq = lab.agq(&[]);
    let agw = worker(&lab, &agq, "");
    // Stdout has the token across its first 64 KiB, and is larger than what a report has.
    let script = "test \"$TOKEN\" = \"$(cat token)\" && echo same; echo \"got $TOKEN and $OTHER\" >&2; \
        printf 'user:%s' \"$TOKEN\" | base64 >&2; env | grep -c E2E_SECRET >&2; \
        head -c 65522 /dev/zero | tr '\\0' x; printf %s \"$TOKEN\"; head -c 200000 /dev/zero | tr '\\0' y; \
        echo; until [ -e go ]; do sleep 0.02; done; echo \"end $TOKEN\" >&2; exit 3";
    submit(&lab, &agq, "a", &json!({}), &shell(&lab, script));
    let job = only_job(&lab, &agq, "a")["job_id"].as_str().unwrap().to_owned();
    let live = eventually("the live output is masked", || {
        let live = lab.agx(&agq, &["logs", &job]).expect(0);
        (live.out.contains("***yyy") && live.err.contains("got *** and ***\n")).then_some(live)
    });
    lab.file("go", "");
    let status = ended(&lab, &agq, "a");
    assert_eq!(status["error"], "Task 1 (sh) exited with code 3: end ***", "{status}");
    let kept = lab.agx(&agq, &["logs", &job]).expect(0);
    let expected = format!("same\n{}***{}\n", "x".repeat(65_522), "y".repeat(200_000));
    assert!(kept.out == expected, "{} bytes", kept.out.len());
    let stderr = status["task_results"][0]["stderr"].as_str().unwrap();
    assert!(stderr.starts_with("got *** and ***\ndXNlcjp***"), "{stderr}");
    assert!(stderr.ends_with("\n0\nend ***\n"), "no task inherits the variable of agw: {stderr}");
    let shown = lab.agx(&agq, &["action", "results", "a", "--json"]);
    let explained = lab.agx(&agq, &["job", "explain", &job]);
    let workers = lab.agx(&agq, &["worker", "list", "--json"]);
    assert!(workers.out.contains("secret:TOKEN:sh"), "names are not secret: {}", workers.out);
    let all =
        [&live, &kept, &shown, &explained, &workers].map(|ran| format!("{}{}", ran.out, ran.err)).concat();
    let log = agw.log();
    drop((agw, agq));
    for secret in [TOKEN, VARIABLE, &BASIC[8..]] {
        assert!(
            !all.contains(secret) && !log.contains(secret) && !status.to_string().contains(secret),
            "{secret}"
        );
        let files = files_with(lab.path(), secret.as_bytes());
        let expected: &[&str] = if secret == TOKEN { &["token"] } else { &[] };
        assert_eq!(files, expected, "{secret}");
    }
    // The search finds text that is there.
    assert!(!files_with(&lab.path().join("data"), b"got *** and ***").is_empty());
}

#[test]
fn secret_anywhere_but_in_a_variable_is_refused_with_the_place() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let mut raw = RawConnection::open(&lab, &agq);
    for (field, value, place) in [
        ("args", json!(["-H", "Bearer {{secret.TOKEN}}"]), "args[1]"),
        ("args", json!(["{{secret.TOKEN}}"]), "args[0]"),
        ("stdin", json!("{{secret.TOKEN}}"), "stdin"),
        ("stdout", json!("/tmp/{{secret.TOKEN}}"), "stdout"),
        ("stderr", json!("{{secret.TOKEN}}"), "stderr"),
        ("stdin_file", json!("{{secret.TOKEN}}"), "stdin_file"),
        ("cwd", json!("{{secret.TOKEN}}"), "cwd"),
        ("env", json!({"A": "x{{secret.TOKEN}}"}), "env.A"),
        ("env", json!({"A": "{{secret.{{input.x}}}}"}), "env.A"),
    ] {
        let plan = json!({"tasks": [{"task_number": 1, "command": "sh", field: value}]});
        let reply = raw.ask(&format!("PLAN.SUBMIT '{plan}'"));
        assert!(reply.starts_with(&format!("-ERR Invalid plan schema: tasks[0].{place}: ")), "{reply}");
    }
}

#[test]
fn secret_in_an_input_is_text() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let _agw = worker(&lab, &agq, "");
    let task = json!({
        "task_number": 1, "command": "sh", "args": ["-c", "echo \"$A $0\"", "{{input.x}}"],
        "env": {"A": "{{input.x}}", "TOKEN": "{{secret.TOKEN}}"},
    });
    submit(&lab, &agq, "a", &json!({"x": "{{secret.TOKEN}}"}), &task);
    let status = ended(&lab, &agq, "a");
    assert_eq!(status["task_results"][0]["stdout"], "{{secret.TOKEN}} {{secret.TOKEN}}\n", "{status}");
}

#[test]
fn job_waits_for_a_worker_that_gives_the_secret_to_its_tool() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let agw = worker(&lab, &agq, "");
    let env = json!({"TOKEN": "{{secret.TOKEN}}"});
    submit(&lab, &agq, "a", &json!({}), &json!({"task_number": 1, "command": "env", "args": [], "env": env}));
    let job = only_job(&lab, &agq, "a")["job_id"].as_str().unwrap().to_owned();
    let explained = lab.agx(&agq, &["job", "explain", &job]).expect(0).out;
    assert!(explained.contains("lacks secret TOKEN for env: its owner does not give it"), "{explained}");
    let mut raw = RawConnection::open(&lab, &agq);
    // A connection that declares nothing gets no such job.
    assert_eq!(raw.ask("RPOP queue:ready"), "$-1");
    // The secret has gone since the start of the worker.
    fs::remove_file(lab.path().join("token")).unwrap();
    submit(&lab, &agq, "b", &json!({}), &shell(&lab, "echo started > started"));
    let status = ended(&lab, &agq, "b");
    let error = status["error"].as_str().unwrap();
    assert!(error.starts_with("the secret 'TOKEN' cannot be used: its file: No such file"), "{error}");
    assert!(!lab.path().join("started").exists());
    assert_eq!(only_job(&lab, &agq, "a")["status"], "pending");
    drop(agw);
}

#[test]
fn sandboxed_task_gets_the_secret_that_its_profile_permits() {
    let lab = Lab::new();
    fs::set_permissions(lab.path(), Permissions::from_mode(0o755)).unwrap();
    let agq = lab.agq(&[]);
    let _agw = worker(&lab, &agq, "[sandbox]\nmode = 'all'\n[profiles.reader]\nenv = ['TOKEN']");
    let env = json!({"TOKEN": "{{secret.TOKEN}}"});
    let script = format!(
        "test \"$TOKEN\" = {TOKEN} && echo same; echo \"$TOKEN\"; : < {}/token",
        lab.path().display()
    );
    let task = json!({"task_number": 1, "command": "sh", "args": ["-c", script], "env": env});
    submit(&lab, &agq, "a", &json!({}), &task);
    let status = ended(&lab, &agq, "a");
    let result = &status["task_results"][0];
    assert_eq!(result["stdout"], "same\n***\n", "{status}");
    assert!(result["stderr"].as_str().unwrap().contains("token: Permission denied"), "{status}");
    // The profile of the sandbox does not permit another variable.
    submit(&lab, &agq, "b", &json!({}), &shell(&lab, "true"));
    let error = ended(&lab, &agq, "b")["error"].as_str().unwrap().to_owned();
    assert!(error.contains("the profile 'reader' does not permit"), "{error}");
}

#[test]
fn policy_of_the_worker_lists_the_secrets_of_a_tool() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let tool = "args = 'NAME'\nenv = { TOKEN = 'TEXT' }\nsecrets = ['TOKEN']";
    let policy = lab.file("policy.toml", &format!("version = 1\n[tools.printenv]\n{tool}\n"));
    let _agw = worker(&lab, &agq, &format!("[policy]\nfile = '{}'", policy.display()));
    for (id, value) in [("a", "{{secret.TOKEN}}"), ("b", "{{secret.OTHER}}")] {
        let env = json!({"TOKEN": value});
        let task = json!({"task_number": 1, "command": "printenv", "args": ["TOKEN"], "env": env});
        submit(&lab, &agq, id, &json!({}), &task);
    }
    let allowed = ended(&lab, &agq, "a");
    assert_eq!(allowed["task_results"][0]["stdout"], "***\n", "{allowed}");
    let refused = ended(&lab, &agq, "b")["error"].as_str().unwrap().to_owned();
    assert!(refused.contains("the secret 'OTHER' is not listed in secrets of tools.printenv"), "{refused}");
}

#[test]
fn worker_refuses_secrets_that_it_could_not_mask() {
    let lab = Lab::new();
    let short = lab.file("short", "1234567\n").display().to_string();
    for (entry, why) in [
        (format!("{{ file = '{short}', tools = ['sh'] }}"), "secrets.A: it has 7 bytes, and needs 8"),
        ("{ file = '/no/such', tools = ['sh'] }".into(), "secrets.A: its file: No such file"),
        (format!("{{ file = '{short}' }}"), "a secret is a table with a list `tools`"),
    ] {
        let config = lab.file("agw.toml", &format!("[secrets]\nA = {entry}\n"));
        let ran = Ran::from(lab.command("agw").arg("--config").arg(config).output().unwrap()).expect(2);
        assert!(ran.err.contains(why) && !ran.err.contains("1234567"), "{}", ran.err);
    }
}
