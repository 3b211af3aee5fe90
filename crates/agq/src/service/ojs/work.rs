//! Jobs as those see them who work: fetched, done, failed.

use std::sync::Arc;

use agenix_protocol::{
    documents::{OjsAck, OjsFault, OjsFetch, OjsNack, OjsProgress, to_json},
    ids::{JobId, WorkerId},
    limits::MAX_UPDATE_BYTES,
    request::BlockingWait,
};
use agenix_rules::{
    capability::Abilities,
    job::{self, Job, Progress, ReportedFailure, Reporter},
    ojs::{MAX_MS, NOBODY, OJS_TAG},
    rejection::Rejection,
    worker::Worker,
};
use bytes::Bytes;
use serde_json::{Map, Value};

use super::workers::{record_activity, reporting_worker, seen_worker};
use crate::{
    app::AppState,
    error::CommandError,
    service::{
        timers::fire_due_jobs,
        worker_health::{begin_trial, end_trial_claim, record_outcome},
        workflow,
    },
    store::{AckLevel, Claim, Claimant, JobChange, JobRule, StoredJob},
    waiters::Handoff,
};

/// Most jobs that are fetched at once.
const MAX_FETCHED: u64 = 1000;
/// Longest wait for a job, in milliseconds.
const MAX_WAIT_MS: u64 = 60_000;
/// Most jobs that a fetch makes available whose time has come.
const MAX_WOKEN: usize = 100;

/// Gives a worker jobs, in the order of its queues. Whoever drops them gives them back.
pub(crate) async fn fetch(
    app: &AppState,
    own: Option<&WorkerId>,
    asked: OjsFetch,
) -> Result<Vec<Handoff<Claim>>, CommandError> {
    if asked.queues.is_empty() {
        let text = "queues is empty: name at least one to fetch from";
        return Err(Rejection::InvalidJob(text.into()).into());
    }
    asked.queues.iter().try_for_each(|queue| check_name(queue))?;
    check_visibility(asked.visibility_timeout_ms)?;
    let worker_id = reporting_worker(own, asked.worker_id.as_deref())?;
    let count = asked.count.unwrap_or(1).min(MAX_FETCHED);
    let dismissals = app.waiters.evictions();
    let worker = match &worker_id {
        Some(worker_id) => Some(seen_worker(app, worker_id, asked.visibility_timeout_ms).await?),
        None => None,
    };
    let claimant = claimant(app, worker.as_ref(), &asked).await?;
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    match worker.filter(|worker| !worker.wants_jobs()) {
        None => take(app, claimant, dismissals, count, asked.wait_ms).await,
        Some(worker)
            if !worker.is_quiet
                && count > 0
                && begin_trial(app, &worker, &claimant.queues, asked.wait_ms.unwrap_or_default() > 0)
                    .await? =>
        {
            let jobs = take(app, claimant, dismissals, 1, asked.wait_ms).await?;
            end_trial_claim(app, &worker.worker_id, !jobs.is_empty()).await?;
            Ok(jobs)
        }
        Some(_no_taker) => Ok(Vec::new()),
    }
}

/// Takes the jobs that are ready, at most `count`. If no job is ready, waits up to `wait_ms` for
/// the first one.
async fn take(
    app: &AppState,
    claimant: Claimant,
    dismissals: u64,
    count: usize,
    wait_ms: Option<u64>,
) -> Result<Vec<Handoff<Claim>>, CommandError> {
    let mut jobs = app.waiters.jobs_now(&claimant, count).await?;
    if jobs.len() < count && fire_due_jobs(app, MAX_WOKEN).await? > 0 {
        // What has just become due need not wait for the reaper's next round.
        jobs.extend(app.waiters.jobs_now(&claimant, count - jobs.len()).await?);
    }
    let wait = wait_ms.unwrap_or_default().min(MAX_WAIT_MS);
    if !jobs.is_empty() || wait == 0 || count == 0 {
        return Ok(jobs);
    }
    let mut jobs = app.waiters.jobs(claimant.clone(), dismissals, BlockingWait::Ms(wait), count).await?;
    if !jobs.is_empty() && jobs.len() < count {
        jobs.extend(app.waiters.jobs_now(&claimant, count - jobs.len()).await?);
    }
    Ok(jobs)
}

/// How long a job may be reserved.
pub(crate) fn check_visibility(ms: Option<u64>) -> Result<(), Rejection> {
    if ms.is_none_or(|ms| (1..=MAX_MS).contains(&ms)) {
        return Ok(());
    }
    Err(Rejection::InvalidJob(
        "visibility_timeout_ms is to be a whole number above 0, at most a hundred years".into(),
    ))
}

fn check_name(queue: &str) -> Result<(), Rejection> {
    let legal = agenix_protocol::ids::QueueName::new(queue);
    legal.map(drop).map_err(|error| Rejection::InvalidJob(error.to_string()))
}

async fn claimant(
    app: &AppState,
    worker: Option<&Worker>,
    asked: &OjsFetch,
) -> Result<Claimant, CommandError> {
    let abilities = match worker {
        Some(worker) => app.abilities.of(&*app.store, worker).await?,
        None => {
            let tags: Map<String, Value> = [(OJS_TAG.to_owned(), Value::Bool(true))].into_iter().collect();
            Arc::new(Abilities::Worker { commands: Default::default(), tags })
        }
    };
    Ok(Claimant {
        holder: worker.map_or(NOBODY, |worker| worker.worker_id.as_str()).into(),
        abilities,
        queues: asked.queues.clone().into(),
        visibility_ms: asked.visibility_timeout_ms,
    })
}

/// What came of a report.
pub(crate) struct ReportedJob {
    pub(crate) job: StoredJob,
}

/// A job is done.
pub(crate) async fn ack(
    app: &AppState,
    own: Option<&WorkerId>,
    job_id: &JobId,
    asked: OjsAck,
) -> Result<ReportedJob, CommandError> {
    let who = reporting_worker(own, asked.worker_id.as_deref())?;
    record_activity(app, who.as_ref()).await?;
    let results = asked.result.map(|result| String::from(Box::<str>::from(result)));
    if results.as_ref().is_some_and(|results| results.len() > MAX_UPDATE_BYTES) {
        let text =
            format!("result has more than {MAX_UPDATE_BYTES} bytes: keep it elsewhere, and return where");
        return Err(Rejection::InvalidJob(text).into());
    }
    let (now, id, holder) = (app.clock.now(), job_id.clone(), who.clone());
    let rule: JobRule = Box::new(move |job: Option<&Job>| {
        let job = job.ok_or_else(|| Rejection::JobNotFound(id.clone()))?;
        job::acked(job, Reporter { who: holder.as_ref().map(WorkerId::as_str), attempt: asked.attempt }, now)
    });
    let change = app.store.decide(job_id, AckLevel::Durable, results.map(Bytes::from), rule).await??;
    settle(app, job_id, change, false).await
}

/// A job failed, or is given back.
pub(crate) async fn nack(
    app: &AppState,
    own: Option<&WorkerId>,
    job_id: &JobId,
    asked: OjsNack,
) -> Result<ReportedJob, CommandError> {
    let who = reporting_worker(own, asked.worker_id.as_deref())?;
    record_activity(app, who.as_ref()).await?;
    let fault = fault_of(asked.error.unwrap_or_default());
    let (now, jitter) = (app.clock.now(), app.clock.chance());
    let (id, requeue, attempt) = (job_id.clone(), asked.requeue.unwrap_or_default(), asked.attempt);
    let rule: JobRule = Box::new(move |job: Option<&Job>| {
        let job = job.ok_or_else(|| Rejection::JobNotFound(id.clone()))?;
        let said = Reporter { who: who.as_ref().map(WorkerId::as_str), attempt };
        job::nacked(job, said, &fault, requeue, now, jitter)
    });
    let change = app.store.decide(job_id, AckLevel::Durable, None, rule).await??;
    settle(app, job_id, change, !requeue).await
}

/// What a worker says of a failure, with what is usual where it says nothing.
fn fault_of(told: OjsFault) -> ReportedFailure {
    let class = told.details.as_ref().and_then(|details| details.get("error_class")?.as_str());
    let code = told.code.clone().unwrap_or_else(|| "handler_error".into());
    ReportedFailure {
        kind: told.kind.clone().or(class.map(str::to_owned)).unwrap_or_else(|| code.clone()),
        code,
        message: told.message.unwrap_or_else(|| "the worker gave no reason".into()),
        retryable: told.retryable,
        details: told.details.map(|details| to_json(&details)),
    }
}

async fn settle(
    app: &AppState,
    job_id: &JobId,
    change: Option<JobChange>,
    failed: bool,
) -> Result<ReportedJob, CommandError> {
    if let Some((change, holder)) =
        change.as_ref().and_then(|change| Some((change, change.released_holder()?)))
    {
        record_outcome(app, holder, &change.before, failed).await?;
    }
    on_job_ended(app, change.as_ref()).await?;
    Ok(ReportedJob { job: super::jobs::get(app, job_id).await? })
}

/// What follows from a job's end.
pub(crate) async fn on_job_ended(app: &AppState, change: Option<&JobChange>) -> Result<(), CommandError> {
    let after = change.map(|change| &change.after).filter(|after| after.is_ended());
    match after.and_then(|after| after.ojs.as_ref()?.workflow.as_ref()) {
        Some(workflow_id) => workflow::step_ended(app, workflow_id).await,
        None => Ok(()),
    }
}

/// How far a worker is with a job; of one that nobody has it says nothing.
pub(crate) async fn report_progress(
    app: &AppState,
    own: Option<&WorkerId>,
    job_id: &JobId,
    asked: OjsProgress,
) -> Result<Job, CommandError> {
    if !asked.progress.is_finite() {
        return Err(Rejection::InvalidJob("progress is no number from 0 to 1".into()).into());
    }
    let now = app.clock.now();
    let report = Progress::new(asked.message.as_deref(), asked.data.map(|data| to_json(&data)), now);
    let who = reporting_worker(own, asked.worker_id.as_deref())?;
    record_activity(app, who.as_ref()).await?;
    let (id, progress) = (job_id.clone(), asked.progress);
    let rule: JobRule = Box::new(move |job: Option<&Job>| {
        let job = job.ok_or_else(|| Rejection::JobNotFound(id.clone()))?;
        job::progressed(job, who.as_ref().map(WorkerId::as_str), progress, &report, now)
    });
    app.store.decide(job_id, AckLevel::Visible, None, rule).await??;
    super::jobs::progress(app, job_id).await
}
