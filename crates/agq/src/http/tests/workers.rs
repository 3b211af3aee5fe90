//! Tests of requests of workers.

use std::sync::Arc;

use axum::{Router, http::StatusCode};
use hyper_util::service::TowerToHyperService;
use serde_json::{Value, json};

use super::{routes, routes_of, send_as_admin, send_for_text};
use crate::{auth::keyring::SessionKeys, startup::services::without_tasks};

/// Sends a request with the rights of an admin, which succeeds. Returns the body of the answer.
async fn send(routes: &TowerToHyperService<Router>, method: &str, path: &str, body: Value) -> Value {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let (status, answer) = send_as_admin(routes, method, path, body).await;
    assert!(status.is_success(), "{method} {path}: {answer}");
    answer
}

/// Submits a job and fetches it. Returns its id.
async fn running_job(routes: &TowerToHyperService<Router>) -> String {
    let job = send(routes, "POST", "/jobs", json!({"type": "a", "args": []})).await;
    let fetched = send(routes, "POST", "/workers/fetch", json!({"queues": ["default"]})).await;
    assert_eq!(fetched["job"]["id"], job["job"]["id"]);
    job["job"]["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn progress_is_reported_as_a_fraction_as_a_percentage_or_by_data_alone() {
    let dir = tempfile::tempdir().unwrap();
    let routes = routes(dir.path(), SessionKeys::default());
    let id = running_job(&routes).await;
    let path = format!("/jobs/{id}/progress");
    let by_body = json!({"job_id": id, "percentage": 40, "message": "page 4"});
    let reported = send(&routes, "POST", "/workers/progress", by_body).await;
    assert_eq!((&reported["progress"], &reported["message"]), (&json!(0.4), &json!("page 4")));
    let kept = send(&routes, "PUT", &path, json!({"data": {"page": 5}})).await;
    assert_eq!((&kept["progress"], &kept["data"]["page"]), (&json!(0.4), &json!(5)));
    assert_eq!(send(&routes, "PUT", &path, json!({"progress": 0.2})).await["progress"], 0.4);
    send(&routes, "PUT", &path, json!({"progress": 0.5, "percentage": 90})).await;
    assert_eq!(send(&routes, "GET", &path, Value::Null).await["progress"], 0.5);
    let (nothing, of_no_job) = (json!({"message": "page 6"}), json!({"data": 1}));
    for (method, path, wrong) in [("PUT", &*path, nothing), ("POST", "/workers/progress", of_no_job)] {
        let (status, answer) = send_as_admin(&routes, method, path, wrong.to_string()).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{answer}");
    }
}

#[tokio::test]
async fn worker_may_have_an_id_with_dots_and_of_any_length() {
    let dir = tempfile::tempdir().unwrap();
    let app = without_tasks(dir.path(), |_| {});
    let routes = routes_of(Arc::clone(&app), SessionKeys::default());
    let host = "ip-10-0-0-12".repeat(3);
    let id = format!("worker_{host}.eu-central-1.compute.internal_1_1767225600000000000");
    let by = |mut body: Value| {
        body["worker_id"] = id.as_str().into();
        body
    };
    send(&routes, "POST", "/jobs", json!({"type": "a", "args": []})).await;
    let registered = send(&routes, "POST", "/workers/register", by(json!({}))).await;
    let fetched = send(&routes, "POST", "/workers/fetch", by(json!({"queues": ["default"]}))).await;
    let (job_id, holder) = (&fetched["job"]["id"], &fetched["job"]["worker_id"]);
    assert_eq!(&registered["worker_id"], holder);
    assert_ne!(holder, &json!(id), "it would not be a key");
    let beat = send(&routes, "POST", "/workers/heartbeat", by(json!({"active_job_ids": [job_id]}))).await;
    assert_eq!(beat["jobs_extended"], json!([job_id]));
    let shown = send(&routes, "GET", &format!("/workers/{id}"), Value::Null).await;
    assert_eq!((&shown["worker_id"], &shown["active_job_ids"]), (holder, &json!([job_id])));
    let worker_id = holder.as_str().unwrap().parse().unwrap();
    let registration = app.store.registration(&worker_id).await.unwrap().unwrap();
    assert!(registration.contains(&format!(r#""ojs_id":"{id}""#)), "{registration}");
    let done = send(&routes, "POST", "/workers/ack", by(json!({"job_id": job_id, "attempt": 1}))).await;
    assert_eq!(done["state"], "completed");
    send(&routes, "DELETE", &format!("/workers/{id}"), Value::Null).await;
    let (gone, _) = send_as_admin(&routes, "GET", &format!("/workers/{id}"), String::new()).await;
    assert_eq!(gone, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn numbers_of_errors_and_progress_reports_keep_their_digits() {
    let dir = tempfile::tempdir().unwrap();
    let routes = routes(dir.path(), SessionKeys::default());
    let id = running_job(&routes).await;
    let sent = r#"{"order":123456789012345678901234567890,"amount":1.10,"error_class":"Smtp"}"#;
    let (job, progress) = (format!("/jobs/{id}"), format!("/jobs/{id}/progress"));
    let nacked = format!(r#"{{"job_id":"{id}","error":{{"message":"no","details":{sent}}}}}"#);
    for (method, path, body) in [
        ("PUT", progress.as_str(), format!(r#"{{"data":{sent}}}"#)),
        ("GET", progress.as_str(), String::new()),
        ("POST", "/workers/nack", nacked),
        ("GET", job.as_str(), String::new()),
    ] {
        let (status, text) = send_for_text(&routes, method, path, body).await;
        assert!(status.is_success() && text.contains(sent), "{method} {path}: {text}");
    }
    assert_eq!(send(&routes, "GET", &job, Value::Null).await["job"]["error"]["type"], "Smtp");
}
