//! A worker drains: it claims no more jobs, finishes the running ones, and unregisters.

use e2e::{Lab, eventually};

use crate::support::{action, numbered, plan};

#[test]
fn drained_worker_finishes_its_job_and_takes_no_other() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let script = format!(
        "touch {dir}/started; until [ -e {dir}/go ]; do sleep 0.02; done",
        dir = lab.path().display()
    );
    lab.submit_plan(&agq, &plan("p", "sh", &["-c", &script]));
    lab.submit_action(&agq, "p", "a", &numbered(2));
    let mut agw = lab.agw(&agq, "w1", &["--max-concurrent-jobs", "1"]);
    eventually("the job starts", || lab.path().join("started").exists().then_some(()));
    agw.terminate();
    eventually("it drains", || agw.log().contains("draining").then_some(()));
    lab.file("go", "");
    assert_eq!(agw.wait().code(), Some(0), "{}", agw.log());
    let status = action(&lab, &agq, "a");
    assert_eq!((status["completed"].as_u64(), status["pending"].as_u64()), (Some(1), Some(1)));
    let workers = lab.agx(&agq, &["worker", "list", "--json"]).expect(0).data();
    assert_eq!(workers.as_array().map(Vec::len), Some(0), "it unregistered");
}

#[test]
fn second_signal_ends_the_running_jobs_and_they_go_to_others() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let script = format!("echo $$ > {}/pid; exec sleep 1000", lab.path().display());
    lab.submit_plan(&agq, &plan("p", "sh", &["-c", &script]));
    lab.submit_action(&agq, "p", "a", "[{}]");
    let mut agw = lab.agw(&agq, "w1", &[]);
    let pid = eventually("the job starts", || {
        let pid = std::fs::read_to_string(lab.path().join("pid")).ok()?;
        pid.trim().parse::<i32>().ok()
    });
    agw.terminate();
    eventually("it drains", || agw.log().contains("draining").then_some(()));
    agw.terminate();
    assert_eq!(agw.wait().code(), Some(4));
    assert!(agw.log().contains("unfinished"), "{}", agw.log());
    assert_eq!(action(&lab, &agq, "a")["pending"], 1, "the job waits for another worker");
    eventually("its child is gone", || e2e::is_gone(pid).then_some(()));
}
