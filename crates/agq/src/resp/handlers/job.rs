//! JOB.* and JOBS.SEARCH (AGQ API spec §3).

use agenix_protocol::{
    documents::{self, JobUpdate, Status},
    ids::{ActionId, JobId},
    request::{Search, Slice},
    resp::Reply,
};
use agenix_rules::rejection::Rejection;

use crate::{
    app::{AppState, Caller},
    resp::outcome::{CommandResult, json as document, object},
    service::{explain, jobs},
};

pub(crate) async fn update(app: &AppState, caller: &Caller, job_id: &JobId, json: &[u8]) -> CommandResult {
    let mut update: JobUpdate = object(json, Rejection::InvalidUpdate)?;
    let results = update.task_results.take().map(|results| String::from(Box::<str>::from(results)));
    if results.as_ref().is_some_and(|results| !results.starts_with('[')) {
        return Err(Rejection::InvalidUpdate("task_results is not an array".into()).into());
    }
    if let Some(Err(error)) = results.as_deref().map(documents::check_depth) {
        return Err(Rejection::InvalidUpdate(format!("task_results: {error}")).into());
    }
    jobs::report(app, caller, job_id, update, results).await?;
    Ok(Reply::ok())
}

pub(crate) async fn cancel(app: &AppState, job_id: &JobId) -> CommandResult {
    jobs::cancel(app, job_id).await?;
    Ok(Reply::Simple("OK job cancelled".into()))
}

pub(crate) async fn forget(app: &AppState, job_id: &JobId) -> CommandResult {
    jobs::forget(app, job_id).await?;
    Ok(Reply::Simple("OK job forgotten".into()))
}

pub(crate) async fn retry(app: &AppState, job_id: &JobId, force: bool) -> CommandResult {
    jobs::retry(app, job_id, force).await?;
    Ok(Reply::Simple("OK job re-queued".into()))
}

pub(crate) async fn status(app: &AppState, job_id: &JobId) -> CommandResult {
    Ok(jobs::status(app, job_id).await?.map_or(Reply::Nil, |job| document(&job)))
}

pub(crate) async fn explain(app: &AppState, job_id: &JobId) -> CommandResult {
    Ok(document(&explain::explain(app, job_id).await?))
}

pub(crate) async fn search(app: &AppState, caller: &Caller, search: Search) -> CommandResult {
    let owner = caller.agent().map(|agent| agent.owner.clone());
    Ok(Reply::bulks(app.store.search(search, owner).await?.into_iter().map(String::from)))
}

pub(crate) async fn list(
    app: &AppState,
    action_id: &ActionId,
    status: Option<Status>,
    slice: Slice,
) -> CommandResult {
    let jobs = app.store.jobs_of(action_id, status.into_iter().collect(), slice).await?;
    Ok(Reply::bulks(jobs.into_iter().map(String::from)))
}
