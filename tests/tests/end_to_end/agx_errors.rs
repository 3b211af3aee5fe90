//! Errors of agx: what happened, what to do next, and the exit code.

use std::process::Stdio;

use e2e::{Lab, Ran};

use crate::support::{numbered, plan};

#[test]
fn no_server_and_a_wrong_key_are_exit_code_three() {
    let lab = Lab::new();
    let mut agq = lab.agq(&[]);
    let wrong = lab
        .command("agx")
        .env("AGQ_SESSION_KEY", "x".repeat(64))
        .args(["--agq", &agq.address(), "queue", "stats"])
        .output();
    let wrong = Ran::from(wrong.unwrap()).expect(3);
    assert!(
        wrong.err.contains("refused the session key") && wrong.err.contains("set AGQ_SESSION_KEY"),
        "{}",
        wrong.err
    );
    let without = lab
        .command("agx")
        .env_remove("AGQ_SESSION_KEY")
        .args(["--agq", &agq.address(), "queue", "stats"])
        .output();
    assert!(Ran::from(without.unwrap()).expect(3).err.contains("there is no session key"));
    agq.kill();
    let gone = lab.agx(&agq, &["queue", "stats"]).expect(3);
    assert!(
        gone.err.contains("cannot reach agq at 127.0.0.1:") && gone.err.contains("start one with `agq`"),
        "{}",
        gone.err
    );
    let json = lab.agx(&agq, &["queue", "stats", "--json"]).expect(3);
    let error: serde_json::Value = serde_json::from_str(&json.err).unwrap();
    assert_eq!(
        (error["error"]["code"].as_str(), error["error"]["exit_code"].as_u64()),
        (Some("no_server"), Some(3))
    );
}

#[test]
fn refusal_of_agq_is_exit_code_four_and_wrong_usage_two() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    lab.submit_plan(&agq, &plan("p", "true", &[]));
    let again = lab.agx(&agq, &["plan", "submit", "plan.json"]).expect(4);
    assert!(again.err.contains("Plan already exists: p"), "{}", again.err);
    lab.file("bad.json", r#"{"tasks":[{"task_number":1,"command":"a b"}]}"#);
    let bad = lab.agx(&agq, &["plan", "check", "bad.json"]).expect(2);
    assert!(bad.err.contains("tasks[0].command is 'a b'"), "{}", bad.err);
    lab.agx(&agq, &["plan", "check", "nowhere.json"]).expect(2);
    lab.agx(&agq, &["plan", "check", "plan.json"]).expect(0);
    lab.agx(&agq, &["plan", "nonsense"]).expect(2);
    lab.agx(&agq, &["action", "status", "nowhere"]).expect(4);
    lab.agx(&agq, &["action", "submit", "p"]).expect(2);
    std::fs::write(lab.path().join("inputs"), b"[{\"line\":\"\xff\"}]").unwrap();
    let bytes = lab.agx(&agq, &["action", "submit", "p", "--inputs", "inputs"]).expect(2);
    assert!(bytes.err.contains("inputs: ") && bytes.err.contains("line 1"), "{}", bytes.err);
    lab.submit_plan(&agq, &plan("q", "echo", &["{{input.line}}"]));
    lab.file("lines", "good\n\0\n");
    let nul = lab.agx(&agq, &["action", "submit", "q", "--lines", "lines"]).expect(4);
    assert!(nul.err.contains("inputs[1].line contains a NUL byte"), "{}", nul.err);
    lab.file("empty", "");
    let empty = lab.agx(&agq, &["action", "submit", "p", "--lines", "empty"]).expect(4);
    assert!(empty.err.contains("inputs is empty"), "{}", empty.err);
}

#[test]
fn failed_job_is_exit_code_one() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let _agw = lab.agw(&agq, "w1", &[]);
    lab.submit_plan(&agq, &plan("p", "false", &[]));
    lab.file("lines", "a\nb\n");
    let waited = lab.agx(&agq, &["action", "submit", "p", "--lines", "lines", "--wait"]).expect(1);
    assert!(waited.err.contains("2 of 2 jobs did not complete"), "{}", waited.err);
}

#[test]
fn reader_that_has_gone_causes_no_panic() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let _agw = lab.agw(&agq, "w1", &[]);
    lab.submit_plan(&agq, &plan("p", "seq", &["100000"]));
    lab.submit_action(&agq, "p", "a", &numbered(4));
    lab.agx(&agq, &["action", "status", "a", "--watch"]).expect(0);
    let mut results = lab.command("agx");
    results
        .args(["--agq", &agq.address(), "action", "results", "a"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = results.spawn().unwrap();
    drop(child.stdout.take());
    let ran = Ran::from(child.wait_with_output().unwrap()).expect(141);
    assert_eq!(ran.err, "");
}

#[test]
fn worker_that_may_not_have_its_id_says_so() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let _first = lab.agw(&agq, "w1", &[]);
    let second = lab.command("agw").args(["--agq", &agq.address(), "--worker-id", "w1"]).output().unwrap();
    let second = Ran::from(second).expect(3);
    assert!(second.err.contains("Worker ID already registered"), "{}", second.err);
}

#[test]
fn second_agq_on_the_same_data_says_who_has_it() {
    let lab = Lab::new();
    let _agq = lab.agq(&[]);
    let data = lab.path().join("data");
    let second = lab.command("agq").args(["--port", "0", "--data-dir"]).arg(data).output().unwrap();
    let second = Ran::from(second).expect(1);
    assert!(second.err.contains("another agq has"), "{}", second.err);
}

#[test]
fn ctrl_c_stops_the_wait_and_not_the_action() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    lab.submit_plan(&agq, &plan("p", "true", &[]));
    lab.file("lines", "a\n");
    let log = lab.path().join("agx.log");
    let mut agx = lab.command("agx");
    agx.args(["--agq", &agq.address(), "action", "submit", "p", "--id", "a", "--lines", "lines", "--wait"]);
    let mut child = agx.stdout(Stdio::null()).stderr(std::fs::File::create(&log).unwrap()).spawn().unwrap();
    let printed = || std::fs::read_to_string(&log).unwrap();
    e2e::eventually("it says why nothing runs", || printed().contains("there is no worker").then_some(()));
    let pid = rustix::process::Pid::from_raw(child.id().cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(
        printed().contains("action a continues\n  watch it again with `agx action watch a`"),
        "{}",
        printed()
    );
    assert_eq!(crate::support::action(&lab, &agq, "a")["pending"], 1);
}
