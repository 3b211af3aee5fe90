//! Dead letters of the Open Job Spec: dead jobs, which are kept for analysis and retry.

use agenix_protocol::{documents::Status, ids::JobId, request::Search};
use agenix_rules::{
    job::{self, Job, JobState},
    rejection::Rejection,
};

use super::{lookup, workflow};
use crate::{
    app::AppState,
    error::CommandError,
    store::{AckLevel, JobRule, StoredJob},
};

/// Returns the number of dead letters, and at most `limit` of their ids, the newest first.
pub(crate) async fn dead_letters(app: &AppState, limit: usize) -> Result<(u64, Vec<JobId>), CommandError> {
    let total = app.store.totals().await?.now[Status::Dead as usize];
    let search = Search { status: Some(Status::Dead), limit, ..Search::default() };
    Ok((total, app.store.search(search).await?))
}

/// Returns the dead letter of a job. Rejects a job that is not dead.
pub(crate) async fn dead_letter(app: &AppState, job_id: &JobId) -> Result<StoredJob, CommandError> {
    let job = lookup::job(app, job_id).await?;
    if job.job.status() == Status::Dead {
        Ok(job)
    } else {
        Err(Rejection::JobNotFound(job_id.clone()).into())
    }
}

/// Queues a discarded job again with all its attempts, and returns the job.
pub(crate) async fn retry(app: &AppState, job_id: &JobId) -> Result<StoredJob, CommandError> {
    let id = job_id.clone();
    let retried = move |job: Option<&Job>| {
        let job = job.ok_or_else(|| Rejection::JobNotFound(id.clone()))?;
        if job.state == JobState::Discarded { job::retried(job, true) } else { Err(Rejection::JobNotFailed) }
    };
    let job = app.store.job_record(job_id).await?;
    retried(job.as_ref())?;
    let place = match &job {
        Some(job) => workflow::place_of(app, job).await?,
        None => None,
    };
    workflow::resume(app, place.as_ref()).await?;
    let rule: JobRule = Box::new(retried);
    app.store.decide(job_id, AckLevel::Durable, None, rule).await??;
    workflow::resume(app, place.as_ref()).await?;
    lookup::job(app, job_id).await
}

/// Queues a dead letter again, and returns the job.
pub(crate) async fn retry_dead(app: &AppState, job_id: &JobId) -> Result<StoredJob, CommandError> {
    dead_letter(app, job_id).await?;
    retry(app, job_id).await
}

/// Deletes a dead letter.
pub(crate) async fn forget_dead(app: &AppState, job_id: &JobId) -> Result<(), CommandError> {
    dead_letter(app, job_id).await?;
    if app.store.forget_job(job_id, Status::Dead).await? {
        Ok(())
    } else {
        Err(Rejection::JobNotFound(job_id.clone()).into())
    }
}
