//! Live output of jobs, followed from any place.

use std::{fs::File, io::Write, time::Duration};

use e2e::{Agq, Lab, Proxy, eventually};
use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::{
    running::RunningCommand,
    support::{ended, only_job, plan},
};

/// Returns a plan whose job prints a line, waits for a word in the FIFO `gate`, and continues with
/// `rest`.
fn waiting(lab: &Lab, rest: &str) -> String {
    for gate in ["gate", "gate-0", "gate-1"] {
        mknodat(CWD, lab.path().join(gate), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    }
    let script = format!("echo first; echo complaint >&2; cat '{}/'$0; {rest}", lab.path().display());
    plan("p", "sh", &["-c", &script, "{{input.gate}}"])
}

/// Lets the job continue that waits at `gate`.
fn open(lab: &Lab, gate: &str) {
    File::options().write(true).open(lab.path().join(gate)).unwrap().write_all(b"word\n").unwrap();
}

/// Starts `agx logs`.
fn follow(lab: &Lab, agq: &Agq, args: &[&str]) -> RunningCommand {
    let mut command = lab.command("agx");
    RunningCommand::start(command.env("AGQ_ADDR", agq.address()).arg("logs").args(args))
}

#[test]
fn running_job_is_followed_to_its_end_whatever_becomes_of_agq() {
    let lab = Lab::new();
    let mut agq = lab.agq(&[]);
    let _agw = lab.agw(&agq, "w1", &["--kept-bytes", "100"]);
    lab.submit_plan(&agq, &waiting(&lab, "head -c 3000000 /dev/zero | tr '\\0' x"));
    lab.submit_action(&agq, "p", "a", r#"[{"gate":"gate"}]"#);
    let job = only_job(&lab, &agq, "a")["job_id"].as_str().unwrap().to_owned();
    let mut follower = follow(&lab, &agq, &["-f", &job]);
    assert_eq!(follower.line(), "first\n");
    let now = eventually("what is there already is printed without waiting", || {
        let now = lab.agx(&agq, &["logs", &job]).expect(0);
        (!now.out.is_empty()).then_some(now)
    });
    assert_eq!(now.out, "first\n");
    assert!(now.err.contains("complaint\n") && now.err.contains("is running; `agx logs -f"), "{}", now.err);
    // A claim becomes durable only after a while, or with the next durable write.
    lab.submit_plan(&agq, &plan("another", "true", &[]));
    agq.kill();
    agq.start_again(&lab);
    open(&lab, "gate");
    let (out, err) = follower.succeed();
    assert_eq!(out.len(), "word\n".len() + 3_000_000, "{err}");
    assert!(out.starts_with("word\nxxx") && err.contains("complaint\n"), "{err}");
    assert!(!err.contains("were not kept"), "{err}");
    ended(&lab, &agq, "a");
    let kept = lab.agx(&agq, &["logs", &job]).expect(0);
    assert!(kept.out.starts_with("first\nword\nxxx"), "{}", kept.out);
    assert_eq!(kept.out.len(), "first\nword\n".len() + 3_000_000);
    assert!(!kept.err.contains("were not kept"), "{}", kept.err);
}

#[test]
fn job_is_followed_from_its_start_also_if_its_worker_is_far_away() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    lab.submit_plan(&agq, &waiting(&lab, "exit 0"));
    lab.submit_action(&agq, "p", "a", r#"[{"gate":"gate"}]"#);
    let proxy = Proxy::start(agq.address(), fastrand::Rng::with_seed(1));
    // Each command of the worker takes long, so that the job is claimed long before a subscription
    // that begins with the claim.
    proxy.delay(Duration::from_millis(150));
    let mut command = lab.command("agw");
    command.env("AGQ_ADDR", proxy.address());
    let _agw = lab.agw_by("w1", command);
    let running = eventually("the worker claims the job", || {
        Some(only_job(&lab, &agq, "a")).filter(|job| job["status"] == "running")
    });
    let logs = lab.agx(&agq, &["logs", running["job_id"].as_str().unwrap()]).expect(0);
    assert!(!logs.err.contains("did not answer"), "{}", logs.err);
    proxy.calm();
    open(&lab, "gate");
    ended(&lab, &agq, "a");
}

#[test]
fn jobs_of_an_action_are_distinguished_by_their_inputs() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let _agw = lab.agw(&agq, "w1", &["--max-concurrent-jobs", "2"]);
    lab.submit_plan(&agq, &waiting(&lab, "printf last; exit 3"));
    lab.submit_action(&agq, "p", "a", r#"[{"gate":"gate-0"},{"gate":"gate-1"}]"#);
    let mut follower = follow(&lab, &agq, &["a", "-f"]);
    let mut first = [follower.line(), follower.line()];
    first.sort();
    assert_eq!(first, ["[0] first\n", "[1] first\n"]);
    open(&lab, "gate-1");
    assert_eq!(follower.line(), "[1] word\n");
    assert_eq!(follower.line(), "[1] last\n");
    open(&lab, "gate-0");
    let (out, err) = follower.succeed();
    assert_eq!(out, "[0] word\n[0] last\n");
    assert!(err.contains("[0] complaint\n") && err.contains("[1] complaint\n"), "{err}");
    let again = lab.agx(&agq, &["logs", "a", "--json"]).expect(0).out;
    let chunks: Vec<serde_json::Value> =
        again.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(chunks.len(), 4, "{again}");
    assert_eq!((&chunks[0]["kind"], &chunks[0]["data"]["stream"]), (&"logs".into(), &"stdout".into()));
    assert_eq!(chunks[0]["data"]["data"], "first\nword\nlast");
    assert_eq!(lab.agx(&agq, &["logs", "a", "--task", "2"]).expect(0).out, "");
}

#[test]
fn attempt_that_fails_is_shown_before_the_next_one() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let place = lab.path().display();
    let script =
        format!("cd '{place}' && if [ -e was ]; then echo second; else touch was; printf first; exit 1; fi");
    let plan = serde_json::json!({
        "plan_id": "p", "max_retries": 1, "tasks": [{"task_number": 1, "command": "sh", "args": ["-c", script]}],
    });
    lab.submit_plan(&agq, &plan.to_string());
    lab.submit_action(&agq, "p", "a", "[{}]");
    let job = only_job(&lab, &agq, "a")["job_id"].as_str().unwrap().to_owned();
    let (one, all) = (follow(&lab, &agq, &["-f", &job]), follow(&lab, &agq, &["-f", "a"]));
    let _agw = lab.agw(&agq, "w1", &[]);
    let (out, err) = one.succeed();
    assert_eq!(out, "firstsecond\n");
    assert!(err.contains("has not begun; `agx job explain"), "{err}");
    let (out, err) = all.succeed();
    assert!(out.ends_with("[0] second\n"));
    assert!(err.contains("nothing of it runs now"), "{err}");
}

#[test]
fn jobs_that_cannot_be_followed_are_refused() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let unknown = lab.agx(&agq, &["logs", "nothing"]).expect(4);
    assert!(unknown.err.contains("there is no job or action 'nothing'"), "{}", unknown.err);
    lab.submit_plan(&agq, &plan("p", "true", &[]));
    lab.submit_action(&agq, "p", "a", "[{}]");
    let job = only_job(&lab, &agq, "a")["job_id"].as_str().unwrap().to_owned();
    let waits = lab.agx(&agq, &["logs", &job]).expect(0);
    assert!(waits.err.contains("has not begun; `agx job explain"), "{}", waits.err);
    let waits = lab.agx(&agq, &["logs", "a"]).expect(0);
    assert!(waits.err.contains("0 of its jobs are running, and 1 has not begun"), "{}", waits.err);
    // A worker of another implementation, which does not support requests for output.
    let mut other = crate::support::RawConnection::open(&lab, &agq);
    assert!(
        other.ask(r#"WORKER.REGISTER '{"worker_id":"other","capabilities":["true"]}'"#).starts_with("+OK")
    );
    other.send("RPOP queue:ready\r\n");
    assert!(other.bulk().contains(&job));
    let mute = lab.agx(&agq, &["logs", &job]).expect(0);
    assert!(mute.err.contains("worker other did not answer within 3 seconds"), "{}", mute.err);
}
