//! Limits of orders, with which workers end jobs or refuse them.

use e2e::Lab;
use serde_json::{Value, json};

use super::{Trusting, assert_refused, echo, new_key, untrusted};

#[test]
fn order_limits_its_jobs_and_the_processor_time_of_all_processes_of_each() {
    let trusting = Trusting::new();
    trusting.submit(&echo("one", &["x"]), "ci", &["--jobs", "1", "--serial", "s"]);
    let ran = trusting.run("one", "first", &json!({}));
    assert_eq!(ran["task_results"][0]["stdout"], "x\n", "{ran}");
    assert_refused(
        &trusting.run("one", "second", &json!({})),
        "the order s permits 1 jobs, and this worker has started that many others",
    );

    trusting.submit(&busy(), "ci", &["--cpu-secs", "1"]);
    assert_out_of_processor_time(&trusting.run("busy", "busy", &json!({})), "limits.cpu_secs of its order");
    // The lower limit holds: that of a budget, which agq names with the job.
    trusting.editor.edit(|job| job["max_cpu_ms"] = json!(900));
    assert_out_of_processor_time(&trusting.run("busy", "budget", &json!({})), "its budget");
}

#[test]
fn order_limits_the_processor_time_of_a_sandbox() {
    let lab = Lab::new();
    let signers = format!("[signers.ci]\nkey = \"{}\"\nprofile = \"builder\"\n", new_key(&lab, "ci"));
    let trusting = Trusting::with(lab, &signers, &untrusted());
    trusting.submit(&busy(), "ci", &["--cpu-secs", "1"]);
    // The second job may run in the sandbox of the first one, whose processor time does not count.
    for action in ["one", "two"] {
        let job = trusting.run("busy", action, &json!({}));
        assert_out_of_processor_time(&job, "limits.cpu_secs of its order");
    }
}

/// Returns a plan whose processes run one after the other, each for less than a second.
fn busy() -> Value {
    let script = "setsid sh -c 'while :; do timeout 0.3 sh -c \"while :; do :; done\"; done' & sleep 600";
    let mut plan = echo("busy", &[]);
    plan["tasks"][0] = json!({"task_number": 1, "command": "sh", "args": ["-c", script]});
    plan["max_retries"] = json!(0);
    plan
}

#[track_caller]
fn assert_out_of_processor_time(job: &Value, limit: &str) {
    let error = job["error"].as_str().unwrap();
    assert!(error.contains(&format!(" s of processor time, and {limit} permits ")), "{job}");
    let figure = |name: &str| job["task_results"][0][name].as_u64().unwrap();
    // The processes have left their task, and count nevertheless.
    assert!((600..=1_000).contains(&(figure("user_ms") + figure("system_ms"))), "{job}");
}

#[test]
fn limits_of_an_order_end_its_job() {
    let trusting = Trusting::new();
    let mut slow = echo("slow", &[]);
    slow["tasks"][0] = json!({"task_number": 1, "command": "sleep", "args": ["600"]});
    slow["max_retries"] = json!(0);
    trusting.submit(&slow, "ci", &["--wall-secs", "1"]);
    let job = trusting.run("slow", "slow", &json!({}));
    assert_eq!(job["error"], "the attempt took longer than limits.wall_secs = 1 of its order", "{job}");
    let mut large = echo("large", &[]);
    large["tasks"][0] = json!({"task_number": 1, "command": "sh", "args": ["-c", "yes"]});
    large["max_retries"] = json!(0);
    trusting.submit(&large, "ci", &["--output-bytes", "100000"]);
    let job = trusting.run("large", "large", &json!({}));
    assert!(job["error"].as_str().unwrap().contains("a job may take 100000"), "{job}");
}
