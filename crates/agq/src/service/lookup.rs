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

use crate::{
    app::AppState,
    error::CommandError,
    store::{StoreError, StoredJob},
};

/// Returns a plan. A plan that was submitted earlier on the same connection is found, because
/// PLAN.SUBMIT runs alone on its connection.
pub(crate) async fn plan(app: &AppState, plan_id: &PlanId) -> Result<Arc<Plan>, CommandError> {
    let found = app.store.plan(plan_id).await?;
    let stored = found.ok_or_else(|| Rejection::PlanNotFound(plan_id.clone()))?;
    Ok(app
        .plans
        .read(&stored.json)
        .map_err(|error| StoreError(format!("plan {plan_id} cannot be read: {error}")))?)
}

/// Returns an action with the counts of its jobs.
pub(crate) async fn action(
    app: &AppState,
    action_id: &ActionId,
) -> Result<(Action, JobCounts), CommandError> {
    let found = app.store.action(action_id).await?;
    Ok(found.ok_or_else(|| Rejection::ActionNotFound(action_id.clone()))?)
}

/// Returns a job with its input and results.
pub(crate) async fn job(app: &AppState, job_id: &JobId) -> Result<StoredJob, CommandError> {
    Ok(app.store.job(job_id).await?.ok_or_else(|| Rejection::JobNotFound(job_id.clone()))?)
}

/// Returns the record of a job, without its input and results.
pub(crate) async fn job_record(app: &AppState, job_id: &JobId) -> Result<Job, CommandError> {
    Ok(app.store.job_record(job_id).await?.ok_or_else(|| Rejection::JobNotFound(job_id.clone()))?)
}

/// Returns a worker.
pub(crate) async fn worker(app: &AppState, worker_id: &WorkerId) -> Result<Worker, CommandError> {
    Ok(app.store.worker(worker_id).await?.ok_or_else(|| Rejection::WorkerUnknown(worker_id.clone()))?)
}
