//! The queue as Redis' list commands see it, and QUEUE.STATS. `queue:ready` is no list: to pop it is to claim a job.

use std::sync::Arc;

use agenix_protocol::{
    documents::{Demand, JobDocument, QueueStats, ReadyStats, ScheduledStats, WorkerCounts, to_json},
    names::{QUEUE_READY, QUEUE_SCHEDULED, is_reserved},
    request::Wait,
    resp::Reply,
};
use agenix_rules::{capability::Abilities, rejection::Rejection, worker::Standing};
use bytes::Bytes;
use serde_json::value::RawValue;

use super::{Done, Effect, Outcome, identity, json, keyspace::refuse_reserved};
use crate::{
    error::CommandError,
    house::{Caller, House},
    store::{Claim, Lane, StoreError},
};

/// BRPOP
pub(super) async fn blocking_pop(
    house: &House,
    caller: &Caller,
    key: Bytes,
    wait: Wait,
) -> Result<Done, CommandError> {
    if &key[..] == QUEUE_READY.as_bytes() {
        let claimant = identity::claimant(house, caller).await?;
        let Some(handed) = house.matchmaker.job(claimant, wait).await? else { return Ok(nothing(caller)) };
        let value = document(handed.get())?;
        return Ok(given(handed.take(), in_shape(caller, key, value)));
    }
    refuse_reserved(&key, "popped")?;
    match house.matchmaker.element(key.clone(), wait).await?? {
        None => Ok(nothing(caller)),
        Some(handed) => Ok(plain(in_shape(caller, key, handed.take().value))),
    }
}

/// RPOP
pub(super) async fn pop(house: &House, caller: &Caller, key: Bytes) -> Result<Done, CommandError> {
    if &key[..] == QUEUE_READY.as_bytes() {
        let claimant = identity::claimant(house, caller).await?;
        let claim = house.store.claim(vec![claimant], house.clock.now()).await?.pop().flatten();
        let Some(claim) = claim else { return Ok(plain(Reply::Nil)) };
        let value = document(&claim)?;
        return Ok(given(claim, Reply::Bulk(value)));
    }
    refuse_reserved(&key, "popped")?;
    Ok(plain(Reply::bulk_or_nil(house.store.pop_tail(key).await??)))
}

fn plain(reply: Reply) -> Done {
    Done { reply, effect: Effect::None }
}

fn given(claim: Claim, reply: Reply) -> Done {
    let holder = claim.job.holder.as_deref().unwrap_or_default().into();
    Done { reply, effect: Effect::Claimed { job_id: claim.job.job_id, holder, attempt: claim.job.attempt } }
}

/// The seed's bare value, or Redis' pair for those who introduced themselves as Redis clients do.
fn in_shape(caller: &Caller, key: Bytes, value: Bytes) -> Reply {
    if caller.is_introduced { Reply::bulks([key, value]) } else { Reply::Bulk(value) }
}

fn nothing(caller: &Caller) -> Done {
    plain(if caller.is_introduced { Reply::NilArray } else { Reply::Nil })
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
    };
    Ok(to_json(&document).into())
}

/// LLEN
pub(super) async fn length(house: &House, key: Bytes) -> Outcome {
    let length = match &key[..] {
        name if name == QUEUE_READY.as_bytes() => {
            house.store.lanes().await?.iter().map(|lane| lane.length).sum()
        }
        name if name == QUEUE_SCHEDULED.as_bytes() => house.store.scheduled().await?.0,
        name if is_reserved(name) => {
            refuse_reserved(&key, "read")?;
            0
        }
        _ => house.store.list_length(key).await?? as u64,
    };
    Ok(Reply::Integer(i64::try_from(length).unwrap_or(i64::MAX)))
}

/// QUEUE.STATS
pub(super) async fn stats(house: &House, queue: Option<&str>) -> Outcome {
    let stats = QueueStats {
        ready: ready(house).await?,
        scheduled: scheduled(house).await?,
        workers: workers(house).await?,
    };
    match queue {
        None => Ok(json(&stats)),
        Some(QUEUE_READY) => Ok(only(QUEUE_READY, &stats.ready)),
        Some(QUEUE_SCHEDULED) => Ok(only(QUEUE_SCHEDULED, &stats.scheduled)),
        Some(other) => Err(Rejection::UnknownQueue(other.escape_debug().to_string()).into()),
    }
}

/// The statistics of one queue, under its name.
fn only(queue: &str, stats: &impl serde::Serialize) -> Reply {
    Reply::bulk(format!(r#"{{"{queue}":{}}}"#, to_json(stats)))
}

async fn ready(house: &House) -> Result<ReadyStats, CommandError> {
    let (lanes, now) = (house.store.lanes().await?, house.clock.now());
    let workers = house.store.workers().await?;
    let active = workers.iter().filter(|(worker, _)| worker.standing == Standing::Active);
    let abilities: Vec<_> = active.map(|(worker, _)| house.abilities.of(worker)).collect();
    let spans = || lanes.iter().filter_map(|lane| lane.span);
    let age = |at: agenix_protocol::time::Timestamp| now.ms_since(at) / 1000;
    Ok(ReadyStats {
        length: lanes.iter().map(|lane| lane.length).sum(),
        oldest_job_age_seconds: spans().map(|(first, _)| first).min().map(age),
        newest_job_age_seconds: spans().map(|(_, last)| last).max().map(age),
        needs: lanes.iter().map(|lane| demand(lane, &abilities)).collect(),
    })
}

fn demand(lane: &Lane, abilities: &[Arc<Abilities>]) -> Demand {
    let workers = abilities.iter().filter(|abilities| abilities.cover(&lane.needs)).count() as u64;
    Demand { tools: lane.needs.clone(), length: lane.length, workers }
}

async fn scheduled(house: &House) -> Result<ScheduledStats, CommandError> {
    let (length, first) = house.store.scheduled().await?;
    let now = house.clock.now();
    Ok(ScheduledStats { length, next_job_due_in_seconds: first.map(|at| at.ms_since(now) / 1000) })
}

async fn workers(house: &House) -> Result<WorkerCounts, CommandError> {
    let workers = house.store.workers().await?;
    let active = || workers.iter().filter(|(worker, _)| worker.standing == Standing::Active);
    Ok(WorkerCounts {
        total: workers.len() as u64,
        active: active().count() as u64,
        idle: active().filter(|(_, jobs)| *jobs == 0).count() as u64,
    })
}
