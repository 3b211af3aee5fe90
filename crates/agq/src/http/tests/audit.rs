//! Audit entries of requests: the command, and the changed record.

use agenix_protocol::ids::JobId;
use axum::Router;
use hyper_util::service::TowerToHyperService;
use serde_json::Value;

use super::{routes_of, send_as_admin};
use crate::{
    auth::{audit_log::AuditLog, keyring::SessionKeys},
    startup::services::with_audit_log,
};

/// Sends a request of an admin, and returns the body of the answer.
async fn ask(routes: &TowerToHyperService<Router>, method: &str, path: &str, body: &str) -> Value {
    send_as_admin(routes, method, path, body.to_owned()).await.1
}

/// Returns the command and the target of each entry.
fn entries(log: &std::path::Path) -> Vec<(String, Option<String>)> {
    let text = std::fs::read_to_string(log).unwrap();
    let entry = |line: &str| {
        let entry: Value = serde_json::from_str(line).unwrap();
        (entry["command"].as_str().unwrap().to_owned(), entry["target"].as_str().map(str::to_owned))
    };
    text.lines().map(entry).collect()
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
