//! One record with two protocols: clients of RESP and HTTP see and change the same data.

use e2e::{Lab, eventually};
use serde_json::Value;

use super::client::Http;
use crate::support::RawConnection;

fn json(raw: &mut RawConnection, command: &str) -> Value {
    raw.send(&format!("{command}\n"));
    serde_json::from_str(&raw.bulk()).unwrap()
}

#[test]
fn agw_runs_a_plan_for_a_client_of_http() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let _agw = lab.agw(&agq, "w", &[]);
    lab.submit_plan(&agq, r#"{"plan_id":"shout","tasks":[{"task_number":1,"command":"tr","args":["a-z","A-Z"],"stdin":"{{input.text}}"}]}"#);
    let http = Http::of(&lab, &agq);
    let id = http.enqueue(r#"{"type":"plan.shout","args":[{"text":"hello"}],"meta":{"who":"me"}}"#);
    let done = eventually("agw has run it", || {
        let job = http.get(&format!("/jobs/{id}"))["job"].clone();
        (job["state"] == "completed").then_some(job)
    });
    assert_eq!((&done["type"], &done["args"][0]["text"]), (&"plan.shout".into(), &"hello".into()));
    assert_eq!((&done["meta"]["who"], &done["worker_id"]), (&"me".into(), &"w".into()));
    assert_eq!(done["result"][0]["stdout"], "HELLO");
    let mut raw = RawConnection::open(&lab, &agq);
    let status = json(&mut raw, &format!("JOB.STATUS {id}"));
    assert_eq!((&status["status"], &status["stdout"]), (&"completed".into(), &"HELLO".into()));
    let action = json(&mut raw, &format!("ACTION.STATUS {}", done["action_id"].as_str().unwrap()));
    assert_eq!((&action["completed"], &action["total_jobs"]), (&1.into(), &1.into()));
    // HTTP checks the input of a plan too.
    let wrong = http.ask("POST", "/jobs", r#"{"type":"plan.shout","args":[{}]}"#);
    assert_eq!((wrong.status, wrong.code()), (400, "invalid_request"));
}

#[test]
fn trace_goes_from_the_request_into_the_environment_of_the_tasks() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let _agw = lab.agw(&agq, "w", &[]);
    lab.submit_plan(
        &agq,
        r#"{"plan_id":"trace","tasks":[{"task_number":1,"command":"printenv","args":["TRACEPARENT"]}]}"#,
    );
    let http = Http::of(&lab, &agq);
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let traced = |body: &str| {
        let request = http.request("POST", "/jobs", body);
        let request = request.replacen("Host: agq\r\n", &format!("Host: agq\r\ntraceparent: {trace}\r\n"), 1);
        let answer = http.send(request.as_bytes());
        answer.body["job"]["id"].as_str().unwrap_or_else(|| panic!("{}", answer.text)).to_owned()
    };
    let id = traced(r#"{"type":"plan.trace","args":[{}]}"#);
    let done = eventually("agw has run it", || {
        let job = http.get(&format!("/jobs/{id}"))["job"].clone();
        (job["state"] == "completed").then_some(job)
    });
    assert_eq!(done["result"][0]["stdout"].as_str().unwrap().trim(), trace);
    traced(r#"{"type":"email.send","args":[]}"#);
    assert_eq!(http.fetch("mailer", "default").unwrap()["meta"]["traceparent"], trace);
}

#[test]
fn job_that_came_by_resp_is_shown_over_http_and_the_other_way_round() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let http = Http::of(&lab, &agq);
    lab.submit_plan(&agq, r#"{"plan_id":"p","tasks":[{"task_number":1,"command":"sort"}],"max_retries":2}"#);
    lab.submit_action(&agq, "p", "a", r#"[{"n":1}]"#);
    let mut raw = RawConnection::open(&lab, &agq);
    let ids = lab.agx(&agq, &["job", "list", "a"]).expect(0).out;
    let id = ids.trim();
    let job = &http.get(&format!("/jobs/{id}"))["job"];
    assert_eq!(
        (&job["type"], &job["state"], &job["queue"]),
        (&"plan.p".into(), &"available".into(), &"ready".into())
    );
    assert_eq!((&job["args"][0]["n"], &job["max_attempts"]), (&1.into(), &3.into()));
    assert_eq!(http.get("/queues/ready/stats")["queue"]["available"], 1);
    // Workers over HTTP get no jobs that an agw has to run, and an agw gets no other jobs.
    assert!(http.post("/workers/fetch", r#"{"queues":["ready"],"worker_id":"w"}"#)["jobs"][0].is_null());
    let id = http.enqueue(r#"{"type":"email.send","args":["x"]}"#);
    let status = json(&mut raw, &format!("JOB.STATUS {id}"));
    assert_eq!((&status["plan_id"], &status["inputs"]["args"][0]), (&"ojs".into(), &"x".into()));
    let agw = lab.agw(&agq, "agw", &["--queues", "default"]);
    let why = json(&mut raw, &format!("JOB.EXPLAIN {id}"));
    assert!(why.to_string().contains("ojs"), "{why}");
    drop(agw);
    assert_eq!(http.fetch("w", "default").unwrap()["id"], *id);
    assert_eq!(raw.ask(&format!("JOB.CANCEL {id}")), "+OK job cancelled");
    assert_eq!(http.state(&id), "cancelled");
}

#[test]
fn figures_are_those_of_prometheus_at_both_apis() {
    let lab = Lab::new();
    let agq = lab.agq(&[]);
    let http = Http::of(&lab, &agq);
    http.enqueue(r#"{"type":"a","args":[]}"#);
    let metrics = http.ask("GET", "//metrics", "");
    assert_eq!(metrics.headers["content-type"], "text/plain");
    assert!(metrics.text.contains("\nagq_jobs{status=\"pending\"} 1\n"), "{}", metrics.text);
}

#[test]
fn change_is_recorded_whatever_the_name_of_what_is_changed() {
    let lab = Lab::new();
    let agq = lab.agq(&["--audit-log", "audit.log"]);
    let http = Http::of(&lab, &agq);
    let schedule = r#"{"expression":"@daily","job_template":{"type":"a","args":[]}}"#;
    for name in ["nightly", "heartbeat", "fetch"] {
        assert_eq!(http.ask("PUT", &format!("/cron/{name}"), schedule).status, 200);
    }
    assert_eq!(http.ask("DELETE", "/cron/heartbeat", "").status, 200);
    assert_eq!(http.ask("DELETE", "/dead-letter/fail", "").status, 404);
    assert_eq!(http.ask("DELETE", "/jobs/ack", "").status, 404);
    // The audit log leaves out frequent requests of workers.
    http.post("/workers/heartbeat", r#"{"worker_id":"w"}"#);
    http.fetch("w", "default");
    assert_eq!(http.ask("POST", "/jobs/none/ack", "{}").status, 404);
    let log = std::fs::read_to_string(lab.path().join("audit.log")).unwrap();
    let logged: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let commands: Vec<_> = logged.iter().map(|line| line["command"].as_str().unwrap()).collect();
    assert_eq!(
        commands,
        [
            "PUT /ojs/v1/cron/nightly",
            "PUT /ojs/v1/cron/heartbeat",
            "PUT /ojs/v1/cron/fetch",
            "DELETE /ojs/v1/cron/heartbeat",
            "DELETE /ojs/v1/dead-letter/fail",
            "DELETE /ojs/v1/jobs/ack",
        ]
    );
}
