//! JOB.*: what workers report and what users see (AGQ API spec §3).

use std::sync::Arc;

use agenix_protocol::{
    documents::{self, JobStatus, JobUpdate, Status, TaskResult},
    ids::{ActionId, JobId, WorkerId},
    request::{Search, Slice},
    resp::Reply,
};
use agenix_rules::{
    job::{self, Job},
    plan,
    rejection::Rejection,
};
use bytes::Bytes;
use serde_json::value::RawValue;

use super::{
    identity,
    worker_health::{notify_worker, record_outcome},
    workflow,
};
use crate::{
    app::{AppState, Caller},
    error::CommandError,
    resp::outcome::{CommandResult, json},
    store::{AckLevel, JobChange, JobRule, StoreError, StoredJob},
};

/// JOB.UPDATE
pub(crate) async fn update(app: &AppState, caller: &Caller, job_id: &JobId, json: &[u8]) -> CommandResult {
    let mut update: JobUpdate =
        documents::parse_object(json).map_err(|error| Rejection::InvalidUpdate(error.to_string()))?;
    let results = update.task_results.take().map(|results| String::from(Box::<str>::from(results)));
    if results.as_ref().is_some_and(|results| !results.starts_with('[')) {
        return Err(Rejection::InvalidUpdate("task_results is not an array".into()).into());
    }
    if let Some(Err(error)) = results.as_deref().map(documents::check_depth) {
        return Err(Rejection::InvalidUpdate(format!("task_results: {error}")).into());
    }
    let who = identity::reporter(app, caller, update.worker_id.as_ref()).await?;
    let status = update.status;
    let blamed = results.as_deref().filter(|_| status == Some(Status::Failed)).map(read_results);
    let exit_code = blamed.and_then(|results| TaskResult::blamed(&results).map(|result| result.exit_code));
    // What a user would miss is on disk before the answer; that a job runs is not (design, decision 4).
    let is_end = update.status.is_some_and(Status::is_ended);
    let promise = if is_end { AckLevel::Durable } else { AckLevel::Visible };
    let (now, jitter, id) = (app.clock.now(), app.clock.chance(), job_id.clone());
    let holder = Arc::clone(&who);
    let rule = move |job: Option<&Job>| {
        let job = job.ok_or_else(|| Rejection::JobNotFound(id.clone()))?;
        job::updated(job, &update, &holder, exit_code, now, jitter)
    };
    let change = app.store.decide(job_id, promise, results.map(Bytes::from), Box::new(rule)).await??;
    let Some(JobChange { before, .. }) = change else { return Ok(Reply::ok()) };
    match status {
        Some(Status::Completed) => record_outcome(app, &who, &before, false).await?,
        Some(Status::Failed) if job::counts_against_worker(exit_code) => {
            record_outcome(app, &who, &before, true).await?;
        }
        _ => {}
    }
    Ok(Reply::ok())
}

/// JOB.CANCEL
pub(crate) async fn cancel(app: &AppState, job_id: &JobId) -> CommandResult {
    let (now, id) = (app.clock.now(), job_id.clone());
    let rule: JobRule = Box::new(move |job: Option<&Job>| {
        job::cancelled(job.ok_or_else(|| Rejection::JobNotFound(id.clone()))?, now)
    });
    let change = app.store.decide(job_id, AckLevel::Durable, None, rule).await??;
    if let Some(holder) = change.as_ref().and_then(JobChange::released_holder) {
        notify_worker(app, holder);
    }
    Ok(Reply::Simple("OK job cancelled".into()))
}

/// JOB.RETRY
pub(crate) async fn retry(app: &AppState, job_id: &JobId, force: bool) -> CommandResult {
    let stored = app.store.job(job_id).await?.ok_or_else(|| Rejection::JobNotFound(job_id.clone()))?;
    job::retried(&stored.job, force)?;
    let plan = super::plan::find(app, &stored.job.plan_id).await?;
    plan::check_same_needs(&plan, &stored.job.plan_id, &stored.needs)?;
    let place = workflow::place_of(app, &stored.job).await?;
    workflow::resume(app, place.as_ref()).await?;
    let id = job_id.clone();
    let rule: JobRule = Box::new(move |job: Option<&Job>| {
        job::retried(job.ok_or_else(|| Rejection::JobNotFound(id.clone()))?, force)
    });
    app.store.decide(job_id, AckLevel::Durable, None, rule).await??;
    workflow::resume(app, place.as_ref()).await?;
    Ok(Reply::Simple("OK job re-queued".into()))
}

/// JOBS.SEARCH
pub(crate) async fn search(app: &AppState, search: Search) -> CommandResult {
    Ok(Reply::bulks(app.store.search(search).await?.into_iter().map(String::from)))
}

/// JOB.STATUS
pub(crate) async fn status(app: &AppState, job_id: &JobId) -> CommandResult {
    Ok(document(app, job_id).await?.map_or(Reply::Nil, |job| json(&job)))
}

/// What `JOB.STATUS` says of a job.
pub(crate) async fn document(app: &AppState, job_id: &JobId) -> Result<Option<JobStatus>, CommandError> {
    let Some(stored) = app.store.job(job_id).await? else { return Ok(None) };
    let broken = |error: serde_json::Error| StoreError(format!("job {job_id} cannot be read: {error}"));
    Ok(Some(job_document(stored).map_err(broken)?))
}

pub(crate) fn job_document(stored: StoredJob) -> Result<JobStatus, serde_json::Error> {
    let StoredJob { job, queue, input, results, .. } = stored;
    let status = job.status();
    let results_of = results.as_deref().map_or_else(Vec::new, read_results);
    let last = TaskResult::blamed(&results_of).or(results_of.last());
    let text = |kept: &documents::CapturedOutput| String::from_utf8_lossy(&kept.bytes).into_owned();
    Ok(JobStatus {
        status,
        state: job.state.as_str().into(),
        index: job.index,
        attempt: job.attempt,
        queue,
        priority: job.priority,
        run_at: job.due_at.filter(|_| status == Status::Pending),
        created_at: job.created_at,
        started_at: job.started_at,
        completed_at: job.ended_at,
        worker_id: job.holder,
        current_task: job.current_task,
        progress_percent: job.progress_percent,
        error: job.error,
        inputs: RawValue::from_string(input)?,
        exit_code: last.map(|result| result.exit_code),
        stdout: last.filter(|_| status == Status::Completed).map(|result| text(&result.stdout)),
        stderr: last.filter(|_| status != Status::Completed).map(|result| text(&result.stderr)),
        task_results: results.map(RawValue::from_string).transpose()?,
        job_id: job.job_id,
        action_id: job.action_id,
        plan_id: job.plan_id,
    })
}

/// What a worker reported, where it has the form that agw gives it.
fn read_results(results: &str) -> Vec<TaskResult> {
    serde_json::from_str(results).unwrap_or_default()
}

/// JOB.LIST
pub(crate) async fn list(
    app: &AppState,
    action_id: &ActionId,
    status: Option<Status>,
    slice: Slice,
) -> CommandResult {
    let jobs = app.store.jobs_of(action_id, status.into_iter().collect(), slice).await?;
    Ok(Reply::bulks(jobs.into_iter().map(String::from)))
}

/// A claim whose reply may never have arrived: the job goes back unless it was reported since.
pub(crate) async fn release_unreported(
    app: &AppState,
    job_id: &JobId,
    holder: &str,
    attempt: u32,
) -> Result<(), CommandError> {
    let rule = back_rule(holder, Some(attempt));
    app.store.decide(job_id, AckLevel::Visible, None, rule).await??;
    Ok(())
}

/// A holder is no more: everything it has goes back.
pub(crate) async fn release_all(app: &AppState, holder: &str) -> Result<(), CommandError> {
    decide_all(app, holder, || back_rule(holder, None)).await
}

/// A holder is dead: everything it has goes to others, and it counts against the jobs.
pub(crate) async fn requeue_lost(app: &AppState, holder: &str) -> Result<(), CommandError> {
    let now = app.clock.now();
    decide_all(app, holder, || {
        let holder = holder.to_owned();
        Box::new(move |job| {
            Ok(job.map_or(job::RuleOutcome::Unchanged, |job| job::abandoned(job, &holder, now)))
        })
    })
    .await
}

/// A worker has registered: what it was given and does not have goes to others.
pub(crate) async fn reclaim(
    app: &AppState,
    worker_id: &WorkerId,
    has: Option<Vec<JobId>>,
) -> Result<(), CommandError> {
    let has: Option<Arc<[JobId]>> = has.map(Into::into);
    let now = app.clock.now();
    decide_all(app, worker_id.as_str(), || {
        let (holder, has) = (worker_id.clone(), has.clone());
        Box::new(move |job| {
            let reclaimed = |job| job::reclaimed(job, holder.as_str(), has.as_deref(), now);
            Ok(job.map_or(job::RuleOutcome::Unchanged, reclaimed))
        })
    })
    .await
}

/// Applies a rule to every job of a holder, all in one batch.
async fn decide_all(app: &AppState, holder: &str, rule: impl Fn() -> JobRule) -> Result<(), CommandError> {
    let jobs = app.store.held_by(holder).await?;
    let answers: Vec<_> =
        jobs.iter().map(|job_id| app.store.decide(job_id, AckLevel::Durable, None, rule())).collect();
    for answer in answers {
        answer.await??;
    }
    Ok(())
}

fn back_rule(holder: &str, attempt: Option<u32>) -> JobRule {
    let holder = holder.to_owned();
    Box::new(move |job| {
        Ok(job.map_or(job::RuleOutcome::Unchanged, |job| job::given_back(job, &holder, attempt)))
    })
}
