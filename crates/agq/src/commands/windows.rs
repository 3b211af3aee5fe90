//! Windows: keys that agq renders from its records when they are read (worker spec §2.3, §3.4, §9.2). There is no second copy,
//! and nobody writes to them.

use std::collections::BTreeSet;

use agenix_protocol::{
    documents::{ActionStatus, WorkerRegistration, to_json},
    glob,
    ids::{ActionId, JobId, PlanId, WorkerId},
    names::{claimed_queue, is_reserved},
    request::{KeyCommand, Page},
    resp::Reply,
};
use agenix_rules::{
    action,
    rejection::Rejection,
    worker::{Liveness, Worker},
};
use bytes::Bytes;
use serde_json::{Map, Value};

use super::{Outcome, challenge, job, keyspace::refuse_reserved, queue, worker};
use crate::{app::House, error::CommandError, store::StoreError};

/// How long the statistics of a heartbeat are shown (worker spec §3.4).
const STATS_MS: u64 = 120_000;

/// What a window shows.
enum Shown {
    Text(String),
    Set(Vec<String>),
    Hash(Vec<(String, String)>),
    /// A queue: its length and its type can be asked for, and it can be popped.
    Queue,
}

/// A window: what it shows, and for how many milliseconds still, where that is bounded.
type Window = Option<(Shown, Option<u64>)>;

/// Answers a command on a key that agq keeps for itself.
pub(super) async fn answer(house: &House, command: &KeyCommand) -> Outcome {
    match command {
        KeyCommand::Keys { pattern } => Ok(Reply::bulks(names(house, pattern).await?)),
        KeyCommand::Scan { pattern, .. } => {
            let found = names(house, pattern.as_deref().unwrap_or_default()).await?;
            Ok(Reply::Array(vec![Reply::bulk("0"), Reply::bulks(found)]))
        }
        KeyCommand::Exists { keys } => exists(house, keys).await,
        KeyCommand::LLen { key } if is_queue(key) => queue::length(house, key).await,
        KeyCommand::Del { .. } => Err(refused(command, "deleted")),
        KeyCommand::Pop { .. } => Err(refused(command, "popped")),
        _ if command.is_write() => Err(refused(command, "written")),
        _ => match command.keys().collect::<Vec<_>>()[..] {
            [key] => read(house, command, key).await,
            _ => Err(refused(command, "read beside other keys")),
        },
    }
}

fn refused(command: &KeyCommand, what: &'static str) -> CommandError {
    let refusal = command.keys().find_map(|key| refuse_reserved(key, what).err());
    refusal.unwrap_or(Rejection::WrongType).into()
}

fn is_queue(key: &[u8]) -> bool {
    key.starts_with(b"queue:")
}

async fn read(house: &House, command: &KeyCommand, key: &Bytes) -> Outcome {
    let window = look(house, key).await?;
    let ttl = |unit: u64| match &window {
        None => -2,
        Some((_, None)) => -1,
        Some((_, Some(ms))) => i64::try_from(ms.div_ceil(unit)).unwrap_or(i64::MAX),
    };
    match (command, &window) {
        (KeyCommand::Ttl { .. }, _) => Ok(Reply::Integer(ttl(1000))),
        (KeyCommand::PTtl { .. }, _) => Ok(Reply::Integer(ttl(1))),
        (KeyCommand::Type { .. }, _) => Ok(Reply::Simple(type_of(&window).into())),
        (KeyCommand::Get { .. } | KeyCommand::HGet { .. }, None) => Ok(Reply::Nil),
        (KeyCommand::Get { .. }, Some((Shown::Text(text), _))) => Ok(Reply::bulk(text.clone())),
        (KeyCommand::MGet { .. }, Some((Shown::Text(text), _))) => Ok(Reply::bulks([text.clone()])),
        (KeyCommand::MGet { .. }, _) => Ok(Reply::Array(vec![Reply::Nil])),
        (KeyCommand::SMembers { .. }, None) => Ok(Reply::Set(Vec::new())),
        (KeyCommand::SMembers { .. }, Some((Shown::Set(members), _))) => {
            Ok(Reply::Set(members.iter().cloned().map(Reply::bulk).collect()))
        }
        (KeyCommand::SIsMember { .. }, None) => Ok(Reply::Integer(0)),
        (KeyCommand::SIsMember { member, .. }, Some((Shown::Set(members), _))) => {
            Ok(Reply::Integer(members.iter().any(|name| name.as_bytes() == &member[..]).into()))
        }
        (KeyCommand::HGetAll { .. }, None) => Ok(Reply::Map(Vec::new())),
        (KeyCommand::HGetAll { .. }, Some((Shown::Hash(fields), _))) => {
            let pair =
                |(name, value): &(String, String)| (Reply::bulk(name.clone()), Reply::bulk(value.clone()));
            Ok(Reply::Map(fields.iter().map(pair).collect()))
        }
        (KeyCommand::HGet { field, .. }, Some((Shown::Hash(fields), _))) => {
            let found = fields.iter().find(|(name, _)| name.as_bytes() == &field[..]);
            Ok(Reply::bulk_or_nil(found.map(|(_, value)| value.clone())))
        }
        _ => Err(Rejection::WrongType.into()),
    }
}

fn type_of(window: &Window) -> &'static str {
    match window {
        None => "none",
        Some((Shown::Text(_), _)) => "string",
        Some((Shown::Set(_), _)) => "set",
        Some((Shown::Hash(_), _)) => "hash",
        Some((Shown::Queue, _)) => "list",
    }
}

async fn exists(house: &House, keys: &[Bytes]) -> Outcome {
    let mut count = 0;
    for key in keys {
        if is_reserved(key) {
            count += usize::from(look(house, key).await?.is_some());
        } else {
            let users = KeyCommand::Exists { keys: vec![key.clone()] };
            let Reply::Integer(found) = super::keyspace::users(house, users).await? else { continue };
            count += usize::from(found > 0);
        }
    }
    Ok(Reply::count(count))
}

/// What a reserved key shows now.
async fn look(house: &House, key: &[u8]) -> Result<Window, CommandError> {
    if is_queue(key) {
        return Ok(claimed_queue(key).map(|_| (Shown::Queue, None)));
    }
    let Ok(key) = std::str::from_utf8(key) else { return Ok(None) };
    let parts: Vec<&str> = key.split(':').collect();
    match parts[..] {
        ["worker", id] => Ok(worker_of(house, id)
            .await?
            .map(|(worker, jobs, told)| (hash(&worker.status(told, jobs)), None))),
        ["worker", id, part] => worker_part(house, id, part).await,
        ["capability", tool, "workers"] => {
            let workers = challenge::workers_with(house, tool).await?;
            let ids: Vec<String> = workers.into_iter().map(|worker| worker.worker_id.into()).collect();
            Ok((!ids.is_empty()).then_some((Shown::Set(ids), None)))
        }
        ["plan", id] => {
            let Ok(id) = PlanId::new(id) else { return Ok(None) };
            Ok(house.store.plan(&id).await?.map(|plan| (Shown::Text(plan.json), None)))
        }
        ["action", id] => {
            let Ok(id) = ActionId::new(id) else { return Ok(None) };
            let found = house.store.action(&id).await?;
            let status = |(action, tally)| -> ActionStatus { action::status(&action, &tally) };
            Ok(found.map(|found| (hash(&status(found)), None)))
        }
        ["job", id] => {
            let Some(stored) = stored(house, id).await? else { return Ok(None) };
            let shown = job::shown(stored).map_err(|error| StoreError(error.to_string()))?;
            Ok(Some((hash(&shown), None)))
        }
        ["job", id, "worker"] => {
            let Ok(id) = JobId::new(id) else { return Ok(None) };
            let Some(job) = house.store.job_record(&id).await? else { return Ok(None) };
            let left = job.due_at.map(|due| due.ms_since(house.clock.now()));
            let holder = job.holder.filter(|_| job.state == agenix_rules::job::JobState::Active);
            Ok(holder.map(|holder| (Shown::Text(holder), left)))
        }
        _ => Ok(None),
    }
}

async fn stored(house: &House, id: &str) -> Result<Option<crate::store::StoredJob>, CommandError> {
    let Ok(id) = JobId::new(id) else { return Ok(None) };
    Ok(house.store.job(&id).await?)
}

type Known = Option<(Worker, u64, Option<WorkerRegistration>)>;

async fn worker_of(house: &House, id: &str) -> Result<Known, CommandError> {
    let Ok(id) = WorkerId::new(id) else { return Ok(None) };
    let Some(worker) = house.store.worker(&id).await? else { return Ok(None) };
    let jobs = house.store.held_by(id.as_str()).await?.len() as u64;
    Ok(Some((worker, jobs, worker::registration(house, &id).await?)))
}

async fn worker_part(house: &House, id: &str, part: &str) -> Result<Window, CommandError> {
    let Some((worker, _, told)) = worker_of(house, id).await? else { return Ok(None) };
    let silent = house.clock.now().ms_since(worker.last_seen_at);
    let rest = |ms: u64| Some(ms.saturating_sub(silent)).filter(|left| *left > 0);
    Ok(match part {
        "alive" => {
            let silence_ms = worker.silence_ms.unwrap_or_else(|| house.settings.silence_ms());
            let left = rest(silence_ms).filter(|_| worker.standing == Liveness::Active);
            left.map(|left| (Shown::Text((worker.last_seen_at.0 / 1000).to_string()), Some(left)))
        }
        "stats" => worker.stats.zip(rest(STATS_MS)).map(|(stats, left)| (Shown::Text(stats), Some(left))),
        // Any key may read this: what tells a run of the worker from another is its own.
        "metadata" => told.map(|told| {
            let told = WorkerRegistration { instance: None, active_job_ids: None, ..told };
            (Shown::Text(to_json(&told)), None)
        }),
        _ => None,
    })
}

/// A document's fields that are not null, each as text: a string as it is, anything else as JSON.
fn hash(document: &impl serde::Serialize) -> Shown {
    let fields: Map<String, Value> = serde_json::from_str(&to_json(document)).unwrap_or_default();
    let text = |value: Value| match value {
        Value::String(text) => text,
        other => other.to_string(),
    };
    Shown::Hash(
        fields
            .into_iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(name, value)| (name, text(value)))
            .collect(),
    )
}

/// The windows whose names match a pattern that begins with one of their kinds. Those of jobs are not listed: there may be
/// millions, and JOBS.SEARCH finds them.
async fn names(house: &House, pattern: &[u8]) -> Result<Vec<String>, CommandError> {
    let mut names = BTreeSet::new();
    if pattern.starts_with(b"plan:") {
        let page = Page { limit: usize::MAX, ..Page::default() };
        names.extend(house.store.plans(page).await?.into_iter().map(|id| format!("plan:{id}")));
    } else if pattern.starts_with(b"action:") {
        let page = Page { limit: usize::MAX, ..Page::default() };
        names.extend(house.store.actions(page).await?.into_iter().map(|id| format!("action:{id}")));
    } else if pattern.starts_with(b"worker:") || pattern.starts_with(b"capability:") {
        for worker in house.store.worker_records().await? {
            names.extend(names_of(house, &worker).await?);
        }
    }
    names.retain(|name| glob::matches(pattern, name.as_bytes()));
    Ok(names.into_iter().collect())
}

/// The windows on a worker.
async fn names_of(house: &House, worker: &Worker) -> Result<Vec<String>, CommandError> {
    let id = worker.worker_id.as_str();
    let mut names = vec![format!("worker:{id}")];
    for part in ["alive", "stats", "metadata"] {
        if worker_part(house, id, part).await?.is_some() {
            names.push(format!("worker:{id}:{part}"));
        }
    }
    if worker.standing == Liveness::Active
        && let Some(told) = worker::registration(house, &worker.worker_id).await?
    {
        names.extend(told.capabilities.commands().map(|tool| format!("capability:{tool}:workers")));
    }
    Ok(names)
}
