//! Jobs as those see them who submit and watch.

use agenix_protocol::ids::JobId;
use agenix_rules::{
    job::{self, Job},
    rejection::Rejection,
};

use crate::{
    app::House,
    commands::notice::nudge,
    error::CommandError,
    store::{Change, JobRule, Promise, StoredJob},
};

/// The job.
pub(crate) async fn get(house: &House, job_id: &JobId) -> Result<StoredJob, CommandError> {
    Ok(house.store.job(job_id).await?.ok_or_else(|| Rejection::JobNotFound(job_id.clone()))?)
}

/// What a worker last said of its progress: the job has it.
pub(crate) async fn progress(house: &House, job_id: &JobId) -> Result<Job, CommandError> {
    Ok(house.store.job_record(job_id).await?.ok_or_else(|| Rejection::JobNotFound(job_id.clone()))?)
}

/// Cancels a job that has not ended, wherever it stands; the job then.
pub(crate) async fn cancel(house: &House, job_id: &JobId) -> Result<StoredJob, CommandError> {
    let (now, id) = (house.clock.now(), job_id.clone());
    let rule: JobRule = Box::new(move |job: Option<&Job>| {
        let job = job.ok_or_else(|| Rejection::JobNotFound(id.clone()))?;
        // Said once more it is refused here, and is fine over RESP.
        if job.is_ended() { Err(Rejection::JobEnded(job.status())) } else { job::cancelled(job, now) }
    });
    let change = house.store.decide(job_id, Promise::Durable, None, rule).await??;
    if let Some(holder) = change.as_ref().and_then(Change::loser) {
        nudge(house, holder);
    }
    super::work::follow(house, change.as_ref()).await?;
    get(house, job_id).await
}

/// Releases a job that waits for that; the job then.
pub(crate) async fn activate(house: &House, job_id: &JobId) -> Result<StoredJob, CommandError> {
    let id = job_id.clone();
    let rule: JobRule = Box::new(move |job: Option<&Job>| {
        job::activated(job.ok_or_else(|| Rejection::JobNotFound(id.clone()))?)
    });
    house.store.decide(job_id, Promise::Durable, None, rule).await??;
    get(house, job_id).await
}
