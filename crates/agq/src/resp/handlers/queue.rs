//! QUEUE.*, JOB.CLAIM, and the list commands of Redis on queues. A queue is not a list: a pop
//! claims a job.

use agenix_protocol::{
    documents::to_json,
    ids::QueueName,
    request::{BlockingPop, BlockingWait},
    reserved_keys::{QUEUE_SCHEDULED, READY, SCHEDULED, claimed_queue, queue_of},
    resp::Reply,
};
use agenix_rules::rejection::Rejection;
use bytes::Bytes;

use super::keyspace;
use crate::{
    app::{AppState, Caller},
    error::CommandError,
    registry::unreturned_claims::UnackedClaim,
    resp::outcome::{CommandOutcome, CommandResult, Effect, json},
    service::{claims, queue_stats, queues},
    settings::PopReply,
    store::{Claim, StoreError},
    waiters::Handoff,
};

/// Maximum number of jobs that one JOB.CLAIM claims. The documents of these jobs, of any size, are
/// in memory until they are sent.
const MAX_CLAIMED: usize = 32;

/// JOB.CLAIM
pub(crate) async fn claim(
    app: &AppState,
    caller: &Caller,
    queues: &[QueueName],
    wait: BlockingWait,
    count: usize,
) -> Result<CommandOutcome, CommandError> {
    queues.iter().try_for_each(queues::check_name)?;
    let jobs = claims::claim(app, caller, queues, Some(wait), count.min(MAX_CLAIMED)).await?;
    let documents = jobs.iter().map(|job| document(job.get())).collect::<Result<Vec<_>, _>>()?;
    let reply = if documents.is_empty() { Reply::NilArray } else { Reply::bulks(documents) };
    Ok(claimed(jobs, reply))
}

/// BRPOP, BLPOP, BLMOVE.
pub(crate) async fn blocking_pop(
    app: &AppState,
    caller: &Caller,
    pop: BlockingPop,
) -> Result<CommandOutcome, CommandError> {
    let is_pair = replies_with_pair(app, caller, &pop);
    let queues: Vec<QueueName> = pop.keys.iter().filter_map(|key| claimed_queue(key)).collect();
    if queues.is_empty() {
        return Ok(CommandOutcome::plain(keyspace::blocking_pop(app, pop, is_pair).await?));
    }
    if queues.len() != pop.keys.len() || pop.to.is_some() {
        return Err(Rejection::MixedKeys.into());
    }
    let jobs = claims::claim(app, caller, &queues, Some(pop.timeout), 1).await?;
    let reply = match jobs.first().map(Handoff::get) {
        None if is_pair => Reply::NilArray,
        None => Reply::Nil,
        Some(job) if is_pair => Reply::bulks([format!("queue:{}", job.queue).into(), document(job)?]),
        Some(job) => Reply::Bulk(document(job)?),
    };
    Ok(claimed(jobs, reply))
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
    let jobs = claims::claim(app, caller, std::slice::from_ref(queue), None, 1).await?;
    let value = jobs.first().map(|job| document(job.get())).transpose()?;
    Ok(claimed(jobs, value.map_or(Reply::Nil, Reply::Bulk)))
}

fn claimed(jobs: Vec<Handoff<Claim>>, reply: Reply) -> CommandOutcome {
    if jobs.is_empty() {
        return CommandOutcome::plain(reply);
    }
    let claim = |handoff: Handoff<Claim>| {
        let job = handoff.take().job;
        let holder = job.holder.unwrap_or_default().into();
        UnackedClaim { job_id: job.job_id, holder, attempt: job.attempt }
    };
    CommandOutcome::with(reply, Effect::Claimed(jobs.into_iter().map(claim).collect()))
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
