//! Workers of the Open Job Spec: registration, heartbeats, directives, deregistration (the OJS
//! worker spec). These workers have no connection, so only their heartbeats and reports show that
//! they live.

use agenix_protocol::{
    documents::{self, OjsHeartbeat, OjsRegistration, WorkerRegistration},
    ids::{JobId, WorkerId},
};
use agenix_rules::{
    job,
    ojs::{MAX_MS, OJS_TAG, SILENCE_MS, VISIBILITY_MS, worker_of},
    rejection::Rejection,
    worker::{self, Directive, NO_CONNECTION, Worker},
};
use serde_json::{Map, Value};

use super::{
    job_changes::if_exists,
    lookup,
    worker_messages::publish_worker_event,
    workers::{self, MAX_ACTIVE},
};
use crate::{app::AppState, error::Result, store::AckLevel};

/// Maximum length of a worker's state, its host name, and a label.
const MAX_WORD: usize = 255;
/// Maximum number of labels, and of queues, of a worker.
const MAX_LABELS: usize = 100;
/// Default number of jobs that a worker runs concurrently (the OJS worker spec).
const CONCURRENCY: u32 = 10;
/// Tag with the id that a worker chose, if agq derived another one from it.
const CHOSEN_ID_TAG: &str = "ojs_id";
/// Minimum time between two stored signs of life of a worker, in milliseconds.
const SEEN_AGAIN_MS: u64 = 1000;

pub(crate) struct HeartbeatReply {
    /// `running`, `quiet` or `terminate`.
    pub(crate) state: &'static str,
    /// Jobs whose leases were extended.
    pub(crate) extended: Vec<JobId>,
    /// Jobs that the worker names but does not hold any more.
    pub(crate) lost: Vec<JobId>,
}

/// Returns the worker that a request names, or that of its key. Rejects a request with the key of
/// one worker that names another worker.
pub(crate) fn reporting_worker(
    own: Option<&WorkerId>,
    named: Option<&str>,
) -> Result<Option<WorkerId>, Rejection> {
    named.map_or_else(|| Ok(own.cloned()), |named| named_worker(own, named).map(Some))
}

fn named_worker(own: Option<&WorkerId>, named: &str) -> Result<WorkerId, Rejection> {
    let worker_id = worker_of(named).ok_or_else(|| {
        let text = "worker_id must have 1 to 255 bytes without white space and control characters";
        Rejection::InvalidJob(text.into())
    })?;
    worker::check_key(own, &worker_id).map(|()| worker_id)
}

/// Registers an unknown worker; until its first heartbeat it may be silent for as long as a job is
/// reserved by default. `named` is the id that the worker chose, if the request has it.
pub(crate) async fn seen_worker(app: &AppState, worker_id: &WorkerId, named: Option<&str>) -> Result<Worker> {
    let now = app.clock.now();
    match app.store.worker(worker_id).await? {
        Some(worker) if worker.takes_jobs() && now.ms_since(worker.last_seen_at) < SEEN_AGAIN_MS => {
            Ok(worker)
        }
        Some(worker) if worker::is_alive(&worker) => {
            let rule = move |known: Option<&Worker>| {
                known.map(|known| worker::heartbeat(known, None, known.is_quiet, now)).transpose()
            };
            app.store.decide_worker(worker_id, AckLevel::Applied, None, Box::new(rule)).await??;
            lookup::worker(app, worker_id).await
        }
        _ => {
            let registration = registration_of(worker_id.clone(), named, CONCURRENCY, &[]);
            store_registration(app, registration, VISIBILITY_MS).await?;
            lookup::worker(app, worker_id).await
        }
    }
}

pub(crate) async fn record_activity(app: &AppState, worker_id: Option<&WorkerId>) -> Result<()> {
    let Some(worker_id) = worker_id else { return Ok(()) };
    let now = app.clock.now();
    let is_old =
        |worker: &Worker| worker::is_alive(worker) && now.ms_since(worker.last_seen_at) >= SEEN_AGAIN_MS;
    if app.store.worker(worker_id).await?.is_some_and(|worker| is_old(&worker)) {
        let rule = move |known: Option<&Worker>| {
            let alive = known.filter(|known| worker::is_alive(known));
            alive.map(|known| worker::heartbeat(known, None, known.is_quiet, now)).transpose()
        };
        app.store.decide_worker(worker_id, AckLevel::Applied, None, Box::new(rule)).await??;
    }
    Ok(())
}

/// Labels become tags, and so does the id that the worker chose (`named`), if it has another one.
fn registration_of(
    worker_id: WorkerId,
    named: Option<&str>,
    concurrency: u32,
    labels: &[String],
) -> WorkerRegistration {
    let label = |label: &String| match label.split_once(':') {
        Some((name, value)) => (name.to_owned(), Value::String(value.to_owned())),
        None => (label.clone(), Value::Bool(true)),
    };
    let mut tags: Map<String, Value> = labels.iter().map(label).collect();
    tags.insert(OJS_TAG.to_owned(), Value::Bool(true));
    if let Some(other) = named.filter(|named| *named != worker_id.as_str()) {
        tags.insert(CHOSEN_ID_TAG.to_owned(), other.into());
    }
    WorkerRegistration { tags, max_concurrent_jobs: concurrency, ..WorkerRegistration::of(worker_id) }
}

/// The worker is declared dead after `silence_ms` without a sign of life.
async fn store_registration(app: &AppState, registration: WorkerRegistration, silence_ms: u64) -> Result<()> {
    let (worker_id, now) = (registration.worker_id.clone(), app.clock.now());
    let text = documents::to_json(&registration);
    let rule = move |known: Option<&Worker>| {
        let entered = worker::registered(known, &registration, NO_CONNECTION, now)?;
        Ok(Some(Worker { silence_ms: Some(silence_ms), ..entered }))
    };
    app.store.decide_worker(&worker_id, AckLevel::Durable, Some(text), Box::new(rule)).await??;
    publish_worker_event(app, &worker_id, "registered");
    Ok(())
}

pub(crate) async fn register(
    app: &AppState,
    own: Option<&WorkerId>,
    request: OjsRegistration,
) -> Result<WorkerId> {
    let worker_id = named_worker(own, &request.worker_id)?;
    let is_long = |word: &String| word.len() > MAX_WORD;
    let has_long = request.labels.iter().chain(&request.queues).chain([&request.hostname]).any(is_long);
    if request.labels.len() > MAX_LABELS || request.queues.len() > MAX_LABELS || has_long {
        let text = format!(
            "it has more than {MAX_LABELS} labels or queues, or a word of more than {MAX_WORD} bytes"
        );
        return Err(Rejection::InvalidRegistration(text).into());
    }
    let concurrency = request.concurrency.unwrap_or(CONCURRENCY);
    let named = Some(request.worker_id.as_str());
    let mut registration = registration_of(worker_id.clone(), named, concurrency, &request.labels);
    registration.hostname = request.hostname;
    registration.platform = request.pid.map(|pid| format!("pid {pid}")).unwrap_or_default();
    registration.tags.insert("queues".into(), request.queues.into());
    store_registration(app, registration, SILENCE_MS).await?;
    Ok(worker_id)
}

/// Extends the leases of the jobs that the heartbeat names.
pub(crate) async fn beat(
    app: &AppState,
    own: Option<&WorkerId>,
    request: &OjsHeartbeat,
) -> Result<HeartbeatReply> {
    let worker_id = named_worker(own, &request.worker_id)?;
    let active = active_jobs(request)?;
    check_visibility(request.visibility_timeout_ms)?;
    let state: String = request.state.as_deref().unwrap_or("running").chars().take(MAX_WORD).collect();
    let state = state.as_str();
    if app.store.worker(&worker_id).await?.is_none_or(|worker| !worker::is_alive(&worker)) {
        let named = Some(request.worker_id.as_str());
        let registration = registration_of(worker_id.clone(), named, CONCURRENCY, &[]);
        store_registration(app, registration, SILENCE_MS).await?;
    }
    let is_quiet =
        matches!(state, "quiet" | "terminate" | "terminated" | "drain" | "draining" | "shutting_down");
    let (now, text) = (app.clock.now(), format!(r#"{{"state":{}}}"#, documents::to_json(&state)));
    let rule = move |known: Option<&Worker>| {
        let seen = known.map(|known| worker::heartbeat(known, Some(&text), is_quiet, now)).transpose()?;
        Ok(seen.map(|seen| Worker { silence_ms: Some(SILENCE_MS), ..seen }))
    };
    app.store.decide_worker(&worker_id, AckLevel::Applied, None, Box::new(rule)).await??;
    if is_quiet {
        // Evicts the waiting claims of the worker, because a quiet worker gets no jobs.
        app.waiters.evict(worker_id.as_str());
    }
    let (extended, lost, directive) = extend(app, &worker_id, &active, request.visibility_timeout_ms).await?;
    let worker = lookup::worker(app, &worker_id).await?;
    let state = match (worker.directive, directive.as_deref()) {
        (Some(Directive::Terminate), _) | (_, Some("terminate")) => "terminate",
        (Some(Directive::Drain), _) | (_, Some("quiet")) => "quiet",
        _ if worker.quarantine.is_some() => "quiet",
        _ => "running",
    };
    Ok(HeartbeatReply { state, extended, lost })
}

/// A number in `active_jobs` names no job.
fn active_jobs(request: &OjsHeartbeat) -> Result<Vec<JobId>, Rejection> {
    let invalid = |text: String| Rejection::InvalidJob(format!("active_jobs: {text}"));
    let ids: Vec<String> = match (&request.active_job_ids, &request.active_jobs) {
        (Some(ids), _) => ids.clone(),
        (None, Some(Value::Array(ids))) => {
            let text = |id: &Value| {
                id.as_str().map(str::to_owned).ok_or_else(|| invalid("an id is not a string".into()))
            };
            ids.iter().map(text).collect::<Result<_, _>>()?
        }
        (None, None | Some(Value::Number(_) | Value::Null)) => Vec::new(),
        (None, Some(_)) => return Err(invalid("it has to be a list of ids, or a number".into())),
    };
    if ids.len() > MAX_ACTIVE {
        return Err(invalid(format!("more than {MAX_ACTIVE} ids")));
    }
    ids.into_iter().map(|id| JobId::new(id).map_err(|error| invalid(error.to_string()))).collect()
}

/// Returns the extended jobs, the jobs that the worker does not hold, and a directive of a job.
async fn extend(
    app: &AppState,
    worker_id: &WorkerId,
    active: &[JobId],
    visibility_ms: Option<u64>,
) -> Result<(Vec<JobId>, Vec<JobId>, Option<String>)> {
    let now = app.clock.now();
    let mut answers = Vec::with_capacity(active.len());
    for job_id in active {
        let holder = worker_id.clone();
        let rule = if_exists(move |job| job::extended(job, holder.as_str(), visibility_ms, now));
        answers.push((job_id, app.store.decide(job_id, AckLevel::Applied, None, rule)));
    }
    let (mut extended, mut lost, mut directive) = (Vec::new(), Vec::new(), None);
    for (job_id, answer) in answers {
        match answer.await?? {
            Some(change) => {
                directive = directive.or(change.after.ojs.and_then(|ojs| ojs.directive));
                extended.push(job_id.clone());
            }
            None => lost.push(job_id.clone()),
        }
    }
    Ok((extended, lost, directive))
}

/// The jobs return to their queues, and the claims do not count as attempts.
pub(crate) async fn deregister(app: &AppState, own: Option<&WorkerId>, worker_id: &str) -> Result<()> {
    let worker_id = named_worker(own, worker_id)?;
    if workers::remove(app, &worker_id).await? {
        Ok(())
    } else {
        Err(Rejection::WorkerUnknown(worker_id).into())
    }
}

pub(crate) fn check_visibility(ms: Option<u64>) -> Result<(), Rejection> {
    if ms.is_none_or(|ms| (1..=MAX_MS).contains(&ms)) {
        return Ok(());
    }
    Err(Rejection::InvalidJob(
        "visibility_timeout_ms has to be a whole number above 0, at most a hundred years".into(),
    ))
}
