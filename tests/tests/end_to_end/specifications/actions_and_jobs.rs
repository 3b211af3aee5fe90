//! The AGQ API spec §3 and §4: actions and jobs.

use e2e::{Agq, Lab};

use super::{converse, hold, says};
use crate::support::RawConnection;

const PLAN: &str = r#"> PLAN.SUBMIT '{"plan_id":"p","tasks":[{"task_number":1,"command":"sort"}]}'
    < +OK plan_id=p"#;

/// Returns a connection that holds the only job of an action, and the job id.
fn with_a_claim(lab: &Lab, agq: &Agq) -> (RawConnection, String) {
    let mut raw = RawConnection::open(lab, agq);
    hold(&mut raw, PLAN);
    hold(
        &mut raw,
        "> ACTION.SUBMIT '{\"action_id\":\"a\",\"plan_id\":\"p\",\"inputs\":[{}]}'\n< +OK action_id=a jobs_created=1",
    );
    raw.send("RPOP queue:ready\n");
    let document = raw.bulk();
    let job = document.split('"').nth(3).unwrap().to_owned();
    (raw, job)
}

/// Plays a conversation about a job that the connection holds. `JOB` stands for the job id.
fn about_a_claim(script: &str) {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let (mut raw, job) = with_a_claim(&lab, &agq);
    // In the names of commands, a point follows JOB.
    let script = script.replace("JOB.", "job.").replace("JOB", &job).replace("job.", "JOB.");
    hold(&mut raw, &script);
}

says! {
    action_submit_without_its_plan: r#"
        > ACTION.SUBMIT '{"plan_id":"nothing","inputs":[{}]}'
        < -ERR Plan not found: nothing"#
    action_submit_invalid_schema: r#"
        > PLAN.SUBMIT '{"plan_id":"p","tasks":[{"task_number":1,"command":"sort","args":["{{input.file}}"]}]}'
        < +OK plan_id=p
        > ACTION.SUBMIT '{"plan_id":"p","inputs":[]}'
        < -ERR Invalid action schema: inputs is empty: …
        > ACTION.SUBMIT '{"plan_id":"p","inputs":[{"fil":"a"}]}'
        < -ERR Invalid action schema: inputs[0] has no field 'file', which task 1 args[0] of the plan uses
        > ACTION.SUBMIT '{"plan_id":"p","inputs":[{"file":"a"}],"priority":101}'
        < -ERR Invalid action schema: priority is 101: use -100 to 100"#
    job_status_of_nothing: "
        > JOB.STATUS job-nothing
        < $-1"
    job_list_of_nothing: "
        > JOB.LIST action-nothing
        < *0"
    job_update_of_nothing: r#"
        > JOB.UPDATE job-nothing '{"status":"running"}'
        < -ERR Job not found: job-nothing"#
    action_status_of_nothing: "
        > ACTION.STATUS action-nothing
        < $-1"
}

#[test]
fn action_submit_ok_and_its_idempotency() {
    let script = format!(
        r#"{PLAN}
        > ACTION.SUBMIT '{{"action_id":"action-001","plan_id":"p","inputs":[{{"file":"data1.txt"}},{{"file":"data2.txt"}},{{"file":"data3.txt"}}]}}'
        < +OK action_id=action-001 jobs_created=3
        > ACTION.SUBMIT '{{"action_id":"action-001","plan_id":"p","inputs":[{{"file":"data1.txt"}},{{"file":"data2.txt"}},{{"file":"data3.txt"}}]}}'
        < +OK action_id=action-001 jobs_created=3
        > ACTION.SUBMIT '{{"action_id":"action-001","plan_id":"p","inputs":[{{"file":"other.txt"}}]}}'
        < -ERR Action already exists with other content: action-001
        > JOB.LIST action-001
        < *3
        < $…
        < job-…
        < $…
        < job-…
        < $…
        < job-…
        > JOB.LIST action-001 failed
        < *0
        > ACTION.STATUS action-001
        < $…
        < {{"action_id":"action-001","plan_id":"p","total_jobs":3,"pending":3,"running":0,"completed":0,"failed":0,"dead":0,…"completed_jobs_at":null}}"#
    );
    converse(&[], &script);
}

#[test]
fn action_submit_too_many_inputs() {
    let action =
        |inputs: &str| format!(r#"> ACTION.SUBMIT '{{"action_id":"a","plan_id":"p","inputs":[{inputs}]}}'"#);
    let (edge, past) = (action("{},{}"), action("{},{},{}"));
    let script =
        format!("{PLAN}\n{past}\n< -ERR Too many inputs: max 2\n{edge}\n< +OK action_id=a jobs_created=2");
    converse(&["--max-inputs", "2"], &script);
}

#[test]
fn job_update_from_running_to_completed_and_what_status_shows() {
    about_a_claim(
        r#"
        > JOB.UPDATE JOB '{"status":"running","started_at":"2025-11-17T10:00:05Z","current_task":1}'
        < +OK
        > JOB.UPDATE JOB '{"current_task":1,"progress_percent":40}'
        < +OK
        > JOB.UPDATE JOB '{"status":"completed","completed_at":"2025-11-17T10:00:15Z","task_results":[{"task_number":1,"command":"sort","exit_code":0,"stdout":"line1\nline2\n","stderr":"","duration_ms":120}]}'
        < +OK
        > JOB.UPDATE JOB '{"status":"running"}'
        < -ERR Invalid status transition: completed -> running
        > JOB.STATUS JOB
        < $…
        < {"job_id":"JOB","action_id":"a","plan_id":"p","status":"completed",…"created_at":"…","started_at":"…","completed_at":"…",…"exit_code":0,"stdout":"line1\nline2\n",…"task_results":[{"task_number":1,"command":"sort","exit_code":0,"stdout":"line1\nline2\n","stderr":"","duration_ms":120}]}
        "#,
    );
}

#[test]
fn job_update_is_for_its_worker_alone() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let (_holder, job) = with_a_claim(&lab, &agq);
    let mut other = RawConnection::open(&lab, &agq);
    let refused = other.ask(&format!(r#"JOB.UPDATE {job} '{{"status":"completed"}}'"#));
    assert!(
        refused.starts_with("-ERR Worker connection:") && refused.contains(" cannot update job claimed by "),
        "{refused}"
    );
}

#[test]
fn job_retry_and_its_errors() {
    about_a_claim(
        r#"
        > JOB.RETRY JOB
        < -ERR Job not in failed status
        > JOB.UPDATE JOB '{"status":"failed","failed_at":"2025-11-17T10:00:10Z","error":"Task 2 timed out","task_results":[]}'
        < +OK
        > JOB.LIST a failed
        < *1
        < $…
        < job-…
        > JOB.RETRY JOB
        < +OK job re-queued
        > JOB.RETRY nothing
        < -ERR Job not found: nothing
        "#,
    );
}

#[test]
fn job_retry_of_a_dead_job_needs_force() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let mut raw = RawConnection::open(&lab, &agq);
    hold(
        &mut raw,
        r#"
        > PLAN.SUBMIT '{"plan_id":"p","max_retries":1,"tasks":[{"task_number":1,"command":"sort"}]}'
        < +OK plan_id=p
        > ACTION.SUBMIT '{"action_id":"a","plan_id":"p","inputs":[{}]}'
        < +OK action_id=a jobs_created=1
        "#,
    );
    let mut job = String::new();
    for _attempt in 0..2 {
        raw.send("BRPOP queue:ready 60\n");
        job = raw.bulk().split('"').nth(3).unwrap().to_owned();
        assert_eq!(raw.ask(&format!(r#"JOB.UPDATE {job} '{{"status":"failed"}}'"#)), "+OK");
    }
    assert_eq!(raw.ask(&format!("JOB.RETRY {job}")), "-ERR Max retries exceeded");
    assert_eq!(raw.ask(&format!("JOB.RETRY {job} FORCE")), "+OK job re-queued");
}

#[test]
fn job_cancel_and_action_cancel_and_retry() {
    about_a_claim(
        r#"
        > JOB.CANCEL JOB
        < +OK job cancelled
        > JOB.CANCEL JOB
        < +OK job cancelled
        > JOB.UPDATE JOB '{"status":"completed"}'
        < -ERR Invalid status transition: cancelled -> completed
        > JOB.CANCEL nothing
        < -ERR Job not found: nothing
        > ACTION.CANCEL nothing
        < -ERR Action not found: nothing
        > ACTION.CANCEL a
        < +OK cancelled=0
        > ACTION.RETRY a
        < +OK retried=0
        > ACTION.LIST
        < *1
        < $1
        < a
        > ACTION.ADD a '[{}]'
        < -ERR Action is not open: a
        "#,
    );
}

#[test]
fn brpop_gives_the_job_with_its_plan_and_input() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let mut raw = RawConnection::open(&lab, &agq);
    hold(&mut raw, PLAN);
    hold(
        &mut raw,
        "> ACTION.SUBMIT '{\"action_id\":\"a\",\"plan_id\":\"p\",\"inputs\":[{\"file\":\"x\"}]}'\n< +OK action_id=a jobs_created=1",
    );
    raw.send("BRPOP queue:ready 5\n");
    let job: serde_json::Value = serde_json::from_str(&raw.bulk()).unwrap();
    assert!(job["job_id"].as_str().unwrap().starts_with("job-"));
    assert_eq!((&job["plan_id"], &job["action_id"], &job["attempt"]), (&"p".into(), &"a".into(), &1.into()));
    assert_eq!((&job["plan"]["tasks"][0]["command"], &job["inputs"]["file"]), (&"sort".into(), &"x".into()));
    hold(&mut raw, "> BRPOP queue:ready 0.01\n< $-1");
}

#[test]
fn claim_is_shown_with_its_worker_for_as_long_as_it_holds() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let mut raw = RawConnection::open(&lab, &agq);
    hold(&mut raw, PLAN);
    hold(
        &mut raw,
        r#"
        > WORKER.REGISTER '{"worker_id":"worker-001","capabilities":["sort"]}'
        < +OK worker_id=worker-001 heartbeat_interval=30
        > ACTION.SUBMIT '{"action_id":"a","plan_id":"p","inputs":[{}]}'
        < +OK action_id=a jobs_created=1
        "#,
    );
    raw.send("BRPOP queue:ready 5\n");
    let job = raw.bulk().split('"').nth(3).unwrap().to_owned();
    hold(
        &mut raw,
        &r#"
        > JOB.UPDATE JOB '{"status":"running","worker_id":"worker-001","started_at":"2025-11-17T10:00:00Z"}'
        < +OK
        > GET job:JOB:worker
        < $10
        < worker-001
        > TTL job:JOB:worker
        < :3…
        > WORKER.UNREGISTER worker-001
        < +OK
        > GET job:JOB:worker
        < $-1
        > LLEN queue:ready
        < :1
        "#
        .replace("JOB.UPDATE", "job.update")
        .replace("JOB", &job)
        .replace("job.update", "JOB.UPDATE"),
    );
}

#[test]
fn action_for_later_waits_in_queue_scheduled() {
    let script = format!(
        r#"{PLAN}
        > ACTION.SUBMIT '{{"action_id":"a","plan_id":"p","inputs":[{{}},{{}}],"delay_secs":1000}}'
        < +OK action_id=a jobs_created=2
        > QUEUE.STATS queue:scheduled
        < $…
        < {{"queue:scheduled":{{"length":2,"next_job_due_in_seconds":…}}}}
        > LLEN queue:ready
        < :0"#
    );
    converse(&[], &script);
}

#[test]
fn last_job_sets_when_the_action_was_over() {
    about_a_claim(
        r#"
        > JOB.UPDATE JOB '{"status":"completed"}'
        < +OK
        > ACTION.STATUS a
        < $…
        < {"action_id":"a","plan_id":"p","total_jobs":1,"pending":0,"running":0,"completed":1,"failed":0,"dead":0,…"completed_jobs_at":"20…Z"}
        "#,
    );
}
