//! QUEUE.*, and the list commands of Redis on queues. A queue is not a list: a pop claims a job.

use agenix_protocol::{
    documents::to_json,
    ids::QueueName,
    request::BlockingPop,
    reserved_keys::{QUEUE_SCHEDULED, READY, SCHEDULED, claimed_queue, queue_of},
    resp::Reply,
};
use agenix_rules::rejection::Rejection;
use bytes::Bytes;

use super::keyspace;
use crate::{
    app::{AppState, Caller},
    error::CommandError,
    resp::outcome::{CommandOutcome, CommandResult, Effect, json},
    service::{claims, queue_stats, queues},
    settings::PopReply,
    store::{Claim, StoreError},
    waiters::Handoff,
};

/// BRPOP, BLPOP, BLMOVE. `limit` is the maximum number of ready jobs that are claimed: one for this
/// command, and one for each identical command behind it.
pub(crate) async fn blocking_pop(
    app: &AppState,
    caller: &Caller,
    pop: BlockingPop,
    limit: usize,
) -> Result<CommandOutcome, CommandError> {
    let is_pair = replies_with_pair(app, caller, &pop);
    let queues: Vec<QueueName> = pop.keys.iter().filter_map(|key| claimed_queue(key)).collect();
    if queues.is_empty() {
        return Ok(CommandOutcome::plain(keyspace::blocking_pop(app, pop, is_pair).await?));
    }
    if queues.len() != pop.keys.len() || pop.to.is_some() {
        return Err(Rejection::MixedKeys.into());
    }
    let outcome = |handoff: Handoff<Claim>| {
        let value = document(handoff.get())?;
        let key = queue_key(&handoff.get().queue);
        let reply = if is_pair { Reply::bulks([key, value]) } else { Reply::Bulk(value) };
        Ok(claimed(handoff.take(), reply))
    };
    let jobs = claims::wait_for_jobs(app, caller, &queues, pop.timeout, limit).await?;
    let mut outcomes = jobs.into_iter().map(outcome).collect::<Result<Vec<_>, CommandError>>()?.into_iter();
    let Some(first) = outcomes.next() else {
        return Ok(CommandOutcome::plain(if is_pair { Reply::NilArray } else { Reply::Nil }));
    };
    Ok(CommandOutcome { merged: outcomes.collect(), ..first })
}

fn queue_key(queue: &str) -> Bytes {
    format!("queue:{queue}").into()
}

/// Returns true if the reply is a pair of key and value, as in Redis. The AGQ API spec has the
/// value alone. Client libraries of Redis expect the pair, and a client that waits for several keys
/// needs the key.
fn replies_with_pair(app: &AppState, caller: &Caller, pop: &BlockingPop) -> bool {
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
    let Some(handoff) = claims::job_now(app, caller, queue).await? else {
        return Ok(CommandOutcome::plain(Reply::Nil));
    };
    let value = document(handoff.get())?;
    Ok(claimed(handoff.take(), Reply::Bulk(value)))
}

fn claimed(claim: Claim, reply: Reply) -> CommandOutcome {
    let holder = claim.job.holder.as_deref().unwrap_or_default().into();
    CommandOutcome::with(
        reply,
        Effect::Claimed { job_id: claim.job.job_id, holder, attempt: claim.job.attempt },
    )
}

fn document(claim: &Claim) -> Result<Bytes, StoreError> {
    Ok(to_json(&claims::document(claim)?).into())
}

/// LLEN of a queue.
pub(crate) async fn length(app: &AppState, key: &[u8]) -> CommandResult {
    let length = if key == QUEUE_SCHEDULED.as_bytes() {
        app.store.scheduled().await?.0
    } else {
        match claimed_queue(key) {
            Some(queue) => queues::length(app, &queue).await?,
            None => 0,
        }
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
    let json = match name {
        READY => to_json(&stats.ready),
        SCHEDULED => to_json(&stats.scheduled),
        _ => to_json(stats.others.get(&key).unwrap_or(&queue_stats::EMPTY)),
    };
    Ok(Reply::bulk(format!(r#"{{"{key}":{json}}}"#)))
}
