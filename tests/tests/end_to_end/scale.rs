//! `agx scale` starts workers when jobs wait for them, and ends idle ones.

use std::{
    fs,
    process::{Child, Stdio},
};

use e2e::{Agq, Lab, Ran, eventually};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::{action, numbered, plan};

/// `--up`: starts AGX_SCALE_COUNT workers, and records their process ids.
const UP: &str = "i=0; while [ $i -lt $AGX_SCALE_COUNT ]; do i=$((i+1)); n=$(($(wc -l < pids)+1)); \
    agw --worker-id worker-$n --max-concurrent-jobs 1 2> worker-$n.log & echo $! >> pids; done";
/// `--down`: ends the worker with the number in its name.
const DOWN: &str = "echo \"$AGX_SCALE_WORKER_ID on $AGX_SCALE_WORKER_HOST\" >> ended; \
    kill $(sed -n ${AGX_SCALE_WORKER_ID#worker-}p pids)";

/// Autoscaler under test. The drop ends the autoscaler and the workers that it has started.
struct Autoscaler<'l>(Child, &'l Lab);

impl<'l> Autoscaler<'l> {
    fn start(lab: &'l Lab, agq: &Agq, args: &[&str]) -> Self {
        lab.file("pids", "");
        let path = format!("{}:{}", lab.bin().display(), std::env::var("PATH").unwrap());
        let mut agx = lab.command("agx");
        agx.env("AGQ_ADDR", agq.address()).env("PATH", path).args(["scale", "--json"]).args(args);
        let log = |name: &str| fs::File::create(lab.path().join(name)).unwrap();
        agx.stdout(log("scale.json")).stderr(log("scale.log")).stdin(Stdio::null());
        Self(agx.spawn().unwrap(), lab)
    }

    fn steps(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.1.path().join("scale.json")).unwrap();
        let documents = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        documents.map(|document| document["data"].clone()).collect()
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.0.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }
}

impl Drop for Autoscaler<'_> {
    fn drop(&mut self) {
        // The autoscaler and its workers may have ended already.
        let _ended = self.0.kill();
        let _ended = self.0.wait();
        let pids = fs::read_to_string(self.1.path().join("pids")).unwrap_or_default();
        for pid in pids.lines().filter_map(|line| Pid::from_raw(line.parse().ok()?)) {
            let _ended = kill_process(pid, Signal::TERM);
        }
    }
}

#[test]
fn scale_starts_workers_for_waiting_jobs_and_ends_them_when_they_are_idle() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let script = format!("until [ -e {}/go ]; do sleep 0.02; done", lab.path().display());
    lab.submit_plan(&agq, &plan("p", "sh", &["-c", &script]));
    lab.submit_action(&agq, "p", "a", &numbered(5));
    let mut scale = Autoscaler::start(
        &lab,
        &agq,
        &[
            "--up",
            UP,
            "--down",
            DOWN,
            "--min",
            "1",
            "--max",
            "3",
            "--interval",
            "0.05",
            "--up-after",
            "0",
            "--down-after",
            "0.1",
        ],
    );
    let running = || action(&lab, &agq, "a")["running"].as_u64();
    eventually("three workers run a job each", || (running() == Some(3)).then_some(()));
    lab.file("go", "");
    eventually("all jobs complete", || (action(&lab, &agq, "a")["completed"] == 5).then_some(()));
    let ended = eventually("two workers end", || {
        let ended = fs::read_to_string(lab.path().join("ended")).unwrap_or_default();
        (ended.lines().count() == 2).then_some(ended)
    });
    assert!(ended.lines().all(|line| line.starts_with("worker-") && line.contains(" on ")), "{ended}");
    let workers = eventually("one worker is left", || {
        let workers = lab.agx(&agq, &["worker", "list", "--json"]).expect(0).data();
        (workers.as_array().unwrap().len() == 1).then_some(workers)
    });
    assert_eq!(workers[0]["state"], "active");
    scale.signal(Signal::INT);
    assert_eq!(scale.0.wait().unwrap().code(), Some(0));
    let steps = scale.steps();
    let started: u64 = steps
        .iter()
        .filter(|step| step["decision"] == "up")
        .map(|step| step["wanted"].as_u64().unwrap() - step["workers"].as_u64().unwrap())
        .sum();
    assert_eq!(started, 3, "{steps:#?}");
    let action = action(&lab, &agq, "a");
    assert_eq!(action["completed"], 5, "no job was cut: {action}");
}

#[test]
fn scale_once_reports_a_command_that_fails_and_dry_run_runs_none() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    lab.submit_plan(&agq, &plan("p", "true", &[]));
    let scale = |args: &[&str]| lab.agx(&agq, &[&["scale", "--max", "2", "--once"], args].concat());
    let idle = scale(&["--up", "touch started"]).expect(0);
    assert_eq!(idle.out, "nothing to do with 0 workers: no job lacks a worker\n");
    lab.submit_action(&agq, "p", "a", &numbered(2));
    let dry = scale(&["--up", "touch started", "--dry-run"]).expect(0);
    assert_eq!(dry.out, "would start 1 worker, 1 in all: 2 jobs wait for a worker with room\n");
    let failed = scale(&["--up", "echo no quota; exit 7"]).expect(1);
    assert_eq!(failed.out, "failed to start 1 worker: 2 jobs wait for a worker with room\n");
    assert!(failed.err.starts_with("no quota\nagx: --up exited with code 7\n"), "{}", failed.err);
    assert!(!lab.path().join("started").exists());
    let done = scale(&["--up", "env | grep ^AGX_SCALE_ | sort > started"]).expect(0);
    assert_eq!(done.out, "started 1 worker, 1 in all: 2 jobs wait for a worker with room\n");
    assert_eq!(
        fs::read_to_string(lab.path().join("started")).unwrap(),
        "AGX_SCALE_COUNT=1\nAGX_SCALE_REASON=2 jobs wait for a worker with room\nAGX_SCALE_WAITING=2\n\
         AGX_SCALE_WANTED=1\nAGX_SCALE_WORKERS=0\n"
    );
    let wrong = scale(&["--up", "true", "--min", "3"]).expect(2);
    assert!(wrong.err.starts_with("agx: --min 3 is more than --max 2\n"), "{}", wrong.err);
}

#[test]
fn worker_takes_jobs_again_when_the_command_that_ends_it_fails() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let _worker = lab.agw(&agq, "w", &[]);
    let args = ["scale", "--max", "2", "--once", "--down", "false", "--json"];
    let failed: Ran = lab.agx(&agq, &args).expect(1);
    let step = failed.data();
    assert_eq!((&step["decision"], &step["outcome"]), (&"down".into(), &"failed".into()), "{step}");
    assert!(failed.err.contains("--down exited with code 1"), "{}", failed.err);
    eventually("the worker takes jobs again", || {
        let workers = lab.agx(&agq, &["worker", "list", "--json"]).expect(0).data();
        (workers[0]["state"] == "active").then_some(())
    });
}

#[test]
fn worker_that_a_killed_scaler_has_drained_is_resumed_for_jobs_and_otherwise_ended() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    lab.submit_plan(&agq, &plan("p", "true", &[]));
    let _worker = lab.agw(&agq, "w", &[]);
    let worker = || lab.agx(&agq, &["worker", "list", "--json"]).expect(0).data()[0].clone();
    // The command ends with the directory of the test.
    let hangs = "touch began; while [ -e began ]; do sleep 0.02; done";
    let leave_drained = || {
        let args = ["--max", "2", "--down", hangs, "--interval", "0.05", "--down-after", "0"];
        let mut scale = Autoscaler::start(&lab, &agq, &args);
        let began = lab.path().join("began");
        eventually("the command begins", || began.exists().then_some(()));
        scale.0.kill().unwrap();
        scale.0.wait().unwrap();
        fs::remove_file(began).unwrap();
        let left = worker();
        assert_eq!((&left["state"], &left["drained"]["by"]), (&"draining".into(), &"agx-scale".into()));
    };
    let scale_once = || {
        let args = ["scale", "--max", "2", "--once", "--down", "touch ended", "--command-timeout", "0.1"];
        lab.agx(&agq, &args).expect(0).out
    };
    leave_drained();
    lab.submit_action(&agq, "p", "a", &numbered(1));
    let resumed = eventually("the worker is resumed", || {
        let out = scale_once();
        (!out.starts_with("nothing to do")).then_some(out)
    });
    assert!(resumed.starts_with("resumed w on ") && resumed.ends_with("jobs wait for a worker with room\n"));
    eventually("the job completes", || (action(&lab, &agq, "a")["completed"] == 1).then_some(()));

    leave_drained();
    let ended = eventually("the worker is ended", || {
        let out = scale_once();
        (!out.starts_with("nothing to do")).then_some(out)
    });
    assert!(ended.starts_with("ended w on ") && lab.path().join("ended").exists(), "{ended}");

    // A worker that an operator has drained stays.
    lab.agx(&agq, &["worker", "drain", "w"]).expect(0);
    assert_eq!(worker()["drained"], Value::Null);
    assert!(scale_once().starts_with("nothing to do with 0 workers"));
}
