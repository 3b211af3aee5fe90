//! Handlers of cron jobs and workflows.

use std::{collections::BTreeMap, sync::Arc};

use agenix_protocol::documents::to_json;
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
    http::{
        HttpState,
        auth::role::RequireClient,
        extract::JsonBody,
        response::{ApiError, HttpResult, created, ok, with_status},
    },
    service::{schedules, workflow},
};

/// Body of an answer with one schedule.
#[derive(Serialize)]
struct ScheduleReply {
    cron: schedules::ScheduleView,
    #[serde(skip_serializing_if = "Option::is_none")]
    deleted: Option<bool>,
}

impl ScheduleReply {
    fn of(schedule: cron::Schedule) -> Self {
        Self { cron: schedules::schedule_view(schedule), deleted: None }
    }
}

/// Body of an answer with all schedules.
#[derive(Serialize)]
struct ScheduleList {
    crons: Vec<schedules::ScheduleView>,
    pagination: Value,
}

/// `POST cron`
pub(super) async fn add_cron(
    State(state): State<Arc<HttpState>>,
    _: RequireClient,
    sent: JsonBody,
) -> HttpResult {
    let request: cron::ScheduleRequest = sent.object()?;
    let schedule = schedules::set(&state.app, request, false).await?;
    let location = format!("/ojs/v1/cron/{}", schedule.name);
    Ok(created(&ScheduleReply::of(schedule), &location))
}

/// `PUT cron/{name}`
pub(super) async fn set_cron(
    State(state): State<Arc<HttpState>>,
    _: RequireClient,
    Path(name): Path<String>,
    sent: JsonBody,
) -> HttpResult {
    let mut document: BTreeMap<String, Box<RawValue>> = sent.object()?;
    let invalid = |error: serde_json::Error| ApiError::invalid(error.to_string());
    document.insert("name".into(), to_raw_value(&name).map_err(invalid)?);
    let request = serde_json::from_str(&to_json(&document)).map_err(invalid)?;
    let schedule = schedules::set(&state.app, request, true).await?;
    Ok(ok(&ScheduleReply::of(schedule)))
}

/// `GET cron`
pub(super) async fn crons(State(state): State<Arc<HttpState>>, _: RequireClient) -> HttpResult {
    let crons: Vec<_> =
        schedules::list(&state.app).await?.into_iter().map(schedules::schedule_view).collect();
    let pagination = json!({"total": crons.len(), "has_more": false});
    Ok(ok(&ScheduleList { crons, pagination }))
}

/// `GET cron/{name}`
pub(super) async fn cron(
    State(state): State<Arc<HttpState>>,
    _: RequireClient,
    Path(name): Path<String>,
) -> HttpResult {
    Ok(ok(&ScheduleReply::of(schedules::get(&state.app, &name).await?)))
}

/// `DELETE cron/{name}`
pub(super) async fn delete_cron(
    State(state): State<Arc<HttpState>>,
    _: RequireClient,
    Path(name): Path<String>,
) -> HttpResult {
    let cron = ScheduleReply::of(schedules::delete(&state.app, &name).await?);
    Ok(ok(&ScheduleReply { deleted: Some(true), ..cron }))
}

/// `POST workflows`
pub(super) async fn submit(
    State(state): State<Arc<HttpState>>,
    _: RequireClient,
    sent: JsonBody,
) -> HttpResult {
    let request: WorkflowRequest = sent.object()?;
    let workflow = workflow::submit(&state.app, request).await?;
    let location = format!("/ojs/v1/workflows/{}", workflow.id);
    Ok(created(&json!({"workflow": workflow::workflow_view(&workflow)}), &location))
}

/// `GET workflows`
pub(super) async fn list(State(state): State<Arc<HttpState>>, _: RequireClient) -> HttpResult {
    let workflows: Vec<Value> =
        workflow::list(&state.app).await?.iter().map(workflow::workflow_view).collect();
    let total = workflows.len();
    Ok(ok(&json!({"workflows": workflows, "pagination": {"total": total, "has_more": false}})))
}

/// `GET workflows/{id}`
pub(super) async fn get(
    State(state): State<Arc<HttpState>>,
    _: RequireClient,
    Path(id): Path<String>,
) -> HttpResult {
    Ok(ok(&json!({"workflow": workflow::workflow_view(&workflow::observe_step(&state.app, &id).await?)})))
}

/// `DELETE workflows/{id}`
pub(super) async fn cancel(
    State(state): State<Arc<HttpState>>,
    _: RequireClient,
    Path(id): Path<String>,
) -> HttpResult {
    let workflow = workflow::cancel(&state.app, &id).await?;
    Ok(with_status(StatusCode::OK, &json!({"workflow": workflow::workflow_view(&workflow)})))
}
