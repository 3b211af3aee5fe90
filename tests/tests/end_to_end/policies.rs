//! Policies: agq refuses plans early, and each worker decides for itself.

use std::fs;

use e2e::{Agq, Agw, Lab, Ran, eventually};
use serde_json::{Value, json};

use crate::support::{RawConnection, ended};

const POLICY: &str = r#"
version = 1
use = ["cat", "sort"]
[paths]
read = ["/data"]
[tools.awk]
class = "interpreter"
"#;

fn policy(lab: &Lab) -> String {
    lab.file("policy.toml", POLICY).to_str().unwrap().to_owned()
}

fn plan(id: &str, command: &str, args: &[&str]) -> String {
    let task = json!({"task_number": 1, "command": command, "args": args});
    json!({"plan_id": id, "max_retries": 3, "tasks": [task]}).to_string()
}

/// Lab with an agq without a policy, and a worker with one.
fn with_worker() -> (Lab, Agq, Agw) {
    let lab = Lab::new();
    let file = policy(&lab);
    let agq = lab.agq(&[]);
    let agw = lab.agw(&agq, "w1", &["--policy", &file]);
    (lab, agq, agw)
}

#[test]
fn worker_refuses_a_job_that_its_policy_does_not_allow_and_agq_does_not_retry_it() {
    let (lab, agq, _agw) = with_worker();
    let run = |id: &str, command: &str, args: &[&str]| -> Value {
        lab.submit_plan(&agq, &plan(id, command, args));
        lab.submit_action(&agq, id, id, "[{}]");
        ended(&lab, &agq, id)
    };
    let allowed = run("allowed", "sort", &["-n"]);
    assert_eq!(allowed["status"], "completed", "{allowed}");
    let admission = &allowed["task_results"][0]["admission"];
    assert_eq!(admission["rule"], "tools.sort", "{allowed}");
    assert!(admission["policy"].as_str().unwrap().starts_with("sha256:"), "{allowed}");
    let refused = run("refused", "sort", &["-o", "x"]);
    assert_eq!((&refused["status"], &refused["attempt"]), (&json!("failed"), &json!(1)), "{refused}");
    let reason = "refused: task 1 (sort), args[0]: the option '-o' is not listed";
    assert!(refused["error"].as_str().unwrap().contains(reason), "{refused}");
    assert_eq!(refused["task_results"][0]["exit_code"], 78, "{refused}");
    assert_eq!(refused["task_results"][0]["admission"], Value::Null, "{refused}");
    let unlisted = run("unlisted", "sh", &["-c", "id"]);
    assert!(unlisted["error"].as_str().unwrap().contains("the tool 'sh' is not listed"), "{unlisted}");
    let asked = run("asked", "awk", &["1"]);
    assert!(asked["error"].as_str().unwrap().contains("asks for the approval of a person"), "{asked}");
}

#[test]
fn challenge_is_no_way_around_the_policy_of_a_worker() {
    let (lab, agq, _agw) = with_worker();
    let challenge = json!({"command": "sh", "args": ["-c", "echo out"]});
    let mut raw = RawConnection::open(&lab, &agq);
    let answer = raw.ask(&format!("WORKER.VERIFY sh '{challenge}'"));
    assert!(answer.contains("the tool 'sh' is not listed") && !answer.contains("out"), "{answer}");
}

#[test]
fn agq_refuses_a_plan_that_its_policy_does_not_allow() {
    let lab = Lab::new();
    let file = policy(&lab);
    let agq = lab.agq(&["--policy", &file]);
    let submit = |id: &str, command: &str, args: &[&str], code: i32| {
        let file = lab.file("plan.json", &plan(id, command, args));
        lab.agx(&agq, &["plan", "submit", file.to_str().unwrap()]).expect(code).err
    };
    submit("a", "cat", &["/data/a"], 0);
    let refused = submit("b", "cat", &["/etc/passwd"], 4);
    assert!(refused.contains("Plan refused by policy: task 1 (cat), args[0]: "), "{refused}");
    fs::write(lab.path().join("policy.toml"), "version = 1").unwrap();
    agq.reload();
    eventually("the new policy applies", || {
        let file = lab.file("plan.json", &plan("d", "cat", &["/data/a"]));
        let ran = lab.agx(&agq, &["plan", "submit", file.to_str().unwrap()]);
        ran.err.contains("the tool 'cat' is not listed").then_some(())
    });
}

#[test]
fn server_and_worker_do_not_start_with_a_policy_that_is_wrong() {
    let lab = Lab::on_files();
    let wrong = lab.file("wrong.toml", "version = 1\nbest_effort = true");
    for (program, code) in [("agq", 1), ("agw", 2)] {
        let ran = Ran::from(lab.command(program).arg("--policy").arg(&wrong).output().unwrap()).expect(code);
        assert!(ran.err.contains("unknown field `best_effort`"), "{}", ran.err);
    }
}

#[test]
fn worker_without_a_sandbox_does_not_start_with_a_policy_that_names_a_profile() {
    let lab = Lab::on_files();
    let file = lab.file("policy.toml", "version = 1\nprofile = \"reader\"");
    let ran = Ran::from(lab.command("agw").arg("--policy").arg(&file).output().unwrap()).expect(2);
    let reason = "the policy names the sandbox profile 'reader', and this worker runs no job in a sandbox";
    assert!(ran.err.contains(reason), "{}", ran.err);
}
