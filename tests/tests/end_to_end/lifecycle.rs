//! Lifecycle of jobs: exit codes with a meaning, timeouts, pools, queues, quarantine, retention.

use e2e::{Agq, Lab, eventually};
use serde_json::Value;

use crate::support::{RawConnection, action, ended, only_job};

/// Sends a command and parses its JSON reply.
fn json(raw: &mut RawConnection, command: &str) -> Value {
    raw.send(&format!("{command}\n"));
    serde_json::from_str(&raw.bulk()).unwrap()
}

/// Returns a plan with one shell script and the further fields `more`.
fn script(id: &str, script: &str, more: &str) -> String {
    let task = format!(r#"{{"task_number":1,"command":"sh","args":["-c","{script}"]}}"#);
    format!(r#"{{"plan_id":"{id}","tasks":[{task}]{more}}}"#)
}

fn submit(lab: &Lab, agq: &Agq, plan: &str, action: &str) {
    lab.submit_plan(agq, plan);
    let mut raw = RawConnection::open(lab, agq);
    let reply = raw.ask(&format!("ACTION.SUBMIT '{action}'"));
    assert!(reply.starts_with("+OK"), "{reply}");
}

#[test]
fn exit_codes_ask_for_a_retry_for_later_or_for_none() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let _agw = lab.agw(&agq, "w", &[]);
    let retries = r#","max_retries":5"#;
    submit(
        &lab,
        &agq,
        &script("usage", "exit 64", retries),
        r#"{"plan_id":"usage","action_id":"usage","inputs":[{}]}"#,
    );
    submit(
        &lab,
        &agq,
        &script("later", "exit 75", ""),
        r#"{"plan_id":"later","action_id":"later","inputs":[{}]}"#,
    );
    let job = ended(&lab, &agq, "usage");
    assert_eq!((job["status"].as_str(), job["attempt"].as_u64()), (Some("failed"), Some(1)));
    let job = eventually("the task says later", || {
        Some(only_job(&lab, &agq, "later")).filter(|job| job["state"] == "scheduled")
    });
    assert_eq!((job["status"].as_str(), job["attempt"].as_u64()), (Some("pending"), Some(1)));
    assert!(job["run_at"].is_string());
}

#[test]
fn job_that_takes_too_long_fails_is_killed_and_its_worker_is_flagged() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let _agw = lab.agw(&agq, "w", &["--max-concurrent-jobs", "1"]);
    let plan = script("long", "sleep 1000", r#","timeout_secs":1"#);
    submit(&lab, &agq, &plan, r#"{"plan_id":"long","action_id":"long","inputs":[{}]}"#);
    let job = ended(&lab, &agq, "long");
    assert_eq!(job["error"], "the job took longer than its 1 seconds");
    let mut raw = RawConnection::open(&lab, &agq);
    eventually("the worker is flagged", || {
        (json(&mut raw, "WORKER.GET w")["timed_out_jobs"] == 1).then_some(())
    });
    // The process was killed, so the only slot of the worker is free again.
    submit(&lab, &agq, &script("next", "true", ""), r#"{"plan_id":"next","action_id":"next","inputs":[{}]}"#);
    assert_eq!(ended(&lab, &agq, "next")["status"], "completed");
}

#[test]
fn popped_job_that_nobody_starts_goes_to_another() {
    let lab = Lab::new();
    let agq = lab.agq(&["--start-timeout", "0.2"]);
    lab.submit_plan(&agq, &script("p", "true", ""));
    lab.submit_action(&agq, "p", "a", "[{}]");
    // This client ignores the reply, and keeps the connection.
    let mut forgetful = RawConnection::open(&lab, &agq);
    forgetful.send("BRPOP queue:ready 0\n");
    assert!(forgetful.bulk().contains(r#""attempt":1"#));
    let mut other = RawConnection::open(&lab, &agq);
    other.send("BRPOP queue:ready 0\n");
    assert!(other.bulk().contains(r#""attempt":2"#));
}

#[test]
fn heartbeat_that_names_its_jobs_keeps_them() {
    let lab = Lab::new();
    let agq = lab.agq(&["--start-timeout", "0.2"]);
    lab.submit_plan(&agq, &script("p", "true", ""));
    lab.submit_action(&agq, "p", "a", "[{}]");
    lab.submit_action(&agq, "p", "b", "[{}]");
    let mut worker = RawConnection::open(&lab, &agq);
    assert!(worker.ask(r#"WORKER.REGISTER '{"worker_id":"w","capabilities":["sh"]}'"#).starts_with("+OK"));
    worker.send("RPOP queue:ready\n");
    let kept = worker.bulk().split('"').nth(3).unwrap().to_owned();
    assert_eq!(worker.ask(&format!(r#"WORKER.HEARTBEAT w '{{"active_job_ids":["{kept}"]}}'"#)), "+OK");
    worker.send("RPOP queue:ready\n");
    let dropped = worker.bulk().split('"').nth(3).unwrap().to_owned();
    eventually("the other goes back", || (action(&lab, &agq, "b")["pending"] == 1).then_some(()));
    assert_eq!(action(&lab, &agq, "a")["running"], 1);
    // The worker still names the job, so the reply directs it to cancel the job.
    let beat = format!(r#"WORKER.HEARTBEAT w '{{"active_job_ids":["{kept}","{dropped}"]}}'"#);
    assert_eq!(worker.ask(&beat), format!(r#"+OK orders={{"cancel":["{dropped}"]}}"#));
}

#[test]
fn pools_and_queues_choose_the_worker() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let _plain = lab.agw(&agq, "plain", &[]);
    let _gpu = lab.agw(&agq, "gpu", &["--tag", "gpu=true", "--tag", "zone=eu"]);
    let _side = lab.agw(&agq, "side", &["--queues", "side"]);
    let requires = r#","requires":{"tags":["gpu"],"labels":{"zone":"eu"}}"#;
    for n in 0..3 {
        let (pool, queue) = (format!("pool-{n}"), format!("queue-{n}"));
        let act = |id: &str, more: &str| {
            format!(r#"{{"plan_id":"{id}","action_id":"{id}","inputs":[{{}}]{more}}}"#)
        };
        submit(&lab, &agq, &script(&pool, "true", requires), &act(&pool, ""));
        submit(&lab, &agq, &script(&queue, "true", ""), &act(&queue, r#","queue":"side""#));
        assert_eq!(ended(&lab, &agq, &pool)["worker_id"], "gpu");
        assert_eq!(ended(&lab, &agq, &queue)["worker_id"], "side");
    }
    let act = r#"{"plan_id":"nowhere","action_id":"nowhere","inputs":[{}]}"#;
    submit(&lab, &agq, &script("nowhere", "true", r#","requires":{"labels":{"zone":"us"}}"#), act);
    let job = only_job(&lab, &agq, "nowhere");
    let explained = json(
        &mut RawConnection::open(&lab, &agq),
        &format!("JOB.EXPLAIN {}", job["job_id"].as_str().unwrap()),
    );
    let reason = explained["reason"].as_str().unwrap();
    assert!(
        reason.starts_with("No worker has all that it needs; ") && reason.ends_with("lacks label zone=us."),
        "{reason}"
    );
    assert_eq!(explained["waits_for"]["labels"]["zone"], "us");
}

#[test]
fn higher_priority_runs_first_and_what_is_for_later_waits() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    lab.submit_plan(&agq, &script("p", "true", ""));
    let mut raw = RawConnection::open(&lab, &agq);
    for (id, more) in
        [("low", r#""priority":-7"#), ("high", r#""priority":7"#), ("soon", r#""delay_secs":0.1"#)]
    {
        let reply = raw
            .ask(&format!(r#"ACTION.SUBMIT '{{"action_id":"{id}","plan_id":"p","inputs":[{{}}],{more}}}'"#));
        assert!(reply.starts_with("+OK"), "{reply}");
    }
    for expected in ["high", "soon", "low"] {
        if expected == "soon" {
            eventually("its time comes", || (raw.ask("LLEN queue:ready") == ":2").then_some(()));
        }
        raw.send("RPOP queue:ready\n");
        assert!(raw.bulk().contains(&format!(r#""action_id":"{expected}""#)), "{expected}");
    }
}

/// A worker on a bare connection, which ends each job with a given status.
struct Hand {
    raw: RawConnection,
}

impl Hand {
    fn register(lab: &Lab, agq: &Agq, id: &str) -> Self {
        let mut raw = RawConnection::open(lab, agq);
        let reply = raw.ask(&format!(
            r#"WORKER.REGISTER '{{"worker_id":"{id}","capabilities":["sh"],"instance":"{id}"}}'"#
        ));
        assert!(reply.starts_with("+OK"), "{reply}");
        Self { raw }
    }

    /// Claims a job and ends it with `status`. Returns false if there was no job.
    fn work(&mut self, status: &str) -> bool {
        self.raw.send("RPOP queue:ready\n");
        let head = self.raw.line();
        if head == "$-1" {
            return false;
        }
        let job = self.raw.line().split('"').nth(3).unwrap().to_owned();
        assert_eq!(self.raw.ask(&format!(r#"JOB.UPDATE {job} '{{"status":"{status}"}}'"#)), "+OK");
        true
    }
}

#[test]
fn worker_that_fails_far_more_often_than_others_gets_no_more_jobs_until_it_is_resumed() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    lab.submit_plan(&agq, &script("p", "true", ""));
    lab.submit_action(&agq, "p", "a", &crate::support::numbered(100));
    let (mut good, mut bad) = (Hand::register(&lab, &agq, "good"), Hand::register(&lab, &agq, "bad"));
    assert!((0..20).all(|_| good.work("completed")));
    assert!((0..20).all(|_| bad.work("failed")));
    assert!(!bad.work("failed"), "it gets no more");
    assert!(good.work("completed"));
    let mut raw = RawConnection::open(&lab, &agq);
    let shown = json(&mut raw, "WORKER.GET bad");
    assert_eq!(shown["state"], "quarantined");
    assert_eq!(
        shown["quarantine_reason"],
        "20 of its last 20 jobs of 'p' failed, 0 of 20 on the other workers"
    );
    assert_eq!(raw.ask("WORKER.RESUME bad"), "+OK");
    assert!(bad.work("completed"));
}

#[test]
fn plan_that_fails_wherever_it_runs_quarantines_nobody() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let mut raw = RawConnection::open(&lab, &agq);
    for plan in ["sound", "typo"] {
        lab.submit_plan(&agq, &script(plan, "true", ""));
    }
    let (mut good, mut other) = (Hand::register(&lab, &agq, "good"), Hand::register(&lab, &agq, "other"));
    lab.submit_action(&agq, "sound", "a", &crate::support::numbered(25));
    assert!((0..25).all(|_| good.work("completed")));
    lab.submit_action(&agq, "typo", "b", &crate::support::numbered(25));
    assert!((0..25).all(|_| other.work("failed")), "nobody else ran the plan");
    assert_eq!(json(&mut raw, "WORKER.GET other")["state"], "active");
}

#[test]
fn ended_jobs_are_forgotten_after_a_time_and_beyond_a_count() {
    let lab = Lab::new();
    let agq = lab.agq(&["--keep-ended-count", "3"]);
    lab.submit_plan(&agq, &script("p", "true", ""));
    lab.submit_action(&agq, "p", "a", &crate::support::numbered(10));
    let mut hand = Hand::register(&lab, &agq, "w");
    assert!((0..10).all(|_| hand.work("completed")));
    eventually("only three are kept", || (hand.raw.ask("JOB.LIST a") == "*3").then_some(()));
}

#[test]
fn old_actions_are_forgotten_with_their_last_job() {
    let lab = Lab::new();
    let agq = lab.agq(&["--keep-ended", "0.05"]);
    lab.submit_plan(&agq, &script("p", "true", ""));
    lab.submit_action(&agq, "p", "a", "[{}]");
    let mut hand = Hand::register(&lab, &agq, "w");
    assert!(hand.work("completed"));
    eventually("nothing is left", || (hand.raw.ask("EXISTS action:a") == ":0").then_some(()));
    assert_eq!(hand.raw.ask("JOB.LIST a"), "*0");
}

#[test]
fn shape_of_brpop_can_be_set_for_clients_that_never_introduce_themselves() {
    let lab = Lab::new();
    for (shape, expected) in [("pair", "*2"), ("bulk", "$1")] {
        let agq = lab.agq(&["--brpop-reply", shape]);
        let mut raw = RawConnection::open(&lab, &agq);
        assert_eq!(raw.ask("LPUSH list v"), ":1");
        assert_eq!(raw.ask("BRPOP list 1"), expected, "{shape}");
    }
}

#[test]
fn client_that_goes_away_behind_a_waiting_pop_loses_nothing() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let mut gone = RawConnection::open(&lab, &agq);
    gone.send("BRPOP list 0\nPING\nPING\n");
    let mut other = RawConnection::open(&lab, &agq);
    eventually("it waits", || (other.ask("CLIENT ID") == ":2").then_some(()));
    drop(gone);
    let mut watcher = RawConnection::open(&lab, &agq);
    eventually("agq has noticed", || {
        watcher.send("CLIENT LIST\n");
        (!watcher.bulk().contains("id=1 ")).then_some(())
    });
    assert_eq!(other.ask("LPUSH list v"), ":1");
    assert_eq!(other.ask("LLEN list"), ":1");
}

#[test]
fn repeated_submission_is_answered_again_after_its_jobs_were_forgotten_and_its_plan_deleted() {
    let lab = Lab::new();
    let agq = lab.agq(&["--keep-ended-count", "1"]);
    lab.submit_plan(&agq, &script("p", "true", ""));
    let mut hand = Hand::register(&lab, &agq, "w");
    let act = r#"ACTION.SUBMIT '{"action_id":"a","plan_id":"p","inputs":[{"n":1},{"n":2},{"n":3}]}'"#;
    assert_eq!(hand.raw.ask(act), "+OK action_id=a jobs_created=3");
    assert!((0..3).all(|_| hand.work("completed")));
    eventually("two are forgotten", || {
        (json(&mut hand.raw, "METRICS json")["jobs"]["completed"] == 1).then_some(())
    });
    assert_eq!(hand.raw.ask(act), "+OK action_id=a jobs_created=3");
    assert_eq!(hand.raw.ask("PLAN.DELETE p"), ":1");
    assert_eq!(hand.raw.ask(act), "+OK action_id=a jobs_created=3");
    let other = r#"ACTION.SUBMIT '{"action_id":"a","plan_id":"p","inputs":[{"n":1}]}'"#;
    assert_eq!(hand.raw.ask(other), "-ERR Action already exists with other content: a");
    assert_eq!(hand.raw.ask(&other.replace("\"a\"", "\"b\"")), "-ERR Plan not found: p");
}

#[test]
fn action_that_is_closed_without_inputs_is_over() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    lab.submit_plan(&agq, &script("p", "true", ""));
    let mut raw = RawConnection::open(&lab, &agq);
    assert_eq!(
        raw.ask(r#"ACTION.SUBMIT '{"action_id":"a","plan_id":"p","open":true}'"#),
        "+OK action_id=a jobs_created=0"
    );
    assert!(json(&mut raw, "ACTION.STATUS a")["completed_jobs_at"].is_null());
    assert_eq!(raw.ask("ACTION.CLOSE a"), "+OK");
    assert!(json(&mut raw, "ACTION.STATUS a")["completed_jobs_at"].is_string());
}

#[test]
fn action_that_is_closed_without_inputs_is_removed() {
    let lab = Lab::new();
    let agq = lab.agq(&["--keep-ended", "1"]);
    lab.submit_plan(&agq, &script("p", "true", ""));
    let mut raw = RawConnection::open(&lab, &agq);
    assert_eq!(
        raw.ask(r#"ACTION.SUBMIT '{"action_id":"a","plan_id":"p","open":true}'"#),
        "+OK action_id=a jobs_created=0"
    );
    assert_eq!(raw.ask("ACTION.CLOSE a"), "+OK");
    eventually("its end", || (RawConnection::open(&lab, &agq).ask("ACTION.STATUS a") == "$-1").then_some(()));
}

#[test]
fn job_that_is_cancelled_and_tried_again_runs_once_at_a_time() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let _agw = lab.agw(&agq, "w", &["--max-concurrent-jobs", "2"]);
    let script_text = "echo $$ >> pids; exec sleep 1000";
    let plan = script("p", script_text, "")
        .replace(r#""args""#, &format!(r#""cwd":"{}","args""#, lab.path().display()));
    submit(&lab, &agq, &plan, r#"{"plan_id":"p","action_id":"a","inputs":[{}]}"#);
    let pids = || -> Vec<u32> {
        let text = std::fs::read_to_string(lab.path().join("pids")).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    };
    eventually("it runs", || (pids().len() == 1).then_some(()));
    let job = only_job(&lab, &agq, "a")["job_id"].as_str().unwrap().to_owned();
    let mut raw = RawConnection::open(&lab, &agq);
    raw.send(&format!("JOB.CANCEL {job}\nJOB.RETRY {job} FORCE\n"));
    assert_eq!((raw.line().as_str(), raw.line().as_str()), ("+OK job cancelled", "+OK job re-queued"));
    eventually("it runs again", || (pids().len() == 2).then_some(()));
    eventually("the first is gone", || e2e::is_gone(pids()[0].cast_signed()).then_some(()));
    assert_eq!(raw.ask(&format!("JOB.CANCEL {job}")), "+OK job cancelled");
    eventually("the second too", || e2e::is_gone(pids()[1].cast_signed()).then_some(()));
}
