//! A worker is killed during a job, and the job runs on another worker.

use e2e::{Lab, eventually};

use crate::support::{ended, only_job, plan};

#[test]
fn job_of_a_killed_worker_runs_elsewhere() {
    let lab = Lab::new();
    let agq = lab.agq(&["--heartbeat-interval", "1"]);
    let (started, go) = (lab.path().join("started"), lab.path().join("go"));
    let script = format!(
        "echo x >> {}; until [ -e {} ]; do sleep 0.02; done; echo done",
        started.display(),
        go.display()
    );
    lab.submit_plan(&agq, &plan("p", "sh", &["-c", &script]));
    lab.submit_action(&agq, "p", "a", "[{}]");
    let mut first = lab.agw(&agq, "w1", &[]);
    // A job without a report would go back already when its connection closes.
    eventually("the job is reported as running", || {
        started.exists().then_some(())?;
        only_job(&lab, &agq, "a")["current_task"].as_u64()
    });
    first.kill();
    let _second = lab.agw(&agq, "w2", &[]);
    lab.file("go", "");
    let job = ended(&lab, &agq, "a");
    assert_eq!((job["status"].as_str(), job["worker_id"].as_str()), (Some("completed"), Some("w2")));
    assert_eq!((job["attempt"].as_u64(), job["stdout"].as_str()), (Some(2), Some("done\n")));
    assert_eq!(std::fs::read_to_string(started).unwrap().lines().count(), 2);
    let workers = lab.agx(&agq, &["worker", "list", "--json"]).expect(0).data();
    assert_eq!((workers[0]["worker_id"].as_str(), workers[0]["state"].as_str()), (Some("w1"), Some("dead")));
}
