//! Test of changes over HTTP that answer with the stored record.

use std::sync::Arc;

use agenix_rules::cron::Schedule;
use axum::{Router, http::StatusCode};
use hyper_util::service::TowerToHyperService;
use serde_json::{Value, json};

use super::{routes, routes_of, send_as_admin};
use crate::{
    auth::keyring::SessionKeys,
    startup::services::without_tasks,
    store::{DocumentChange, DocumentKind},
};

/// Sends a request with the rights of an admin. Returns the body of the answer.
async fn send(
    routes: &TowerToHyperService<Router>,
    method: &str,
    path: &str,
    body: Value,
    status: StatusCode,
) -> Value {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let (answered, answer) = send_as_admin(routes, method, path, body).await;
    assert_eq!(answered, status, "{method} {path}");
    answer
}

#[tokio::test]
async fn bound_of_a_queue_is_removed_by_null() {
    let dir = tempfile::tempdir().unwrap();
    let routes = routes(dir.path(), SessionKeys::default());
    let config = async |body: Value| {
        let answer = send(&routes, "PUT", "/admin/queues/q/config", body, StatusCode::OK).await;
        answer["config"]["backpressure"]["max_depth"].clone()
    };
    let push = async |status| {
        let job = json!({"type": "a", "args": [], "options": {"queue": "q"}});
        send(&routes, "POST", "/jobs", job, status).await;
    };
    assert_eq!(config(json!({"backpressure": {"max_depth": 1}})).await, 1);
    assert_eq!(config(json!({"colour": "red"})).await, 1, "a missing field changes nothing");
    push(StatusCode::CREATED).await;
    push(StatusCode::TOO_MANY_REQUESTS).await;
    assert_eq!(config(json!({"backpressure": null})).await, Value::Null);
    push(StatusCode::CREATED).await;
}

#[tokio::test]
async fn schedule_is_taken_and_shown_in_the_form_of_the_cron_specification() {
    let dir = tempfile::tempdir().unwrap();
    let routes = routes(dir.path(), SessionKeys::default());
    let job = json!({"type": "report.make", "args": [{"report": "daily"}], "options": {"queue": "reports"}});
    let mut schedule = job.clone();
    schedule["name"] = "daily-report".into();
    schedule["cron"] = "0 9 * * *".into();
    let made = send(&routes, "POST", "/cron", schedule.clone(), StatusCode::CREATED).await;
    assert_eq!((&made["cron"]["job_template"], &made["cron"]["expression"]), (&job, &schedule["cron"]));
    let listed = send(&routes, "GET", "/cron", Value::Null, StatusCode::OK).await;
    assert_eq!((&listed["cron_jobs"][0], &listed["crons"][0]), (&made["cron_job"], &made["cron"]));
    for (field, value) in schedule.as_object().unwrap() {
        assert_eq!(&made["cron_job"][field], value, "{field}");
    }
    assert_eq!((&made["cron_job"]["status"], &made["cron_job"]["run_count"]), (&json!("active"), &json!(0)));
}

#[tokio::test]
async fn answer_to_a_replaced_schedule_has_its_history() {
    let dir = tempfile::tempdir().unwrap();
    let app = without_tasks(dir.path(), |_| {});
    let routes = routes_of(Arc::clone(&app), SessionKeys::default());
    let schedule = |at: &str| json!({"expression": at, "job_template": {"type": "a", "args": []}});
    send(&routes, "PUT", "/cron/n", schedule("* * * * *"), StatusCode::OK).await;
    let rule = |known: Option<&str>| {
        let known: Schedule = serde_json::from_str(known.unwrap()).unwrap();
        let ran = Schedule { runs: 1, last_id: Some("j".into()), ..known };
        Ok(DocumentChange::Put(serde_json::to_string(&ran).unwrap()))
    };
    app.store.update_document(DocumentKind::Cron, "n", Box::new(rule)).await.unwrap().unwrap();
    let replaced = send(&routes, "PUT", "/cron/n", schedule("0 3 * * *"), StatusCode::OK).await;
    assert_eq!(replaced["cron"]["runs"], 1);
    let shown = send(&routes, "GET", "/cron/n", Value::Null, StatusCode::OK).await;
    assert_eq!(replaced["cron"], shown["cron"]);
}
