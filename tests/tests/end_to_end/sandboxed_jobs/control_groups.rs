//! Jobs in control groups. These tests need root, and a system without systemd whose control groups
//! (version 2) have the controllers of memory and processes, as `cargo xtask vm` starts one.

use std::fs;

use e2e::{Lab, eventually};
use serde_json::{Value, json};

use super::Sandboxed;
use crate::support::ended;

/// First group of the system, which the worker claims.
const GROUPS: &str = "/sys/fs/cgroup";
const LIMITS: &str = "limits = { memory = 67108864, processes = 16 }\n\
    needs = [\"limits_memory\", \"limits_process\", \"leftovers\"]";
const REGIMES: [&str; 2] = ["", "namespaces"];

/// Starts a worker that does without the mechanisms `without`.
fn bounded(without: &str) -> Sandboxed {
    let controllers = fs::read_to_string(format!("{GROUPS}/cgroup.controllers")).unwrap_or_default();
    assert!(controllers.contains("memory"), "this test needs a machine as `cargo xtask vm` starts one");
    let lab = Lab::on_files().with_variable("AGW_SANDBOX_WITHOUT", without);
    let config = lab.file("agw.toml", &format!("[sandbox]\nmode = \"all\"\n[profiles.reader]\n{LIMITS}\n"));
    Sandboxed::with_slots(lab, "2", &["--config", &config.display().to_string()])
}

/// Returns the groups of sandboxes of the worker `pid`.
fn groups_of(pid: u32) -> Vec<String> {
    let prefix = format!("agw-{pid}-");
    let entries = fs::read_dir(GROUPS).unwrap().map(|entry| entry.unwrap().file_name());
    let names = entries.filter_map(|name| name.into_string().ok());
    names.filter(|name| name.starts_with(&prefix)).collect()
}

fn report(job: &Value, task: usize) -> &Value {
    &job["task_results"][task]["sandbox"]
}

#[test]
fn job_that_takes_more_memory_than_its_limit_is_killed_and_says_so() {
    for without in REGIMES {
        let sandboxed = bounded(without);
        // tail keeps the line that it reads.
        let take = |bytes: &str| {
            json!([
                {"task_number": 1, "command": "head", "args": ["-c", bytes, "/dev/zero"]},
                {"task_number": 2, "command": "tail", "args": ["-n", "1"], "input_from_task": 1, "stream": true},
            ])
        };
        sandboxed.submit("little", &[], &take("1M"));
        let job = ended(&sandboxed.lab, &sandboxed.agq, "little");
        assert_eq!(job["status"], "completed", "{job}");
        assert_eq!(report(&job, 1)["enforced"]["limits_memory"], "control group", "{job}");
        sandboxed.submit("much", &[], &take("200M"));
        let job = ended(&sandboxed.lab, &sandboxed.agq, "much");
        assert_eq!(
            (&job["status"], &job["task_results"][1]["signal"]),
            (&"failed".into(), &9.into()),
            "{job}"
        );
        let text = job["task_results"][1]["stderr"].as_str().unwrap();
        assert!(text.contains("was killed by the kernel, which was out of memory"), "{text}");
        let denied = json!(["the job took more than limits.memory = 67108864 bytes of profile reader"]);
        assert_eq!(report(&job, 1)["denied"], denied, "{job}");
    }
}

#[test]
fn job_that_lacks_memory_is_retried_with_more() {
    let lab = Lab::on_files();
    let agq = lab.agq(&[]);
    let _worker = lab.agw(&agq, "w", &["--resource", "memory=1G"]);
    // tail keeps the line that it reads, and the shell reports that tail was killed.
    let script = "head -c 100000000 /dev/zero | tail -n 1 > /dev/null";
    let plan = json!({
        "plan_id": "p", "max_retries": 1, "retry_memory_factor": 4, "requires": {"resources": {"memory": "64M"}},
        "tasks": [{"task_number": 1, "command": "sh", "args": ["-c", script]}],
    });
    lab.submit_plan(&agq, &plan.to_string());
    lab.submit_action(&agq, "p", "a", "[{}]");
    let job = ended(&lab, &agq, "a");
    assert_eq!((&job["status"], &job["attempt"]), (&"completed".into(), &2.into()), "{job}");
    assert_eq!(job["resources"]["memory"], 256 << 20, "{job}");
    let limit = json!({"bytes": 256 << 20, "by": "cgroup"});
    assert_eq!(job["task_results"][0]["memory_limit"], limit, "{job}");
}

#[test]
fn job_with_all_its_processes_does_not_keep_another_job_from_forking() {
    let sandboxed = bounded("namespaces");
    let forks = "my $n = 0; while ($n < 200) { my $p = fork; last unless defined $p; \
        if (!$p) { sleep 1000; exit } $n++ } $| = 1; print qq($n\n); sleep 1000";
    sandboxed.submit(
        "a",
        &[],
        &json!([{"task_number": 1, "command": "perl", "args": ["-e", forks],
        "timeout_secs": 600}]),
    );
    let forked = eventually("the first job has all its processes", || {
        let job = sandboxed.lab.agx(&sandboxed.agq, &["logs", "a"]);
        job.out.trim().strip_prefix("[0] ")?.parse::<u32>().ok()
    });
    // The supervisor has a part of the 16 processes.
    assert!((8..16).contains(&forked), "{forked}");
    let other = sandboxed.run("b", &[], "for i in 1 2 3 4 5 6; do (:) & done; wait; echo done");
    assert_eq!(other["task_results"][0]["stdout"], "done\n", "{other}");
}

#[test]
fn groups_end_with_their_supervisors_and_those_of_a_killed_worker_with_the_next_one() {
    let mut sandboxed = bounded("");
    let first = sandboxed.agw.pid();
    sandboxed.run("a", &[], "echo done");
    assert!(!groups_of(first).is_empty());
    sandboxed.agw.kill();
    let args = ["--config", &sandboxed.lab.path().join("agw.toml").display().to_string()];
    let _second = sandboxed.lab.agw(&sandboxed.agq, "w2", &args);
    assert_eq!(groups_of(first), [""; 0]);
}
