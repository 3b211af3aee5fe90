//! Records by their ids, or the rejection that names the missing record.

use std::sync::Arc;

use agenix_protocol::{
    documents::Plan,
    ids::{ActionId, JobId, PlanId, WorkerId},
};
use agenix_rules::{
    action::{Action, JobCounts},
    job::Job,
    rejection::Rejection,
    worker::Worker,
};
use serde::de::DeserializeOwned;

use crate::{
    app::AppState,
    error::Result,
    store::{StoreError, StoredJob},
};

/// Parses the document of a record, which is broken if that fails.
pub(crate) fn parse<T: DeserializeOwned>(kind: &str, id: &str, json: &str) -> Result<T, StoreError> {
    serde_json::from_str(json).map_err(|error| StoreError(format!("the {kind} {id} cannot be read: {error}")))
}

/// Finds a plan of the same connection, because PLAN.SUBMIT runs alone on its connection.
pub(crate) async fn plan(app: &AppState, plan_id: &PlanId) -> Result<Arc<Plan>> {
    let found = app.store.plan(plan_id).await?;
    let stored = found.ok_or_else(|| Rejection::PlanNotFound(plan_id.clone()))?;
    let plan = app.plans.read(&stored.json);
    Ok(plan.map_err(|error| StoreError(format!("plan {plan_id} cannot be read: {error}")))?)
}

pub(crate) async fn action(app: &AppState, action_id: &ActionId) -> Result<(Action, JobCounts)> {
    let found = app.store.action(action_id).await?;
    Ok(found.ok_or_else(|| Rejection::ActionNotFound(action_id.clone()))?)
}

/// Returns a job with its input and results.
pub(crate) async fn job(app: &AppState, job_id: &JobId) -> Result<StoredJob> {
    Ok(app.store.job(job_id).await?.ok_or_else(|| Rejection::JobNotFound(job_id.clone()))?)
}

/// Returns the record of a job, without its input and results.
pub(crate) async fn job_record(app: &AppState, job_id: &JobId) -> Result<Job> {
    Ok(app.store.job_record(job_id).await?.ok_or_else(|| Rejection::JobNotFound(job_id.clone()))?)
}

pub(crate) async fn worker(app: &AppState, worker_id: &WorkerId) -> Result<Worker> {
    Ok(app.store.worker(worker_id).await?.ok_or_else(|| Rejection::WorkerUnknown(worker_id.clone()))?)
}
