//! Queues as Redis' list commands see them: no lists, to pop one is to claim a job.

use std::sync::Arc;

use agenix_protocol::{
    documents::{JobDocument, to_json},
    ids::QueueName,
    request::{BlockingPop, BlockingWait},
    reserved_keys::{QUEUE_SCHEDULED, READY, SCHEDULED, claimed_queue, queue_of},
    resp::Reply,
};
use agenix_rules::rejection::Rejection;
use bytes::Bytes;
use serde_json::value::RawValue;

use super::keyspace;
use crate::{
    app::{AppState, Caller},
    error::CommandError,
    resp::outcome::{CommandOutcome, CommandResult, Effect, json},
    service::{identity, queue_stats, queues, worker_health::end_trial_claim},
    settings::PopReply,
    store::{Claim, StoreError},
    waiters::Handoff,
};

/// BRPOP, BLPOP, BLMOVE. Of a queue, it claims at most so many jobs that are there, for those behind it, too.
pub(crate) async fn blocking_pop(
    app: &AppState,
    caller: &Caller,
    pop: BlockingPop,
    most: usize,
) -> Result<CommandOutcome, CommandError> {
    let is_pair = shows_pair(app, caller, &pop);
    let queues: Vec<QueueName> = pop.keys.iter().filter_map(|key| claimed_queue(key)).collect();
    if queues.is_empty() {
        return Ok(CommandOutcome::plain(keyspace::blocking_pop(app, pop, is_pair).await?));
    }
    if queues.len() != pop.keys.len() || pop.to.is_some() {
        return Err(Rejection::MixedKeys.into());
    }
    let shown = |handed: Handoff<Claim>| {
        let value = document(handed.get())?;
        let key = queue_key(&handed.get().queue);
        let reply = if is_pair { Reply::bulks([key, value]) } else { Reply::Bulk(value) };
        Ok(given(handed.take(), reply))
    };
    let handed = wait_for_jobs(app, caller, &queues, pop.timeout, most).await?;
    let mut done = handed.into_iter().map(shown).collect::<Result<Vec<_>, CommandError>>()?.into_iter();
    let Some(first) = done.next() else {
        return Ok(CommandOutcome::plain(if is_pair { Reply::NilArray } else { Reply::Nil }));
    };
    Ok(CommandOutcome { also: done.collect(), ..first })
}

async fn wait_for_jobs(
    app: &AppState,
    caller: &Caller,
    queues: &[QueueName],
    wait: BlockingWait,
    most: usize,
) -> Result<Vec<Handoff<Claim>>, CommandError> {
    let names = queues.iter().map(|queue| queue.as_str().to_owned()).collect();
    let dismissals = app.waiters.evictions();
    let (claimant, on_trial) = identity::claimant(app, caller, names, true).await?;
    let most = if on_trial.is_some() { 1 } else { most };
    let jobs = app.waiters.jobs(claimant, dismissals, wait, most).await?;
    if let Some(worker_id) = on_trial {
        end_trial_claim(app, &worker_id, !jobs.is_empty()).await?;
    }
    Ok(jobs)
}

fn queue_key(queue: &str) -> Bytes {
    format!("queue:{queue}").into()
}

/// The seed's bare value, or Redis' pair: for those who introduced themselves as Redis clients do, and for who waits for
/// several keys and has to know which it was.
fn shows_pair(app: &AppState, caller: &Caller, pop: &BlockingPop) -> bool {
    pop.keys.len() > 1
        || match app.settings.brpop_reply {
            PopReply::Auto => caller.is_introduced,
            PopReply::Bulk => false,
            PopReply::Pair => true,
        }
}

/// RPOP and LPOP of a queue: a claim that does not wait.
pub(crate) async fn pop(
    app: &AppState,
    caller: &Caller,
    queue: &QueueName,
    count: Option<usize>,
) -> Result<CommandOutcome, CommandError> {
    if count.is_some() {
        let text = "a queue is popped without a count: each job is claimed for itself";
        return Err(Rejection::QueueCount(text).into());
    }
    let queues = Arc::new([queue.as_str().to_owned()]);
    let (claimant, on_trial) = identity::claimant(app, caller, queues, false).await?;
    let handed = app.waiters.job_now(claimant).await?;
    if let Some(worker_id) = on_trial {
        end_trial_claim(app, &worker_id, handed.is_some()).await?;
    }
    let Some(handed) = handed else { return Ok(CommandOutcome::plain(Reply::Nil)) };
    let value = document(handed.get())?;
    Ok(given(handed.take(), Reply::Bulk(value)))
}

fn given(claim: Claim, reply: Reply) -> CommandOutcome {
    let holder = claim.job.holder.as_deref().unwrap_or_default().into();
    CommandOutcome::with(
        reply,
        Effect::Claimed { job_id: claim.job.job_id, holder, attempt: claim.job.attempt },
    )
}

fn document(claim: &Claim) -> Result<Bytes, StoreError> {
    let raw =
        |text: &str| RawValue::from_string(text.to_owned()).map_err(|error| StoreError(error.to_string()));
    let document = JobDocument {
        job_id: claim.job.job_id.clone(),
        action_id: claim.job.action_id.clone(),
        plan_id: claim.job.plan_id.clone(),
        plan: raw(&claim.plan)?,
        inputs: raw(&claim.input)?,
        attempt: claim.job.attempt,
        traceparent: claim.job.ojs.as_ref().and_then(|ojs| ojs.traceparent()),
    };
    Ok(to_json(&document).into())
}

/// LLEN of a queue.
pub(crate) async fn length(app: &AppState, key: &[u8]) -> CommandResult {
    let length = if key == QUEUE_SCHEDULED.as_bytes() {
        app.store.scheduled().await?.0
    } else {
        let queue = claimed_queue(key);
        let is_own = |lane: &&crate::store::LaneSummary| {
            queue.as_ref().is_some_and(|queue| queue.as_str() == lane.queue)
        };
        app.store.lanes().await?.iter().filter(is_own).map(|lane| lane.length).sum()
    };
    Ok(Reply::Integer(i64::try_from(length).unwrap_or(i64::MAX)))
}

/// QUEUE.PEEK
pub(crate) async fn peek(app: &AppState, queue: &QueueName, count: usize) -> CommandResult {
    let next = match queue.as_str() {
        SCHEDULED => app.store.peek_scheduled(count).await?,
        name => app.store.peek(name, count).await?,
    };
    Ok(Reply::bulks(next.into_iter().map(String::from)))
}

/// QUEUE.PAUSE, QUEUE.RESUME
pub(crate) async fn pause(app: &AppState, queue: &QueueName, paused: bool) -> CommandResult {
    queues::set_paused(app, queue, paused).await?;
    Ok(Reply::ok())
}

/// QUEUE.STATS
pub(crate) async fn stats(app: &AppState, queue: Option<&str>) -> CommandResult {
    let stats = queue_stats::all(app).await?;
    let Some(name) = queue.map(queue_of) else { return Ok(json(&stats)) };
    if QueueName::new(name).is_err() {
        return Err(Rejection::UnknownQueue(name.escape_debug().to_string()).into());
    }
    let key = format!("queue:{name}");
    let shown = match name {
        READY => to_json(&stats.ready),
        SCHEDULED => to_json(&stats.scheduled),
        _ => to_json(stats.others.get(&key).unwrap_or(&queue_stats::EMPTY)),
    };
    Ok(Reply::bulk(format!(r#"{{"{key}":{shown}}}"#)))
}
