//! Two workers share an action of 1,000 jobs; each job is run exactly once.

use std::collections::BTreeSet;

use e2e::Lab;

use crate::support::{numbered, plan};

#[test]
fn two_workers_share_an_action_and_no_job_runs_twice() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let ran = lab.path().join("ran");
    let script = format!("echo {{{{input.n}}}} >> {}", ran.display());
    lab.submit_plan(&agq, &plan("p", "sh", &["-c", &script]));
    let one_slot = ["--max-concurrent-jobs", "1"];
    let _workers = [lab.agw(&agq, "w1", &one_slot), lab.agw(&agq, "w2", &one_slot)];
    lab.submit_action(&agq, "p", "a", &numbered(1000));
    let status = lab.agx(&agq, &["action", "status", "a", "--watch", "--json"]).expect(0).data();
    assert_eq!(status["completed"], 1000);

    let ran = std::fs::read_to_string(ran).unwrap();
    assert_eq!(ran.lines().count(), 1000, "a job ran twice, or not at all");
    assert_eq!(ran.lines().collect::<BTreeSet<_>>().len(), 1000);
    let results = lab.agx(&agq, &["action", "results", "a", "--json"]).expect(0);
    let worker =
        |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["data"]["worker_id"].clone();
    let workers: BTreeSet<String> = results.out.lines().map(|line| worker(line).to_string()).collect();
    assert_eq!(workers.len(), 2, "both workers had a share: {workers:?}");
}
