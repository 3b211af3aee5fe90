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

use super::workers::{named, seen, touch};
use crate::{
    app::House,
    commands::{
        notice::{begin_trial, end_trial_claim, note_outcome},
        wake_due, workflow,
    },
    error::CommandError,
    store::{Change, Claim, Claimant, JobRule, Promise, StoredJob},
    waiters::Handed,
};

/// Most jobs that are fetched at once.
const MAX_FETCHED: u64 = 1000;
/// Longest wait for a job, in milliseconds.
const MAX_WAIT_MS: u64 = 60_000;
/// Most jobs that a fetch makes available whose time has come.
const MAX_WOKEN: usize = 100;

/// Gives a worker jobs, in the order of its queues. Whoever drops them gives them back.
pub(crate) async fn fetch(
    house: &House,
    own: Option<&WorkerId>,
    asked: OjsFetch,
) -> Result<Vec<Handed<Claim>>, CommandError> {
    if asked.queues.is_empty() {
        let text = "queues is empty: name at least one to fetch from";
        return Err(Rejection::InvalidJob(text.into()).into());
    }
    asked.queues.iter().try_for_each(|queue| check_name(queue))?;
    check_visibility(asked.visibility_timeout_ms)?;
    let worker_id = named(own, asked.worker_id.as_deref())?;
    let count = asked.count.unwrap_or(1).min(MAX_FETCHED);
    let dismissals = house.matchmaker.dismissals();
    let worker = match &worker_id {
        Some(worker_id) => Some(seen(house, worker_id, asked.visibility_timeout_ms).await?),
        None => None,
    };
    let claimant = claimant(house, worker.as_ref(), &asked).await?;
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    match worker.filter(|worker| !worker.wants_jobs()) {
        None => take(house, claimant, dismissals, count, asked.wait_ms).await,
        Some(worker)
            if !worker.is_quiet
                && count > 0
                && begin_trial(house, &worker, &claimant.queues, asked.wait_ms.unwrap_or_default() > 0)
                    .await? =>
        {
            let jobs = take(house, claimant, dismissals, 1, asked.wait_ms).await?;
            end_trial_claim(house, &worker.worker_id, !jobs.is_empty()).await?;
            Ok(jobs)
        }
        Some(_no_taker) => Ok(Vec::new()),
    }
}

/// Takes the jobs that are ready, at most `count`. If no job is ready, waits up to `wait_ms` for
/// the first one.
async fn take(
    house: &House,
    claimant: Claimant,
    dismissals: u64,
    count: usize,
    wait_ms: Option<u64>,
) -> Result<Vec<Handed<Claim>>, CommandError> {
    let mut jobs = house.matchmaker.jobs_now(&claimant, count).await?;
    if jobs.len() < count && wake_due(house, MAX_WOKEN).await? > 0 {
        // What has just become due need not wait for the reaper's next round.
        jobs.extend(house.matchmaker.jobs_now(&claimant, count - jobs.len()).await?);
    }
    let wait = wait_ms.unwrap_or_default().min(MAX_WAIT_MS);
    if !jobs.is_empty() || wait == 0 || count == 0 {
        return Ok(jobs);
    }
    let mut jobs = house.matchmaker.jobs(claimant.clone(), dismissals, BlockingWait::Ms(wait), count).await?;
    if !jobs.is_empty() && jobs.len() < count {
        jobs.extend(house.matchmaker.jobs_now(&claimant, count - jobs.len()).await?);
    }
    Ok(jobs)
}

/// How long a job may be reserved.
pub(super) fn check_visibility(ms: Option<u64>) -> Result<(), Rejection> {
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
    house: &House,
    worker: Option<&Worker>,
    asked: &OjsFetch,
) -> Result<Claimant, CommandError> {
    let abilities = match worker {
        Some(worker) => house.abilities.of(&*house.store, worker).await?,
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
pub(crate) struct Done {
    pub(crate) job: StoredJob,
}

/// A job is done.
pub(crate) async fn ack(
    house: &House,
    own: Option<&WorkerId>,
    job_id: &JobId,
    asked: OjsAck,
) -> Result<Done, CommandError> {
    let who = named(own, asked.worker_id.as_deref())?;
    touch(house, who.as_ref()).await?;
    let results = asked.result.map(|result| String::from(Box::<str>::from(result)));
    if results.as_ref().is_some_and(|results| results.len() > MAX_UPDATE_BYTES) {
        let text =
            format!("result has more than {MAX_UPDATE_BYTES} bytes: keep it elsewhere, and return where");
        return Err(Rejection::InvalidJob(text).into());
    }
    let (now, id, holder) = (house.clock.now(), job_id.clone(), who.clone());
    let rule: JobRule = Box::new(move |job: Option<&Job>| {
        let job = job.ok_or_else(|| Rejection::JobNotFound(id.clone()))?;
        job::acked(job, Reporter { who: holder.as_ref().map(WorkerId::as_str), attempt: asked.attempt }, now)
    });
    let change = house.store.decide(job_id, Promise::Durable, results.map(Bytes::from), rule).await??;
    settle(house, job_id, change, false).await
}

/// A job failed, or is given back.
pub(crate) async fn nack(
    house: &House,
    own: Option<&WorkerId>,
    job_id: &JobId,
    asked: OjsNack,
) -> Result<Done, CommandError> {
    let who = named(own, asked.worker_id.as_deref())?;
    touch(house, who.as_ref()).await?;
    let fault = fault_of(asked.error.unwrap_or_default());
    let (now, jitter) = (house.clock.now(), house.clock.chance());
    let (id, requeue, attempt) = (job_id.clone(), asked.requeue.unwrap_or_default(), asked.attempt);
    let rule: JobRule = Box::new(move |job: Option<&Job>| {
        let job = job.ok_or_else(|| Rejection::JobNotFound(id.clone()))?;
        let said = Reporter { who: who.as_ref().map(WorkerId::as_str), attempt };
        job::nacked(job, said, &fault, requeue, now, jitter)
    });
    let change = house.store.decide(job_id, Promise::Durable, None, rule).await??;
    settle(house, job_id, change, !requeue).await
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
    house: &House,
    job_id: &JobId,
    change: Option<Change>,
    failed: bool,
) -> Result<Done, CommandError> {
    if let Some((change, holder)) = change.as_ref().and_then(|change| Some((change, change.loser()?))) {
        note_outcome(house, holder, &change.before, failed).await?;
    }
    follow(house, change.as_ref()).await?;
    Ok(Done { job: super::jobs::get(house, job_id).await? })
}

/// What follows from a job's end.
pub(crate) async fn follow(house: &House, change: Option<&Change>) -> Result<(), CommandError> {
    let after = change.map(|change| &change.after).filter(|after| after.is_ended());
    match after.and_then(|after| after.ojs.as_ref()?.workflow.as_ref()) {
        Some(workflow_id) => workflow::step_ended(house, workflow_id).await,
        None => Ok(()),
    }
}

/// How far a worker is with a job; of one that nobody has it says nothing.
pub(crate) async fn report_progress(
    house: &House,
    own: Option<&WorkerId>,
    job_id: &JobId,
    asked: OjsProgress,
) -> Result<Job, CommandError> {
    if !asked.progress.is_finite() {
        return Err(Rejection::InvalidJob("progress is no number from 0 to 1".into()).into());
    }
    let now = house.clock.now();
    let report = Progress::new(asked.message.as_deref(), asked.data.map(|data| to_json(&data)), now);
    let who = named(own, asked.worker_id.as_deref())?;
    touch(house, who.as_ref()).await?;
    let (id, progress) = (job_id.clone(), asked.progress);
    let rule: JobRule = Box::new(move |job: Option<&Job>| {
        let job = job.ok_or_else(|| Rejection::JobNotFound(id.clone()))?;
        job::progressed(job, who.as_ref().map(WorkerId::as_str), progress, &report, now)
    });
    house.store.decide(job_id, Promise::Visible, None, rule).await??;
    super::jobs::progress(house, job_id).await
}
