//! A job goes only to a worker with the capabilities that it needs. Until there is such a worker,
//! the job waits and reports the missing capabilities.

use std::{fs, os::unix::fs::PermissionsExt};

use e2e::{Lab, eventually};

use crate::support::{ended, only_job, plan};

#[test]
fn worker_without_the_tool_never_gets_the_job() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let _without = lab.agw(&agq, "without", &["--tools", "sort,cat,true"]);
    lab.submit_plan(&agq, &plan("jq", "jq", &["."]));
    lab.submit_plan(&agq, &plan("true", "true", &[]));
    lab.submit_action(&agq, "jq", "waits", "[{}]");
    // A later job overtakes a job that no worker can run.
    lab.submit_action(&agq, "true", "runs", "[{}]");
    assert_eq!(ended(&lab, &agq, "runs")["worker_id"], "without");
    assert_eq!(only_job(&lab, &agq, "waits")["status"], "pending");
    let stats = lab.agx(&agq, &["queue", "stats", "--json"]).expect(0).data();
    let needs = &stats["queue:ready"]["needs"][0];
    assert_eq!(
        (needs["tools"][0].as_str(), needs["length"].as_u64(), needs["workers"].as_u64()),
        (Some("jq"), Some(1), Some(0))
    );
    let text = lab.agx(&agq, &["queue", "stats"]).expect(0).out;
    assert!(text.contains("1 need jq (no live worker has them)"), "{text}");

    let bin = lab.path().join("bin");
    fs::create_dir(&bin).unwrap();
    fs::write(bin.join("jq"), "#!/bin/sh\necho a jq\n").unwrap();
    fs::set_permissions(bin.join("jq"), fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let mut with = lab
        .command("agw")
        .env("PATH", path)
        .args(["--agq", &agq.address(), "--worker-id", "with"])
        .spawn()
        .unwrap();
    let job = eventually("the job ends", || {
        Some(only_job(&lab, &agq, "waits")).filter(|job| job["status"] == "completed")
    });
    with.kill().unwrap();
    with.wait().unwrap();
    assert_eq!((job["worker_id"].as_str(), job["stdout"].as_str()), (Some("with"), Some("a jq\n")));
}
