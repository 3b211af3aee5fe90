//! Virtual keys: reserved key names whose values are computed from the records when they are read
//! (worker spec §2.3, §3.4, §9.2). Virtual keys are read-only.

use std::collections::{BTreeMap, BTreeSet};

use agenix_protocol::{
    documents::{WorkerRegistration, to_json},
    glob,
    ids::{ActionId, JobId, PlanId, WorkerId},
    request::{KeyCommand, Page},
    reserved_keys::{claimed_queue, is_reserved},
    resp::Reply,
};
use agenix_rules::{
    action,
    rejection::Rejection,
    worker::{Liveness, Worker},
};
use bytes::Bytes;
use serde_json::value::RawValue;

use super::{keyspace::refuse_reserved, queue};
use crate::{
    app::AppState,
    error::{CommandError, Result},
    resp::outcome::CommandResult,
    service::{challenges, jobs, plans, workers},
    store::StoreError,
};

/// Time after a heartbeat for which its statistics exist, in milliseconds (worker spec §3.4).
const STATS_MS: u64 = 120_000;

enum VirtualValue {
    Text(String),
    Set(Vec<String>),
    Hash(Vec<(String, String)>),
    /// Queue. LLEN, TYPE and pops are permitted; no other command reads its value.
    Queue,
}

/// Value and time to live in milliseconds, if the key exists and has one.
type VirtualKey = Option<(VirtualValue, Option<u64>)>;

pub(crate) async fn answer(app: &AppState, command: &KeyCommand) -> CommandResult {
    match command {
        KeyCommand::Keys { pattern } => Ok(Reply::bulks(names(app, pattern).await?)),
        KeyCommand::Scan { pattern, kind, .. } => {
            let mut found = names(app, pattern.as_deref().unwrap_or_default()).await?;
            if let Some(kind) = kind {
                found.retain(|name| kind.eq_ignore_ascii_case(type_of_listed(name).as_bytes()));
            }
            Ok(Reply::Array(vec![Reply::bulk("0"), Reply::bulks(found)]))
        }
        KeyCommand::Exists { keys } => exists(app, keys).await,
        KeyCommand::LLen { key } if is_queue(key) => queue::length(app, key).await,
        KeyCommand::Del { .. } => Err(refused(command, "deleted")),
        KeyCommand::Pop { .. } => Err(refused(command, "popped")),
        _ if command.is_write() => Err(refused(command, "written")),
        _ => match command.keys().collect::<Vec<_>>()[..] {
            [key] => read(app, command, key).await,
            _ => Err(refused(command, "read beside other keys")),
        },
    }
}

fn refused(command: &KeyCommand, operation: &'static str) -> CommandError {
    let refusal = command.keys().find_map(|key| refuse_reserved(key, operation).err());
    refusal.unwrap_or(Rejection::WrongType).into()
}

fn is_queue(key: &[u8]) -> bool {
    key.starts_with(b"queue:")
}

async fn read(app: &AppState, command: &KeyCommand, key: &Bytes) -> CommandResult {
    let value = value_of(app, key).await?;
    let ttl = |unit: u64| match &value {
        None => -2,
        Some((_, None)) => -1,
        Some((_, Some(ms))) => i64::try_from(ms.div_ceil(unit)).unwrap_or(i64::MAX),
    };
    match (command, &value) {
        (KeyCommand::Ttl { .. }, _) => Ok(Reply::Integer(ttl(1000))),
        (KeyCommand::PTtl { .. }, _) => Ok(Reply::Integer(ttl(1))),
        (KeyCommand::Type { .. }, _) => Ok(Reply::Simple(type_of(&value).into())),
        (KeyCommand::Get { .. } | KeyCommand::HGet { .. } | KeyCommand::ZScore { .. }, None) => {
            Ok(Reply::Nil)
        }
        (KeyCommand::LLen { .. } | KeyCommand::ZCard { .. }, None) => Ok(Reply::Integer(0)),
        (KeyCommand::LRange { .. } | KeyCommand::ZRange { .. }, None) => Ok(Reply::Array(Vec::new())),
        (KeyCommand::Get { .. }, Some((VirtualValue::Text(text), _))) => Ok(Reply::bulk(text.clone())),
        (KeyCommand::MGet { .. }, Some((VirtualValue::Text(text), _))) => Ok(Reply::bulks([text.clone()])),
        (KeyCommand::MGet { .. }, _) => Ok(Reply::Array(vec![Reply::Nil])),
        (KeyCommand::SMembers { .. }, None) => Ok(Reply::Set(Vec::new())),
        (KeyCommand::SMembers { .. }, Some((VirtualValue::Set(members), _))) => {
            Ok(Reply::Set(members.iter().cloned().map(Reply::bulk).collect()))
        }
        (KeyCommand::SIsMember { .. }, None) => Ok(Reply::Integer(0)),
        (KeyCommand::SIsMember { member, .. }, Some((VirtualValue::Set(members), _))) => {
            Ok(Reply::Integer(members.iter().any(|name| name.as_bytes() == &member[..]).into()))
        }
        (KeyCommand::HGetAll { .. }, None) => Ok(Reply::Map(Vec::new())),
        (KeyCommand::HGetAll { .. }, Some((VirtualValue::Hash(fields), _))) => {
            let pair =
                |(name, value): &(String, String)| (Reply::bulk(name.clone()), Reply::bulk(value.clone()));
            Ok(Reply::Map(fields.iter().map(pair).collect()))
        }
        (KeyCommand::HGet { field, .. }, Some((VirtualValue::Hash(fields), _))) => {
            let found = fields.iter().find(|(name, _)| name.as_bytes() == &field[..]);
            Ok(Reply::bulk_or_nil(found.map(|(_, value)| value.clone())))
        }
        _ => Err(Rejection::WrongType.into()),
    }
}

fn type_of(key: &VirtualKey) -> &'static str {
    match key {
        None => "none",
        Some((VirtualValue::Text(_), _)) => "string",
        Some((VirtualValue::Set(_), _)) => "set",
        Some((VirtualValue::Hash(_), _)) => "hash",
        Some((VirtualValue::Queue, _)) => "list",
    }
}

/// Returns the type of a key that [`names`] lists, which follows from its name.
fn type_of_listed(name: &str) -> &'static str {
    let (prefix, rest) = name.split_once(':').unwrap_or_default();
    match prefix {
        "action" => "hash",
        "worker" if !rest.contains(':') => "hash",
        "capability" => "set",
        _ => "string",
    }
}

async fn exists(app: &AppState, keys: &[Bytes]) -> CommandResult {
    let mut count = 0;
    for key in keys {
        if is_reserved(key) {
            count += usize::from(value_of(app, key).await?.is_some());
        } else {
            let users = KeyCommand::Exists { keys: vec![key.clone()] };
            let Reply::Integer(found) = super::keyspace::users(app, users).await? else { continue };
            count += usize::from(found > 0);
        }
    }
    Ok(Reply::count(count))
}

async fn value_of(app: &AppState, key: &[u8]) -> Result<VirtualKey> {
    if is_queue(key) {
        return Ok(claimed_queue(key).map(|_| (VirtualValue::Queue, None)));
    }
    let Ok(key) = std::str::from_utf8(key) else { return Ok(None) };
    // The name of a capability may have colons.
    if let Some(tool) = key.strip_prefix("capability:").and_then(|rest| rest.strip_suffix(":workers")) {
        let workers = challenges::workers_with(app, tool).await?;
        let ids: Vec<String> = workers.into_iter().map(|worker| worker.worker_id.into()).collect();
        return Ok((!ids.is_empty()).then_some((VirtualValue::Set(ids), None)));
    }
    let parts: Vec<&str> = key.split(':').collect();
    match parts[..] {
        ["worker", id] => {
            let Ok(id) = WorkerId::new(id) else { return Ok(None) };
            let Some(status) = workers::status(app, &id).await? else { return Ok(None) };
            Ok(Some((hash(&status)?, None)))
        }
        ["worker", id, part] => worker_part(app, id, part).await,
        ["plan", id] => {
            let Ok(id) = PlanId::new(id) else { return Ok(None) };
            let Some(plan) = app.store.plan(&id).await? else { return Ok(None) };
            let plan = if plan.owner.is_some() { plans::without_literal_env(plan)? } else { plan };
            Ok(Some((VirtualValue::Text(plan.json), None)))
        }
        ["action", id] => {
            let Ok(id) = ActionId::new(id) else { return Ok(None) };
            let Some((action, counts)) = app.store.action(&id).await? else { return Ok(None) };
            Ok(Some((hash(&action::status(&action, &counts))?, None)))
        }
        ["job", id] => {
            let Some(stored) = stored(app, id).await? else { return Ok(None) };
            let document = jobs::job_document(stored).map_err(|error| StoreError(error.to_string()))?;
            Ok(Some((hash(&document)?, None)))
        }
        ["job", id, "worker"] => {
            let Ok(id) = JobId::new(id) else { return Ok(None) };
            let Some(job) = app.store.job_record(&id).await? else { return Ok(None) };
            let left = job.due_at.map(|due| due.ms_since(app.clock.now()));
            let holder = job.holder.filter(|_| job.state == agenix_rules::job::JobState::Active);
            Ok(holder.map(|holder| (VirtualValue::Text(holder), left)))
        }
        _ => Ok(None),
    }
}

async fn stored(app: &AppState, id: &str) -> Result<Option<crate::store::StoredJob>> {
    let Ok(id) = JobId::new(id) else { return Ok(None) };
    Ok(app.store.job(&id).await?)
}

type WorkerLookup = Option<(Worker, Option<WorkerRegistration>)>;

async fn worker_of(app: &AppState, id: &str) -> Result<WorkerLookup> {
    let Ok(id) = WorkerId::new(id) else { return Ok(None) };
    let Some(worker) = app.store.worker(&id).await? else { return Ok(None) };
    Ok(Some((worker, workers::registration(app, &id).await?)))
}

async fn worker_part(app: &AppState, id: &str, part: &str) -> Result<VirtualKey> {
    let Some((worker, registration)) = worker_of(app, id).await? else { return Ok(None) };
    let silent = app.clock.now().ms_since(worker.last_seen_at);
    let time_left = |ms: u64| Some(ms.saturating_sub(silent)).filter(|left| *left > 0);
    Ok(match part {
        "alive" => {
            let silence_ms = worker.silence_ms.unwrap_or_else(|| app.settings.silence_ms());
            let left = time_left(silence_ms).filter(|_| worker.liveness == Liveness::Active);
            left.map(|left| (VirtualValue::Text((worker.last_seen_at.0 / 1000).to_string()), Some(left)))
        }
        "stats" => {
            worker.stats.zip(time_left(STATS_MS)).map(|(stats, left)| (VirtualValue::Text(stats), Some(left)))
        }
        // `instance` identifies the process of the worker, and any role may read this key.
        "metadata" => registration.map(|registration| {
            let shown = WorkerRegistration { instance: None, active_job_ids: None, ..registration };
            (VirtualValue::Text(to_json(&shown)), None)
        }),
        _ => None,
    })
}

/// Leaves out nulls. Strings are unquoted; other values keep their JSON text. A parsed value would
/// change numbers, and cannot hold all that a submitter or a worker may send.
fn hash(document: &impl serde::Serialize) -> Result<VirtualValue, StoreError> {
    let unreadable = |error: serde_json::Error| StoreError(format!("the record cannot be read: {error}"));
    let fields: BTreeMap<String, Box<RawValue>> =
        serde_json::from_str(&to_json(document)).map_err(unreadable)?;
    let mut shown: Vec<(String, String)> = Vec::new();
    for (name, value) in fields {
        match value.get() {
            "null" => {}
            text if text.starts_with('"') => {
                shown.push((name, serde_json::from_str(text).map_err(unreadable)?));
            }
            json => shown.push((name, json.to_owned())),
        }
    }
    Ok(VirtualValue::Hash(shown))
}

/// `pattern` has to begin with a kind of record. Jobs are not listed, because there may be
/// millions, and JOBS.SEARCH finds them.
async fn names(app: &AppState, pattern: &[u8]) -> Result<Vec<String>> {
    let mut names = BTreeSet::new();
    let page = Page { limit: usize::MAX, ..Page::default() };
    if pattern.starts_with(b"plan:") {
        names.extend(app.store.plans(page, None).await?.into_iter().map(|id| format!("plan:{id}")));
    } else if pattern.starts_with(b"action:") {
        let actions = app.store.actions(page, BTreeMap::new(), None).await?;
        names.extend(actions.into_iter().map(|id| format!("action:{id}")));
    } else if pattern.starts_with(b"worker:") || pattern.starts_with(b"capability:") {
        for worker in app.store.worker_records().await? {
            names.extend(names_of(app, &worker).await?);
        }
    }
    names.retain(|name| glob::matches(pattern, name.as_bytes()));
    Ok(names.into_iter().collect())
}

async fn names_of(app: &AppState, worker: &Worker) -> Result<Vec<String>> {
    let id = worker.worker_id.as_str();
    let mut names = vec![format!("worker:{id}")];
    for part in ["alive", "stats", "metadata"] {
        if worker_part(app, id, part).await?.is_some() {
            names.push(format!("worker:{id}:{part}"));
        }
    }
    if worker.liveness == Liveness::Active
        && let Some(registration) = workers::registration(app, &worker.worker_id).await?
    {
        names.extend(registration.capabilities.commands().map(|tool| format!("capability:{tool}:workers")));
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use agenix_protocol::{documents::parse, request::Request, resp::Reply};
    use bytes::Bytes;
    use serde_json::value::RawValue;

    use super::{VirtualValue, answer, hash};
    use crate::{
        app::{AppState, Caller},
        resp::outcome::CommandResult,
        service::workers,
        startup::services::without_tasks,
    };

    async fn ask(app: &AppState, line: &str) -> CommandResult {
        let args: Vec<Bytes> = line.split(' ').map(|word| Bytes::copy_from_slice(word.as_bytes())).collect();
        let Ok((_, Request::Key(command))) = Request::parse(&args) else { panic!("it reads no key: {line}") };
        answer(app, &command).await
    }

    fn page(names: &[&'static str]) -> Reply {
        let names = names.iter().map(|name| Bytes::from_static(name.as_bytes()));
        Reply::Array(vec![Reply::bulk("0"), Reply::bulks(names)])
    }

    #[tokio::test]
    async fn virtual_keys_are_listed_by_type_and_read_with_colons() {
        let dir = tempfile::tempdir().unwrap();
        let app = without_tasks(dir.path(), |_| {});
        let caller = Caller::new("connection:1".into(), 1, "test", None);
        let registration = parse(br#"{"worker_id":"w","capabilities":["a:b","sort"]}"#).unwrap();
        workers::register(&app, &caller, registration).await.unwrap();
        let pages: [(&str, &[&'static str]); 4] = [
            ("SCAN 0 MATCH worker:* TYPE HASH", &["worker:w"]),
            ("SCAN 0 MATCH worker:* TYPE string", &["worker:w:alive", "worker:w:metadata"]),
            ("SCAN 0 MATCH capability:* TYPE set", &["capability:a:b:workers", "capability:sort:workers"]),
            ("SCAN 0 MATCH worker:* TYPE list", &[]),
        ];
        for (line, names) in pages {
            assert_eq!(ask(&app, line).await.unwrap(), page(names), "{line}");
        }
        let listed = ask(&app, "TYPE capability:a:b:workers").await.unwrap();
        assert_eq!(listed, Reply::Simple("set".into()));
        let members = ask(&app, "SMEMBERS capability:a:b:workers").await.unwrap();
        assert_eq!(members, Reply::Set(vec![Reply::bulk("w")]));
        assert_eq!(ask(&app, "EXISTS capability:a:workers").await.unwrap(), Reply::Integer(0));
    }

    #[tokio::test]
    async fn reserved_name_without_a_record_is_read_as_a_missing_key() {
        let dir = tempfile::tempdir().unwrap();
        let app = without_tasks(dir.path(), |_| {});
        for (line, expected) in [
            ("LLEN worker:nobody", Reply::Integer(0)),
            ("ZCARD plan:nothing", Reply::Integer(0)),
            ("ZSCORE plan:nothing m", Reply::Nil),
            ("LRANGE job:nothing 0 -1", Reply::Array(Vec::new())),
            ("ZRANGE action:nothing 0 -1", Reply::Array(Vec::new())),
        ] {
            assert_eq!(ask(&app, line).await.unwrap(), expected, "{line}");
        }
        assert!(ask(&app, "LRANGE queue:ready 0 -1").await.is_err(), "a queue is no list");
    }

    #[test]
    fn hash_keeps_the_text_of_every_value() {
        let inputs = r#"{"z":18446744073709551616,"a":1.10,"b":1E5,"c":1e999,"d":"\ud800"}"#;
        let nested = format!("{}{}", "[".repeat(127), "]".repeat(127));
        let nested = nested.as_str();
        let values = [("error", "null"), ("inputs", inputs), ("results", nested), ("status", r#""do\"ne""#)];
        let document: BTreeMap<&str, Box<RawValue>> = values
            .into_iter()
            .map(|(name, json)| (name, RawValue::from_string(json.to_owned()).unwrap()))
            .collect();
        let VirtualValue::Hash(fields) = hash(&document).unwrap() else { panic!("it is not a hash") };
        let expected = [("inputs", inputs), ("results", nested), ("status", "do\"ne")];
        assert_eq!(fields, expected.map(|(name, text)| (name.to_owned(), text.to_owned())));
    }
}
