//! agq is down while a job ends or results are read: the job is reported, and the read continues,
//! once agq is back.

use e2e::{Lab, eventually};

use crate::{
    running::RunningCommand,
    support::{ended, plan},
};

#[test]
fn job_that_ends_while_agq_is_away_is_reported_after() {
    let lab = Lab::new();
    // No heartbeat is sent in time to notice that agq was down.
    let mut agq = lab.agq(&["--heartbeat-interval", "3600"]);
    let dir = lab.path().display();
    let script =
        format!("echo x >> {dir}/started; until [ -e {dir}/go ]; do sleep 0.02; done; touch {dir}/over");
    lab.submit_plan(&agq, &plan("p", "sh", &["-c", &script]));
    lab.submit_action(&agq, "p", "a", "[{}]");
    let agw = lab.agw(&agq, "w1", &["--max-concurrent-jobs", "1"]);
    eventually("the job starts", || lab.path().join("started").exists().then_some(()));
    // A durable write also makes the claim of the job durable, so that agq still has the claim
    // after the kill.
    lab.submit_plan(&agq, &plan("q", "true", &[]));
    agq.kill();
    lab.file("go", "");
    eventually("the job is over", || lab.path().join("over").exists().then_some(()));
    agq.start_again(&lab);
    let job = ended(&lab, &agq, "a");
    assert_eq!(
        (job["status"].as_str(), job["attempt"].as_u64()),
        (Some("completed"), Some(1)),
        "{}",
        agw.log()
    );
    assert_eq!(std::fs::read_to_string(lab.path().join("started")).unwrap(), "x\n", "it ran once");
}

#[test]
fn report_that_is_too_large_for_agq_is_cut_and_accepted() {
    let lab = Lab::new();
    // No heartbeat is sent in time to notice that agq closed the connection.
    let agq = lab.agq(&["--heartbeat-interval", "3600", "--max-message-bytes", "100000"]);
    let agw = lab.agw(&agq, "w1", &["--max-concurrent-jobs", "1", "--tools", "head"]);
    lab.submit_plan(&agq, &plan("p", "head", &["-c", "1000000", "/dev/zero"]));
    lab.submit_action(&agq, "p", "a", "[{}]");
    let job = ended(&lab, &agq, "a");
    assert_eq!(
        (job["status"].as_str(), job["attempt"].as_u64()),
        (Some("completed"), Some(1)),
        "{}",
        agw.log()
    );
    let result = &job["task_results"][0];
    assert_eq!(
        (result["stdout_bytes"].as_u64(), result["stdout_truncated"].as_bool()),
        (Some(1_000_000), Some(true))
    );
}

#[test]
fn action_results_continues_after_agq_restarts_between_two_jobs() {
    const JOBS: usize = 40;
    let lab = Lab::new();
    let mut agq = lab.agq(&[]);
    let _agw = lab.agw(&agq, "w1", &[]);
    lab.submit_plan(&agq, &plan("p", "seq", &["10000"]));
    lab.submit_action(&agq, "p", "a", &format!("[{}]", ["{}"; JOBS].join(",")));
    eventually("the jobs end", || {
        let status = lab.agx(&agq, &["action", "status", "a", "--json"]).expect(0).data();
        (status["completed"].as_u64() == Some(JOBS as u64)).then_some(())
    });
    let mut command = lab.command("agx");
    command.args(["action", "results", "a"]).env("AGQ_ADDR", agq.address());
    let mut results = RunningCommand::start(&mut command);
    // The pipe has room for one output only, so that agx has not asked for most jobs yet.
    results.read(1);
    agq.stop();
    agq.start_again(&lab);
    let (rest, _) = results.succeed();
    let output: String = (1..=10_000).map(|number| format!("{number}\n")).collect();
    assert!(format!("1{rest}") == output.repeat(JOBS), "{} bytes", rest.len());
}
