//! Directives of agq to a worker: cancel a job, claim no more, end, prove a capability. No
//! heartbeat is sent in time for a directive, so agq has to call the worker.

use std::fs;

use e2e::{Agq, Agw, Lab, eventually, is_gone};
use serde_json::Value;

use crate::support::{RawConnection, action, ended, only_job, plan};

/// Arguments of agq with a heartbeat interval that is too long for any directive.
const NEVER: &[&str] = &["--heartbeat-interval", "3600"];

/// Returns the processes that a worker has started.
fn children(agw: &Agw) -> Vec<i32> {
    let parent = agw.pid().to_string();
    let entries = fs::read_dir("/proc").unwrap();
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    // The state and the parent follow the name, which may contain any character.
    let is_child = |pid: &i32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let rest = stat.rsplit(')').next().unwrap_or_default().to_owned();
        // The worker always has a watcher.
        !stat.contains("(task-watcher)")
            && rest.split_whitespace().nth(1) == Some(parent.as_str())
            && !rest.trim_start().starts_with('Z')
    };
    pids.filter(is_child).collect()
}

/// Returns a script that runs until the file `go` exists.
fn until(lab: &Lab, go: &str) -> String {
    format!("until [ -e {}/{go} ]; do sleep 0.02; done", lab.path().display())
}

fn id_of(job: &Value) -> &str {
    job["job_id"].as_str().unwrap()
}

fn worker_state(lab: &Lab, agq: &Agq) -> String {
    let workers = lab.agx(agq, &["worker", "list", "--json"]).expect(0).data();
    workers[0]["state"].as_str().unwrap_or("none").to_owned()
}

#[test]
fn cancelled_job_is_killed_and_its_slot_is_free() {
    let lab = Lab::new();
    let agq = lab.agq(NEVER);
    let agw = lab.agw(&agq, "w1", &["--max-concurrent-jobs", "1"]);
    lab.submit_plan(&agq, &plan("long", "sleep", &["1000"]));
    lab.submit_plan(&agq, &plan("short", "true", &[]));
    lab.submit_action(&agq, "long", "a", "[{}]");
    let pid = eventually("the job starts", || children(&agw).pop());
    lab.submit_action(&agq, "short", "b", "[{}]");
    let mut raw = RawConnection::open(&lab, &agq);
    let job = only_job(&lab, &agq, "a");
    assert_eq!(raw.ask(&format!("JOB.CANCEL {}", id_of(&job))), "+OK job cancelled");
    eventually("its process is gone", || is_gone(pid).then_some(()));
    assert_eq!(ended(&lab, &agq, "b")["status"], "completed", "{}", agw.log());
    let job = only_job(&lab, &agq, "a");
    assert_eq!((job["status"].as_str(), job["attempt"].as_u64()), (Some("cancelled"), Some(1)));
    assert!(job["task_results"].is_null(), "nothing was reported: {job}");
}

#[test]
fn cancelled_job_that_will_not_end_is_killed_with_all_that_it_started() {
    let lab = Lab::new();
    let agq = lab.agq(NEVER);
    // A job whose claim is no longer valid gets a shorter grace than ordinary tasks.
    let agw = lab.agw(&agq, "w1", &["--kill-grace", "3600"]);
    let file = lab.path().join("pid");
    let script = format!("trap '' TERM; sleep 1000 & echo $! > {}; wait; wait", file.display());
    lab.submit_plan(&agq, &plan("p", "sh", &["-c", &script]));
    lab.submit_action(&agq, "p", "a", "[{}]");
    let pid = eventually("the job starts", || fs::read_to_string(&file).ok()?.trim().parse::<i32>().ok());
    let job = only_job(&lab, &agq, "a");
    let cancelled = RawConnection::open(&lab, &agq).ask(&format!("JOB.CANCEL {}", id_of(&job)));
    assert_eq!(cancelled, "+OK job cancelled");
    eventually("what it started is gone", || is_gone(pid).then_some(()));
    eventually("nothing of it is left", || children(&agw).is_empty().then_some(()));
}

#[test]
fn drained_worker_stays_and_takes_jobs_again_when_it_is_resumed() {
    let lab = Lab::new();
    let agq = lab.agq(NEVER);
    let agw = lab.agw(&agq, "w1", &[]);
    lab.submit_plan(&agq, &plan("wait", "sh", &["-c", &until(&lab, "go")]));
    lab.submit_plan(&agq, &plan("short", "true", &[]));
    lab.submit_action(&agq, "wait", "a", "[{}]");
    eventually("the job starts", || children(&agw).pop());
    let mut raw = RawConnection::open(&lab, &agq);
    assert_eq!(raw.ask("WORKER.DRAIN w1"), "+OK");
    eventually("the worker hears it", || agw.log().contains("to claim no more jobs").then_some(()));
    assert_eq!(worker_state(&lab, &agq), "draining");
    lab.submit_action(&agq, "short", "b", "[{}]");
    lab.file("go", "");
    assert_eq!(ended(&lab, &agq, "a")["status"], "completed", "what ran goes on");
    assert_eq!(only_job(&lab, &agq, "b")["status"], "pending");
    assert_eq!(raw.ask("WORKER.RESUME w1"), "+OK");
    assert_eq!(ended(&lab, &agq, "b")["status"], "completed", "{}", agw.log());
    assert_eq!(worker_state(&lab, &agq), "active");
    assert_eq!(raw.ask("WORKER.DRAIN w2"), "-ERR Worker not registered: w2");
}

#[test]
fn terminated_worker_finishes_its_job_and_ends_well() {
    let lab = Lab::new();
    let agq = lab.agq(NEVER);
    let mut agw = lab.agw(&agq, "w1", &[]);
    lab.submit_plan(&agq, &plan("wait", "sh", &["-c", &until(&lab, "go")]));
    lab.submit_action(&agq, "wait", "a", "[{}]");
    eventually("the job starts", || children(&agw).pop());
    assert_eq!(RawConnection::open(&lab, &agq).ask("WORKER.TERMINATE w1"), "+OK");
    eventually("the worker hears it", || agw.log().contains("directed this worker to end").then_some(()));
    assert_eq!(action(&lab, &agq, "a")["running"], 1);
    lab.file("go", "");
    assert_eq!(agw.wait().code(), Some(0), "{}", agw.log());
    assert_eq!(action(&lab, &agq, "a")["completed"], 1);
    assert_eq!(worker_state(&lab, &agq), "none", "it unregistered");
}

#[test]
fn capability_is_proved_by_what_it_answers() {
    let lab = Lab::new();
    let agq = lab.agq(NEVER);
    let _agw = lab.agw(&agq, "w1", &["--tools", "echo,sh"]);
    let mut raw = RawConnection::open(&lab, &agq);
    let answer = raw.ask(r#"WORKER.VERIFY echo '{"command":"echo","args":["agx-ocr","0.1.0"]}'"#);
    assert_eq!(answer, r#"+OK output="agx-ocr 0.1.0""#);
    let answer = raw.ask(r#"WORKER.VERIFY echo '{"command":"echo","args":["again"]}' WORKER w1"#);
    assert_eq!(answer, r#"+OK output="again""#);
    let answer = raw.ask(r#"WORKER.VERIFY sh '{"command":"sh","args":["-c","echo broken >&2; exit 3"]}'"#);
    let failed = "-ERR Verification failed: worker w1 ended with exit code 3: broken";
    assert!(answer.starts_with(failed), "{answer}");
    let answer = raw.ask(r#"WORKER.VERIFY agx-ocr '{"command":"agx-ocr","args":["--version"]}'"#);
    assert_eq!(answer, "-ERR No worker has capability: agx-ocr");
}

#[test]
fn progress_is_seen_while_a_job_runs() {
    let lab = Lab::new();
    let agq = lab.agq(NEVER);
    let agw = lab.agw(&agq, "w1", &[]);
    let script = until(&lab, "go");
    let plan = format!(
        r#"{{"plan_id":"p","tasks":[
            {{"task_number":1,"command":"true"}},
            {{"task_number":2,"command":"true"}},
            {{"task_number":3,"command":"sh","args":["-c","{script}"]}},
            {{"task_number":4,"command":"true"}}]}}"#
    );
    lab.submit_plan(&agq, &plan);
    lab.submit_action(&agq, "p", "a", "[{}]");
    let progress = || {
        let job = only_job(&lab, &agq, "a");
        (job["current_task"].as_u64(), job["progress_percent"].as_f64())
    };
    // Progress is reported at most once a second, and the last report must arrive.
    eventually("the third task is seen", || (progress() == (Some(3), Some(50.0))).then_some(()));
    lab.file("go", "");
    assert_eq!(ended(&lab, &agq, "a")["status"], "completed", "{}", agw.log());
}
