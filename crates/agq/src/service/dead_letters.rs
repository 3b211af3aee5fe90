//! Dead letters of the Open Job Spec: dead jobs, which are kept for analysis and retry.

use agenix_protocol::{documents::Status, ids::JobId, request::Search};
use agenix_rules::{
    job::{self, Job, JobState},
    rejection::Rejection,
};

use super::{approvals, job_changes::for_existing, jobs, lookup, workflow};
use crate::{
    app::AppState,
    error::Result,
    store::{AckLevel, StoredJob},
};

/// Returns the total, and at most `limit` ids, the newest first.
pub(crate) async fn dead_letters(app: &AppState, limit: usize) -> Result<(u64, Vec<JobId>)> {
    let total = app.store.totals().await?.now[Status::Dead as usize];
    let search = Search { status: Some(Status::Dead), limit, ..Search::default() };
    Ok((total, app.store.search(search, None).await?))
}

/// Rejects a job that is not dead.
pub(crate) async fn dead_letter(app: &AppState, job_id: &JobId) -> Result<StoredJob> {
    let job = Some(lookup::job(app, job_id).await?).filter(|job| job.job.status() == Status::Dead);
    Ok(job.ok_or_else(|| Rejection::JobNotFound(job_id.clone()))?)
}

/// Queues a discarded job again with all its attempts, and returns the job.
pub(crate) async fn retry(app: &AppState, job_id: &JobId) -> Result<StoredJob> {
    let now = app.clock.now();
    let retried = move |job: &Job| match job.state {
        JobState::Discarded => job::retried(job, true, now),
        _ => Err(Rejection::JobNotFailed),
    };
    let job = lookup::job_record(app, job_id).await?;
    retried(&job).map(drop)?;
    approvals::check_open(app, &job.plan_id, &job.action_id).await?;
    let place = workflow::place_of(app, &job).await?;
    workflow::resume(app, place.as_ref()).await?;
    app.store.decide(job_id, AckLevel::Durable, None, for_existing(job_id, retried)).await??;
    workflow::resume_after_retry(app, place.as_ref()).await?;
    lookup::job(app, job_id).await
}

pub(crate) async fn retry_dead(app: &AppState, job_id: &JobId) -> Result<StoredJob> {
    dead_letter(app, job_id).await?;
    retry(app, job_id).await
}

pub(crate) async fn forget_dead(app: &AppState, job_id: &JobId) -> Result<()> {
    dead_letter(app, job_id).await?;
    jobs::forget_ended(app, job_id, Status::Dead).await
}
