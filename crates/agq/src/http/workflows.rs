//! Cron jobs and workflows.

use std::sync::Arc;

use agenix_protocol::request::Access;
use agenix_rules::{
    cron::{self, Schedule},
    workflow::{Kind, Stage, Step, Wanted, Workflow},
};
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

/// A schedule as it is shown.
fn cron_of(schedule: &Schedule) -> Value {
    let mut cron = json!({
        "name": schedule.name,
        "expression": schedule.expression,
        "timezone": schedule.timezone,
        "overlap_policy": schedule.overlap_policy,
        "enabled": schedule.enabled,
        "created_at": schedule.created_at,
        "runs": schedule.runs,
    });
    let name = if schedule.is_action() { "action" } else { "job_template" };
    cron[name] = json!(schedule.template);
    let times = [("next_run_at", schedule.next_run_at), ("last_run_at", schedule.last_run_at)];
    for (name, at) in times.into_iter().filter_map(|(name, at)| Some((name, at?))) {
        cron[name] = json!(at);
    }
    if let Some(id) = &schedule.last_id {
        cron["last_id"] = id.as_str().into();
    }
    cron
}

/// `POST cron`
pub(super) async fn add_cron(State(desk): State<Arc<Desk>>, guest: Guest, sent: Sent) -> Answer {
    guest.may(Access::Client)?;
    let wanted: cron::Wanted = sent.object()?;
    let schedule = schedule::set(&desk.house, wanted, false).await?;
    let location = format!("/ojs/v1/cron/{}", schedule.name);
    Ok(created(&json!({"cron": cron_of(&schedule)}), &location))
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
    Ok(ok(&json!({"cron": cron_of(&schedule)})))
}

/// `GET cron`
pub(super) async fn crons(State(desk): State<Arc<Desk>>, guest: Guest) -> Answer {
    guest.may(Access::Client)?;
    let crons: Vec<Value> = schedule::list(&desk.house).await?.iter().map(cron_of).collect();
    let total = crons.len();
    Ok(ok(&json!({"crons": crons, "pagination": {"total": total, "has_more": false}})))
}

/// `GET cron/{name}`
pub(super) async fn cron(State(desk): State<Arc<Desk>>, guest: Guest, Path(name): Path<String>) -> Answer {
    guest.may(Access::Client)?;
    Ok(ok(&json!({"cron": cron_of(&schedule::get(&desk.house, &name).await?)})))
}

/// `DELETE cron/{name}`
pub(super) async fn delete_cron(
    State(desk): State<Arc<Desk>>,
    guest: Guest,
    Path(name): Path<String>,
) -> Answer {
    guest.may(Access::Client)?;
    Ok(ok(&json!({"deleted": true, "cron": cron_of(&schedule::delete(&desk.house, &name).await?)})))
}

/// A workflow as it is shown.
fn workflow_of(workflow: &Workflow) -> Value {
    let step = |step: &Step| {
        let kind = if step.is_action() { "action_id" } else { "job_id" };
        json!({kind: step.id, "state": step.stage})
    };
    let steps: Vec<Value> = workflow.steps.iter().map(step).collect();
    let (total, completed) = (workflow.steps.len(), workflow.completed());
    let failed = workflow.steps.iter().filter(|step| step.stage == Stage::Failed).count();
    let mut shown = json!({
        "id": workflow.id,
        "type": workflow.kind,
        "state": workflow.stage,
        "created_at": workflow.created_at,
    });
    let names = if workflow.kind == Kind::Chain { "steps" } else { "jobs" };
    shown[names] = steps.into();
    shown[format!("{names}_total")] = total.into();
    shown[format!("{names}_completed")] = completed.into();
    shown[format!("{names}_failed")] = failed.into();
    if let Some(name) = &workflow.name {
        shown["name"] = name.as_str().into();
    }
    if let Some(at) = workflow.ended_at {
        let name = if workflow.stage == Stage::Cancelled { "cancelled_at" } else { "completed_at" };
        shown[name] = json!(at);
    }
    if !workflow.callbacks.is_empty() {
        let callbacks = workflow.callbacks.iter().map(
            |callback| json!({"on": callback.when, "job_id": callback.step.id, "state": callback.step.stage}),
        );
        shown["callbacks"] = callbacks.collect();
    }
    shown
}

/// `POST workflows`
pub(super) async fn submit(State(desk): State<Arc<Desk>>, guest: Guest, sent: Sent) -> Answer {
    guest.may(Access::Client)?;
    let wanted: Wanted = sent.object()?;
    let workflow = workflow::submit(&desk.house, wanted).await?;
    let location = format!("/ojs/v1/workflows/{}", workflow.id);
    Ok(created(&json!({"workflow": workflow_of(&workflow)}), &location))
}

/// `GET workflows`
pub(super) async fn list(State(desk): State<Arc<Desk>>, guest: Guest) -> Answer {
    guest.may(Access::Client)?;
    let workflows: Vec<Value> = workflow::list(&desk.house).await?.iter().map(workflow_of).collect();
    let total = workflows.len();
    Ok(ok(&json!({"workflows": workflows, "pagination": {"total": total, "has_more": false}})))
}

/// `GET workflows/{id}`
pub(super) async fn get(State(desk): State<Arc<Desk>>, guest: Guest, Path(id): Path<String>) -> Answer {
    guest.may(Access::Client)?;
    Ok(ok(&json!({"workflow": workflow_of(&workflow::get(&desk.house, &id).await?)})))
}

/// `DELETE workflows/{id}`
pub(super) async fn cancel(State(desk): State<Arc<Desk>>, guest: Guest, Path(id): Path<String>) -> Answer {
    guest.may(Access::Client)?;
    let workflow = workflow::cancel(&desk.house, &id).await?;
    Ok(with_status(StatusCode::OK, &json!({"workflow": workflow_of(&workflow)})))
}
