//! Audit entries of requests: the command, and the changed record.

use agenix_protocol::ids::JobId;
use axum::{
    Router,
    body::Body,
    http::{Request, StatusCode, header, request::Builder},
};
use futures_util::{poll, stream};
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use serde_json::{Value, json};

use super::{peer, routes_of, send_as_admin};
use crate::{
    auth::{
        audit_log::AuditLog,
        keyring::{Role, SessionKeys},
    },
    startup::services::with_audit_log,
};

/// Sends a request of an admin, and returns the body of the answer.
async fn ask(routes: &TowerToHyperService<Router>, method: &str, path: &str, body: &str) -> Value {
    send_as_admin(routes, method, path, body.to_owned()).await.1
}

/// Returns a request that changes something.
fn change(path: &str, sender: Option<Role>) -> Builder {
    let json = "application/json";
    let request = Request::builder().method("POST").uri(path).extension(peer(sender));
    request.header(header::HOST, "agq").header(header::CONTENT_TYPE, json)
}

fn lines(log: &std::path::Path) -> Vec<Value> {
    let text = std::fs::read_to_string(log).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Returns the command and the target of each entry.
fn entries(log: &std::path::Path) -> Vec<(String, Option<String>)> {
    let entry = |entry: Value| {
        (entry["command"].as_str().unwrap().to_owned(), entry["target"].as_str().map(str::to_owned))
    };
    lines(log).into_iter().map(entry).collect()
}

#[tokio::test]
async fn audit_entry_of_a_request_names_the_changed_record() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("audit.log");
    let app = with_audit_log(dir.path(), AuditLog::open(Some(&log)).unwrap());
    let routes = routes_of(app.clone(), SessionKeys::default());
    let (job, text) = (r#"{"type":"a","args":[]}"#, |value: &Value| value.as_str().map(str::to_owned));

    let enqueued = text(&ask(&routes, "POST", "/jobs", job).await["job"]["id"]);
    assert!(enqueued.is_some());
    let batch = ask(&routes, "POST", "/jobs/batch", &format!(r#"{{"jobs":[{job},{job}]}}"#)).await;
    let first = JobId::new(batch["jobs"][0]["id"].as_str().unwrap()).unwrap();
    let action = app.store.job(&first).await.unwrap().unwrap().job.action_id.to_string();
    let steps = format!(r#"{{"name":"w","steps":[{job}]}}"#);
    let workflow = text(&ask(&routes, "POST", "/workflows", &steps).await["workflow"]["id"]);
    assert!(workflow.is_some());
    let schedule = format!(r#"{{"name":"n","expression":"@daily","job_template":{job}}}"#);
    ask(&routes, "POST", "/cron", &schedule).await;
    ask(&routes, "PUT", "/cron/a%3Ab", &schedule).await;
    ask(&routes, "POST", "/workers/register", r#"{"worker_id":"w1"}"#).await;
    ask(&routes, "POST", "/workers/deregister", r#"{"worker_id":"w1"}"#).await;
    let long = "j".repeat(128);
    for verb in ["retry", "cancel"] {
        ask(&routes, "POST", &format!("/admin/jobs/{long}/{verb}"), "").await;
    }
    ask(&routes, "POST", "/admin/jobs/bulk/retry", r#"{"confirm":true}"#).await;

    let named = |command: &str, target: &str| (command.to_owned(), Some(target.to_owned()));
    let expected = [
        ("POST /ojs/v1/jobs".to_owned(), enqueued),
        named("POST /ojs/v1/jobs/batch", &action),
        ("POST /ojs/v1/workflows".to_owned(), workflow),
        named("POST /ojs/v1/cron", "n"),
        named("PUT /ojs/v1/cron/a%3Ab", "a:b"),
        named("POST /ojs/v1/workers/deregister", "w1"),
        named(&format!("POST /ojs/v1/admin/jobs/{long}/retry"), &long),
        named(&format!("POST /ojs/v1/admin/jobs/{long}/cancel"), &long),
        ("POST /ojs/v1/admin/jobs/bulk/retry".to_owned(), None),
    ];
    assert_eq!(entries(&log), expected);
}

#[tokio::test]
async fn request_that_is_dropped_before_its_answer_is_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("audit.log");
    let app = with_audit_log(dir.path(), AuditLog::open(Some(&log)).unwrap());
    let routes = routes_of(app, SessionKeys::default());
    let endless = Body::from_stream(stream::pending::<Result<&str, std::io::Error>>());
    let request = change("/ojs/v1/jobs", Some(Role::Client)).body(endless).unwrap();
    let mut answer = Box::pin(routes.call(request));
    assert!(poll!(answer.as_mut()).is_pending());
    assert_eq!(lines(&log).len(), 0);
    drop(answer);
    let lines = lines(&log);
    assert_eq!((lines.len(), &lines[0]["command"]), (1, &json!("POST /ojs/v1/jobs")));
    assert_eq!(lines[0]["outcome"], "unknown: the connection broke before the answer");
}

#[tokio::test]
async fn audit_entry_of_a_decision_has_its_digest() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("audit.log");
    let app = with_audit_log(dir.path(), AuditLog::open(Some(&log)).unwrap());
    let routes = routes_of(app, SessionKeys::default());
    for verb in ["approve", "reject"] {
        ask(&routes, "POST", &format!("/approvals/p/{verb}"), r#"{"digest":"0a1b"}"#).await;
    }
    let lines = lines(&log);
    let digests: Vec<&Value> = lines.iter().map(|line| &line["digest"]).collect();
    assert_eq!(digests, ["0a1b", "0a1b"]);
    assert!(lines.iter().all(|line| line["outcome"].as_str().unwrap().starts_with("ERR ")), "{lines:?}");
}

#[tokio::test]
async fn refusal_of_a_known_sender_is_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("audit.log");
    let app = with_audit_log(dir.path(), AuditLog::open(Some(&log)).unwrap());
    let mut keys = SessionKeys::default();
    let key = "c".repeat(64);
    keys.add(Role::Client, "alice", &key).unwrap();
    let routes = routes_of(app, keys);
    let send = async |request: Builder, body: String| {
        routes.call(request.body(Body::from(body)).unwrap()).await.unwrap()
    };
    let refused = send(change("/ojs/v1/jobs", Some(Role::Agent)), "{}".into()).await;
    assert_eq!(refused.status(), StatusCode::FORBIDDEN);
    let foreign = change("/ojs/v1/jobs", Some(Role::Client)).header("sec-fetch-site", "cross-site");
    assert_eq!(send(foreign, "{}".into()).await.status(), StatusCode::FORBIDDEN);

    let login = send(change("/dashboard/login", None), json!({"key": key}).to_string()).await;
    let cookie = login.headers()[header::SET_COOKIE].to_str().unwrap().split(';').next().unwrap().to_owned();
    let body = axum::body::to_bytes(login.into_body(), usize::MAX).await.unwrap();
    let session: Value = serde_json::from_slice(&body).unwrap();
    let command = change("/dashboard/command", None).header(header::COOKIE, cookie);
    let command = command.header("x-csrf-token", session["csrf"].as_str().unwrap());
    let answer = send(command, r#"["QUEUE.PAUSE","ready"]"#.into()).await;
    assert_eq!(answer.status(), StatusCode::OK);

    let lines = lines(&log);
    let expected = [
        ("agent", "POST /ojs/v1/jobs", "ERR this key is an agent's"),
        ("client", "POST /ojs/v1/jobs", "ERR the request comes from a page of another site"),
        ("client", "QUEUE.PAUSE", "NOPERM "),
    ];
    assert_eq!(lines.len(), expected.len(), "{lines:?}");
    for (line, (role, command, outcome)) in lines.iter().zip(expected) {
        assert_eq!([&line["role"], &line["command"]], [role, command]);
        assert!(line["outcome"].as_str().unwrap().starts_with(outcome), "{line}");
    }
}
