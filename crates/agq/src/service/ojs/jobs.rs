//! Jobs as those see them who submit and watch.

use agenix_protocol::ids::JobId;
use agenix_rules::{
    job::{self, Job},
    rejection::Rejection,
};

use crate::{
    app::AppState,
    error::CommandError,
    service::worker_health::notify_worker,
    store::{AckLevel, JobChange, JobRule, StoredJob},
};

/// The job.
pub(crate) async fn get(app: &AppState, job_id: &JobId) -> Result<StoredJob, CommandError> {
    Ok(app.store.job(job_id).await?.ok_or_else(|| Rejection::JobNotFound(job_id.clone()))?)
}

/// What a worker last said of its progress: the job has it.
pub(crate) async fn progress(app: &AppState, job_id: &JobId) -> Result<Job, CommandError> {
    Ok(app.store.job_record(job_id).await?.ok_or_else(|| Rejection::JobNotFound(job_id.clone()))?)
}

/// Cancels a job that has not ended, wherever it stands; the job then.
pub(crate) async fn cancel(app: &AppState, job_id: &JobId) -> Result<StoredJob, CommandError> {
    let (now, id) = (app.clock.now(), job_id.clone());
    let rule: JobRule = Box::new(move |job: Option<&Job>| {
        let job = job.ok_or_else(|| Rejection::JobNotFound(id.clone()))?;
        // Said once more it is refused here, and is fine over RESP.
        if job.is_ended() { Err(Rejection::JobEnded(job.status())) } else { job::cancelled(job, now) }
    });
    let change = app.store.decide(job_id, AckLevel::Durable, None, rule).await??;
    if let Some(holder) = change.as_ref().and_then(JobChange::released_holder) {
        notify_worker(app, holder);
    }
    super::work::on_job_ended(app, change.as_ref()).await?;
    get(app, job_id).await
}

/// Releases a job that waits for that; the job then.
pub(crate) async fn activate(app: &AppState, job_id: &JobId) -> Result<StoredJob, CommandError> {
    let id = job_id.clone();
    let rule: JobRule = Box::new(move |job: Option<&Job>| {
        job::activated(job.ok_or_else(|| Rejection::JobNotFound(id.clone()))?)
    });
    app.store.decide(job_id, AckLevel::Durable, None, rule).await??;
    get(app, job_id).await
}
