//! Cron jobs and workflows.

use std::sync::Arc;

use agenix_protocol::request::Access;
use agenix_rules::{cron, workflow::Wanted};
use axum::{
    extract::{Path, State},
    http::StatusCode,
};
use serde_json::{Value, json};

use super::{
    Desk,
    answer::{Answer, Refusal, created, ok, with_status},
    asked::{Guest, Sent},
};
use crate::commands::{schedule, workflow};

/// `POST cron`
pub(super) async fn add_cron(State(desk): State<Arc<Desk>>, guest: Guest, sent: Sent) -> Answer {
    guest.may(Access::Client)?;
    let wanted: cron::Wanted = sent.object()?;
    let schedule = schedule::set(&desk.house, wanted, false).await?;
    let location = format!("/ojs/v1/cron/{}", schedule.name);
    Ok(created(&json!({"cron": schedule::shown(&schedule)}), &location))
}

/// `PUT cron/{name}`
pub(super) async fn set_cron(
    State(desk): State<Arc<Desk>>,
    guest: Guest,
    Path(name): Path<String>,
    sent: Sent,
) -> Answer {
    guest.may(Access::Client)?;
    let mut document: serde_json::Map<String, Value> = sent.object()?;
    document.insert("name".into(), name.into());
    let wanted = serde_json::from_str(&Value::Object(document).to_string());
    let wanted = wanted.map_err(|error| Refusal::invalid(error.to_string()))?;
    let schedule = schedule::set(&desk.house, wanted, true).await?;
    Ok(ok(&json!({"cron": schedule::shown(&schedule)})))
}

/// `GET cron`
pub(super) async fn crons(State(desk): State<Arc<Desk>>, guest: Guest) -> Answer {
    guest.may(Access::Client)?;
    let crons: Vec<Value> = schedule::list(&desk.house).await?.iter().map(schedule::shown).collect();
    let total = crons.len();
    Ok(ok(&json!({"crons": crons, "pagination": {"total": total, "has_more": false}})))
}

/// `GET cron/{name}`
pub(super) async fn cron(State(desk): State<Arc<Desk>>, guest: Guest, Path(name): Path<String>) -> Answer {
    guest.may(Access::Client)?;
    Ok(ok(&json!({"cron": schedule::shown(&schedule::get(&desk.house, &name).await?)})))
}

/// `DELETE cron/{name}`
pub(super) async fn delete_cron(
    State(desk): State<Arc<Desk>>,
    guest: Guest,
    Path(name): Path<String>,
) -> Answer {
    guest.may(Access::Client)?;
    Ok(ok(&json!({"deleted": true, "cron": schedule::shown(&schedule::delete(&desk.house, &name).await?)})))
}

/// `POST workflows`
pub(super) async fn submit(State(desk): State<Arc<Desk>>, guest: Guest, sent: Sent) -> Answer {
    guest.may(Access::Client)?;
    let wanted: Wanted = sent.object()?;
    let workflow = workflow::submit(&desk.house, wanted).await?;
    let location = format!("/ojs/v1/workflows/{}", workflow.id);
    Ok(created(&json!({"workflow": workflow::shown(&workflow)}), &location))
}

/// `GET workflows`
pub(super) async fn list(State(desk): State<Arc<Desk>>, guest: Guest) -> Answer {
    guest.may(Access::Client)?;
    let workflows: Vec<Value> = workflow::list(&desk.house).await?.iter().map(workflow::shown).collect();
    let total = workflows.len();
    Ok(ok(&json!({"workflows": workflows, "pagination": {"total": total, "has_more": false}})))
}

/// `GET workflows/{id}`
pub(super) async fn get(State(desk): State<Arc<Desk>>, guest: Guest, Path(id): Path<String>) -> Answer {
    guest.may(Access::Client)?;
    Ok(ok(&json!({"workflow": workflow::shown(&workflow::get(&desk.house, &id).await?)})))
}

/// `DELETE workflows/{id}`
pub(super) async fn cancel(State(desk): State<Arc<Desk>>, guest: Guest, Path(id): Path<String>) -> Answer {
    guest.may(Access::Client)?;
    let workflow = workflow::cancel(&desk.house, &id).await?;
    Ok(with_status(StatusCode::OK, &json!({"workflow": workflow::shown(&workflow)})))
}
