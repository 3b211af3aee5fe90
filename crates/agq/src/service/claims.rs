//! Claims over RESP: a connection takes jobs from queues, at once or when a job is ready.
//!
//! A [`Handoff`] returns its job to the queue when it is dropped. A caller takes the claim out of
//! the handoff when the reply is complete.

use agenix_protocol::{documents::JobDocument, ids::QueueName, request::BlockingWait};
use serde_json::value::RawValue;

use super::{identity, worker_health::end_trial_claim};
use crate::{
    app::{AppState, Caller},
    error::Result,
    store::{Claim, StoreError},
    waiters::Handoff,
};

/// Claims at most `limit` ready jobs of `queues`. With `wait`, waits for one job if no job is
/// ready. A quarantined worker on trial claims one job only.
pub(crate) async fn claim(
    app: &AppState,
    caller: &Caller,
    queues: &[QueueName],
    wait: Option<BlockingWait>,
    limit: usize,
) -> Result<Vec<Handoff<Claim>>> {
    let names = queues.iter().map(|queue| queue.as_str().to_owned()).collect();
    // Read before the worker's record: a worker evicted after that must not wait with the old one.
    let evictions = app.waiters.evictions();
    let (claimant, on_trial) = identity::claimant(app, caller, names, wait.is_some()).await?;
    let limit = if on_trial.is_some() { 1 } else { limit };
    let jobs = match wait {
        Some(wait) => app.waiters.jobs(claimant, evictions, wait, limit).await?,
        None => app.waiters.jobs_now(&claimant, limit).await?,
    };
    jobs.iter().for_each(|job| app.job_times.claimed(job.get()));
    if let Some(worker_id) = on_trial {
        end_trial_claim(app, &worker_id, !jobs.is_empty()).await?;
    }
    Ok(jobs)
}

pub(crate) fn document(claim: &Claim) -> Result<JobDocument, StoreError> {
    let raw =
        |text: &str| RawValue::from_string(text.to_owned()).map_err(|error| StoreError(error.to_string()));
    Ok(JobDocument {
        job_id: claim.job.job_id.clone(),
        action_id: claim.job.action_id.clone(),
        plan_id: claim.job.plan_id.clone(),
        plan: raw(&claim.plan)?,
        inputs: raw(&claim.input)?,
        attempt: claim.job.attempt,
        traceparent: claim.job.ojs.as_ref().and_then(|ojs| ojs.traceparent()),
    })
}
