//! Dead letters: jobs that are kept because nothing came of them. They are the dead jobs of the other door.

use agenix_protocol::{documents::Status, ids::JobId, request::Search};
use agenix_rules::{
    job::{self, Job, JobState},
    rejection::Rejection,
};

use super::jobs::get;
use crate::{
    app::House,
    commands::workflow,
    error::CommandError,
    store::{JobRule, Promise, StoredJob},
};

/// Returns the number of dead letters, and at most `limit` of their ids, the newest first.
pub(crate) async fn dead_letters(house: &House, limit: usize) -> Result<(u64, Vec<JobId>), CommandError> {
    let total = house.store.totals().await?.now[Status::Dead as usize];
    let search = Search { status: Some(Status::Dead), limit, ..Search::default() };
    Ok((total, house.store.search(search).await?))
}

/// The dead letter.
pub(crate) async fn dead_letter(house: &House, job_id: &JobId) -> Result<StoredJob, CommandError> {
    let job = get(house, job_id).await?;
    if job.job.status() == Status::Dead {
        Ok(job)
    } else {
        Err(Rejection::JobNotFound(job_id.clone()).into())
    }
}

/// A job that was discarded is tried again, as if it never had been; the job then.
pub(crate) async fn retry(house: &House, job_id: &JobId) -> Result<StoredJob, CommandError> {
    let id = job_id.clone();
    let retried = move |job: Option<&Job>| {
        let job = job.ok_or_else(|| Rejection::JobNotFound(id.clone()))?;
        if job.state == JobState::Discarded { job::retried(job, true) } else { Err(Rejection::JobNotFailed) }
    };
    let job = house.store.job_record(job_id).await?;
    retried(job.as_ref())?;
    let place = match &job {
        Some(job) => workflow::place_of(house, job).await?,
        None => None,
    };
    workflow::take_up(house, place.as_ref()).await?;
    let rule: JobRule = Box::new(retried);
    house.store.decide(job_id, Promise::Durable, None, rule).await??;
    workflow::take_up(house, place.as_ref()).await?;
    get(house, job_id).await
}

/// A dead letter is tried again; the job then.
pub(crate) async fn retry_dead(house: &House, job_id: &JobId) -> Result<StoredJob, CommandError> {
    dead_letter(house, job_id).await?;
    retry(house, job_id).await
}

/// Forgets a dead letter.
pub(crate) async fn forget_dead(house: &House, job_id: &JobId) -> Result<(), CommandError> {
    dead_letter(house, job_id).await?;
    if house.store.forget_job(job_id, Status::Dead).await? {
        Ok(())
    } else {
        Err(Rejection::JobNotFound(job_id.clone()).into())
    }
}
