//! Handlers of cron jobs and workflows.

use std::collections::BTreeMap;

use agenix_protocol::documents::{OjsDocument, to_json};
use agenix_rules::{cron, workflow::WorkflowRequest};
use axum::extract::{Path, Query};
use serde_json::{
    Value, json,
    value::{RawValue, to_raw_value},
};

use crate::{
    http::{
        Shared,
        auth::role::RequireClient,
        extract::JsonBody,
        list_query::ListQuery,
        response::{ApiError, HttpResult, Object, created, object, ok, raw},
    },
    service::{schedules, workflow},
    store::StoreError,
};

/// Answers with `{"cron": …, "cron_job": …}`.
fn in_object(schedule: cron::Schedule) -> Object {
    let job = cron_job(&schedule)?;
    object([("cron", raw(&schedules::schedule_view(schedule))), ("cron_job", raw(&job))])
}

/// Returns a schedule in the form of the cron specification (ojs-cron §2.1), which the SDKs read.
fn cron_job(schedule: &cron::Schedule) -> Object {
    let template: OjsDocument = serde_json::from_str(schedule.template.get()).unwrap_or_default();
    let mut job = object([
        ("name", raw(&schedule.name)),
        ("cron", raw(&schedule.expression)),
        ("timezone", raw(&schedule.timezone)),
        ("type", raw(&template.get("type"))),
        ("args", raw(&template.get("args"))),
        ("meta", raw(&template.get("meta"))),
        ("options", raw(&template.get("options"))),
        ("overlap_policy", raw(&schedule.overlap_policy)),
        ("enabled", raw(&schedule.enabled)),
        ("status", raw(if schedule.enabled { "active" } else { "paused" })),
        ("created_at", raw(&schedule.created_at)),
        ("next_run_at", raw(&schedule.next_run_at)),
        ("last_run_at", raw(&schedule.last_run_at)),
        ("run_count", raw(&schedule.runs)),
    ])?;
    job.retain(|_, value| value.get() != "null");
    Ok(job)
}

pub(super) async fn add_cron(state: Shared, sender: RequireClient, sent: JsonBody) -> HttpResult {
    let request: cron::ScheduleRequest = sent.object()?;
    let schedule = schedules::set(&state.app, sender.owner(), request, false).await?;
    let location = format!("/ojs/v1/cron/{}", schedule.name);
    Ok(created(&in_object(schedule)?, &location))
}

pub(super) async fn set_cron(
    state: Shared,
    sender: RequireClient,
    Path(name): Path<String>,
    sent: JsonBody,
) -> HttpResult {
    let mut document: BTreeMap<String, Box<RawValue>> = sent.object()?;
    let invalid = |error: serde_json::Error| ApiError::invalid(error.to_string());
    document.insert("name".into(), to_raw_value(&name).map_err(invalid)?);
    let request = serde_json::from_str(&to_json(&document)).map_err(invalid)?;
    Ok(ok(&in_object(schedules::set(&state.app, sender.owner(), request, true).await?)?))
}

pub(super) async fn crons(state: Shared, _: RequireClient, Query(query): Query<ListQuery>) -> HttpResult {
    let (crons, pagination) = query.page_of(schedules::list(&state.app).await?)?;
    let jobs = crons.iter().map(cron_job).collect::<Result<Vec<_>, _>>()?;
    let crons: Vec<_> = crons.into_iter().map(schedules::schedule_view).collect();
    let fields = [("crons", raw(&crons)), ("cron_jobs", raw(&jobs)), ("pagination", raw(&pagination))];
    Ok(ok(&object(fields)?))
}

pub(super) async fn cron(state: Shared, _: RequireClient, Path(name): Path<String>) -> HttpResult {
    Ok(ok(&in_object(schedules::get(&state.app, &name).await?)?))
}

pub(super) async fn delete_cron(state: Shared, _: RequireClient, Path(name): Path<String>) -> HttpResult {
    let schedule = schedules::schedule_view(schedules::delete(&state.app, &name).await?);
    Ok(ok(&object([("cron", raw(&schedule)), ("deleted", raw(&true))])?))
}

pub(super) async fn submit(state: Shared, sender: RequireClient, sent: JsonBody) -> HttpResult {
    let request: WorkflowRequest = sent.object()?;
    let workflow = workflow::submit(&state.app, sender.owner(), request).await?;
    let location = format!("/ojs/v1/workflows/{}", workflow.id);
    Ok(created(&json!({"workflow": workflow::workflow_view(&workflow)}), &location))
}

pub(super) async fn list(state: Shared, _: RequireClient, Query(query): Query<ListQuery>) -> HttpResult {
    let (documents, pagination) = query.page_of(workflow::documents(&state.app).await?)?;
    let read = |(id, json): &(String, String)| Ok(workflow::workflow_view(&workflow::read(id, json)?));
    let workflows: Vec<Value> = documents.iter().map(read).collect::<Result<_, StoreError>>()?;
    Ok(ok(&json!({"workflows": workflows, "pagination": pagination})))
}

pub(super) async fn get(state: Shared, _: RequireClient, Path(id): Path<String>) -> HttpResult {
    Ok(ok(&json!({"workflow": workflow::workflow_view(&workflow::observe_step(&state.app, &id).await?)})))
}

pub(super) async fn cancel(state: Shared, _: RequireClient, Path(id): Path<String>) -> HttpResult {
    let workflow = workflow::cancel(&state.app, &id).await?;
    Ok(ok(&json!({"workflow": workflow::workflow_view(&workflow)})))
}
