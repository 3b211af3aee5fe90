//! Cron jobs and workflows.

use std::{collections::BTreeMap, sync::Arc};

use agenix_protocol::{documents::to_json, request::CommandAccess};
use agenix_rules::{cron, workflow::WorkflowRequest};
use axum::{
    extract::{Path, State},
    http::StatusCode,
};
use serde::Serialize;
use serde_json::{
    Value, json,
    value::{RawValue, to_raw_value},
};

use crate::{
    commands::{schedule, workflow},
    http::{
        Desk,
        extract::{Guest, Sent},
        response::{Answer, Refusal, created, ok, with_status},
    },
};

/// Answer with one schedule.
#[derive(Serialize)]
struct OneCron {
    cron: schedule::Shown,
    #[serde(skip_serializing_if = "Option::is_none")]
    deleted: Option<bool>,
}

impl OneCron {
    fn of(schedule: cron::Schedule) -> Self {
        Self { cron: schedule::shown(schedule), deleted: None }
    }
}

/// Answer with all schedules.
#[derive(Serialize)]
struct Crons {
    crons: Vec<schedule::Shown>,
    pagination: Value,
}

/// `POST cron`
pub(super) async fn add_cron(State(desk): State<Arc<Desk>>, guest: Guest, sent: Sent) -> Answer {
    guest.may(CommandAccess::Client)?;
    let wanted: cron::ScheduleRequest = sent.object()?;
    let schedule = schedule::set(&desk.house, wanted, false).await?;
    let location = format!("/ojs/v1/cron/{}", schedule.name);
    Ok(created(&OneCron::of(schedule), &location))
}

/// `PUT cron/{name}`
pub(super) async fn set_cron(
    State(desk): State<Arc<Desk>>,
    guest: Guest,
    Path(name): Path<String>,
    sent: Sent,
) -> Answer {
    guest.may(CommandAccess::Client)?;
    let mut document: BTreeMap<String, Box<RawValue>> = sent.object()?;
    let invalid = |error: serde_json::Error| Refusal::invalid(error.to_string());
    document.insert("name".into(), to_raw_value(&name).map_err(invalid)?);
    let wanted = serde_json::from_str(&to_json(&document)).map_err(invalid)?;
    let schedule = schedule::set(&desk.house, wanted, true).await?;
    Ok(ok(&OneCron::of(schedule)))
}

/// `GET cron`
pub(super) async fn crons(State(desk): State<Arc<Desk>>, guest: Guest) -> Answer {
    guest.may(CommandAccess::Client)?;
    let crons: Vec<_> = schedule::list(&desk.house).await?.into_iter().map(schedule::shown).collect();
    let pagination = json!({"total": crons.len(), "has_more": false});
    Ok(ok(&Crons { crons, pagination }))
}

/// `GET cron/{name}`
pub(super) async fn cron(State(desk): State<Arc<Desk>>, guest: Guest, Path(name): Path<String>) -> Answer {
    guest.may(CommandAccess::Client)?;
    Ok(ok(&OneCron::of(schedule::get(&desk.house, &name).await?)))
}

/// `DELETE cron/{name}`
pub(super) async fn delete_cron(
    State(desk): State<Arc<Desk>>,
    guest: Guest,
    Path(name): Path<String>,
) -> Answer {
    guest.may(CommandAccess::Client)?;
    let cron = OneCron::of(schedule::delete(&desk.house, &name).await?);
    Ok(ok(&OneCron { deleted: Some(true), ..cron }))
}

/// `POST workflows`
pub(super) async fn submit(State(desk): State<Arc<Desk>>, guest: Guest, sent: Sent) -> Answer {
    guest.may(CommandAccess::Client)?;
    let wanted: WorkflowRequest = sent.object()?;
    let workflow = workflow::submit(&desk.house, wanted).await?;
    let location = format!("/ojs/v1/workflows/{}", workflow.id);
    Ok(created(&json!({"workflow": workflow::shown(&workflow)}), &location))
}

/// `GET workflows`
pub(super) async fn list(State(desk): State<Arc<Desk>>, guest: Guest) -> Answer {
    guest.may(CommandAccess::Client)?;
    let workflows: Vec<Value> = workflow::list(&desk.house).await?.iter().map(workflow::shown).collect();
    let total = workflows.len();
    Ok(ok(&json!({"workflows": workflows, "pagination": {"total": total, "has_more": false}})))
}

/// `GET workflows/{id}`
pub(super) async fn get(State(desk): State<Arc<Desk>>, guest: Guest, Path(id): Path<String>) -> Answer {
    guest.may(CommandAccess::Client)?;
    Ok(ok(&json!({"workflow": workflow::shown(&workflow::look_at(&desk.house, &id).await?)})))
}

/// `DELETE workflows/{id}`
pub(super) async fn cancel(State(desk): State<Arc<Desk>>, guest: Guest, Path(id): Path<String>) -> Answer {
    guest.may(CommandAccess::Client)?;
    let workflow = workflow::cancel(&desk.house, &id).await?;
    Ok(with_status(StatusCode::OK, &json!({"workflow": workflow::shown(&workflow)})))
}
