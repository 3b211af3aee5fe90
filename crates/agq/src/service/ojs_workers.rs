//! Workers of the Open Job Spec: registration, heartbeats, directives, deregistration (the OJS
//! worker spec). These workers have no connection, so only their heartbeats and reports show that
//! they live.

use agenix_protocol::{
    documents::{self, OjsHeartbeat, OjsRegistration, WorkerRegistration},
    ids::{JobId, WorkerId},
};
use agenix_rules::{
    job::{self, Job, RuleOutcome},
    ojs::{MAX_MS, OJS_TAG, SILENCE_MS, VISIBILITY_MS},
    rejection::Rejection,
    worker::{self, Directive, Worker},
};
use serde_json::{Map, Value};

use super::{lookup, worker_messages::publish_worker_event, workers};
use crate::{
    app::AppState,
    error::CommandError,
    store::{AckLevel, JobRule},
};

/// Maximum length of a worker's state, its host name, and a label.
const MAX_WORD: usize = 255;
/// Maximum number of labels, and of queues, of a worker.
const MAX_LABELS: usize = 100;
/// Maximum number of jobs in a heartbeat.
const MAX_ACTIVE: usize = 10_000;
/// Default number of jobs that a worker runs concurrently (the OJS worker spec).
const CONCURRENCY: u32 = 10;
/// Minimum time between two stored signs of life of a worker, in milliseconds.
const SEEN_AGAIN_MS: u64 = 1000;
/// Name of the connection in the records of all OJS workers, which have no connection.
const NO_CONNECTION: &str = "http";

/// Reply to a heartbeat.
pub(crate) struct HeartbeatReply {
    /// `running`, `quiet` or `terminate`.
    pub(crate) state: &'static str,
    /// Jobs whose leases were extended.
    pub(crate) extended: Vec<JobId>,
    /// Jobs that the worker names but does not hold any more.
    pub(crate) lost: Vec<JobId>,
}

/// Returns the worker that a request acts for: `named` by the request, or `own` by its key. Rejects
/// a request with the key of one worker that names another worker.
pub(crate) fn reporting_worker(
    own: Option<&WorkerId>,
    named: Option<&str>,
) -> Result<Option<WorkerId>, Rejection> {
    let named = named.map(|id| WorkerId::new(id).map_err(|error| Rejection::InvalidJob(error.to_string())));
    let named = named.transpose()?;
    match (own, named) {
        (Some(own), Some(named)) => worker::check_key(Some(own), &named).map(|()| Some(named)),
        (own, named) => Ok(named.or_else(|| own.cloned())),
    }
}

/// Records a fetch as a sign of life, and returns the worker. Registers an unknown worker; until
/// its first heartbeat it may be silent for as long as a job is reserved.
pub(crate) async fn seen_worker(
    app: &AppState,
    worker_id: &WorkerId,
    visibility_ms: Option<u64>,
) -> Result<Worker, CommandError> {
    let now = app.clock.now();
    match app.store.worker(worker_id).await? {
        Some(worker) if worker.takes_jobs() && now.ms_since(worker.last_seen_at) < SEEN_AGAIN_MS => {
            Ok(worker)
        }
        Some(worker) if worker::is_alive(&worker) => {
            let rule = move |known: Option<&Worker>| {
                known.map(|known| worker::heartbeat(known, None, known.is_quiet, now)).transpose()
            };
            app.store.decide_worker(worker_id, AckLevel::Visible, None, Box::new(rule)).await??;
            lookup::worker(app, worker_id).await
        }
        _ => {
            let registration = registration_of(worker_id.clone(), CONCURRENCY, &[]);
            enter(app, registration, VISIBILITY_MS.max(visibility_ms.unwrap_or_default())).await?;
            lookup::worker(app, worker_id).await
        }
    }
}

/// Records a report on a job as a sign of life.
pub(crate) async fn record_activity(
    app: &AppState,
    worker_id: Option<&WorkerId>,
) -> Result<(), CommandError> {
    let Some(worker_id) = worker_id else { return Ok(()) };
    let now = app.clock.now();
    let is_old =
        |worker: &Worker| worker::is_alive(worker) && now.ms_since(worker.last_seen_at) >= SEEN_AGAIN_MS;
    if app.store.worker(worker_id).await?.is_some_and(|worker| is_old(&worker)) {
        let rule = move |known: Option<&Worker>| {
            let alive = known.filter(|known| worker::is_alive(known));
            alive.map(|known| worker::heartbeat(known, None, known.is_quiet, now)).transpose()
        };
        app.store.decide_worker(worker_id, AckLevel::Visible, None, Box::new(rule)).await??;
    }
    Ok(())
}

/// Returns the registration of an OJS worker. Its labels become tags.
fn registration_of(worker_id: WorkerId, concurrency: u32, labels: &[String]) -> WorkerRegistration {
    let label = |label: &String| match label.split_once(':') {
        Some((name, value)) => (name.to_owned(), Value::String(value.to_owned())),
        None => (label.clone(), Value::Bool(true)),
    };
    let mut tags: Map<String, Value> = labels.iter().map(label).collect();
    tags.insert(OJS_TAG.to_owned(), Value::Bool(true));
    WorkerRegistration { tags, max_concurrent_jobs: concurrency, ..WorkerRegistration::of(worker_id) }
}

/// Stores a worker. It is declared dead after `silence_ms` without a sign of life.
async fn enter(
    app: &AppState,
    registration: WorkerRegistration,
    silence_ms: u64,
) -> Result<(), CommandError> {
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

/// Registers a worker, and returns its id.
pub(crate) async fn register(
    app: &AppState,
    own: Option<&WorkerId>,
    request: OjsRegistration,
) -> Result<WorkerId, CommandError> {
    let worker_id = reporting_worker(own, Some(&request.worker_id))?;
    let worker_id = worker_id.ok_or_else(|| Rejection::InvalidJob("worker_id is missing".into()))?;
    let is_long = |word: &String| word.len() > MAX_WORD;
    let has_long = request.labels.iter().chain(&request.queues).chain([&request.hostname]).any(is_long);
    if request.labels.len() > MAX_LABELS || request.queues.len() > MAX_LABELS || has_long {
        let text = format!(
            "it has more than {MAX_LABELS} labels or queues, or a word of more than {MAX_WORD} bytes"
        );
        return Err(Rejection::InvalidRegistration(text).into());
    }
    let concurrency = request.concurrency.unwrap_or(CONCURRENCY);
    let mut registration = registration_of(worker_id.clone(), concurrency, &request.labels);
    registration.hostname = request.hostname;
    registration.platform = request.pid.map(|pid| format!("pid {pid}")).unwrap_or_default();
    registration.tags.insert("queues".into(), request.queues.into());
    enter(app, registration, SILENCE_MS).await?;
    Ok(worker_id)
}

/// Records the heartbeat of a worker, and extends the leases of the jobs that the heartbeat names.
pub(crate) async fn beat(
    app: &AppState,
    own: Option<&WorkerId>,
    request: &OjsHeartbeat,
) -> Result<HeartbeatReply, CommandError> {
    let worker_id = reporting_worker(own, Some(&request.worker_id))?;
    let worker_id = worker_id.ok_or_else(|| Rejection::InvalidJob("worker_id is missing".into()))?;
    let active = active_jobs(request)?;
    check_visibility(request.visibility_timeout_ms)?;
    let state: String = request.state.as_deref().unwrap_or("running").chars().take(MAX_WORD).collect();
    let state = state.as_str();
    if app.store.worker(&worker_id).await?.is_none_or(|worker| !worker::is_alive(&worker)) {
        enter(app, registration_of(worker_id.clone(), CONCURRENCY, &[]), SILENCE_MS).await?;
    }
    let is_quiet =
        matches!(state, "quiet" | "terminate" | "terminated" | "drain" | "draining" | "shutting_down");
    let (now, text) = (app.clock.now(), format!(r#"{{"state":{}}}"#, documents::to_json(&state)));
    let rule = move |known: Option<&Worker>| {
        let seen = known.map(|known| worker::heartbeat(known, Some(&text), is_quiet, now)).transpose()?;
        Ok(seen.map(|seen| Worker { silence_ms: Some(SILENCE_MS), ..seen }))
    };
    app.store.decide_worker(&worker_id, AckLevel::Visible, None, Box::new(rule)).await??;
    if is_quiet {
        // Evicts the waiting claims of the worker, because a quiet worker gets no jobs.
        app.waiters.evict(worker_id.as_str());
    }
    let (extended, lost, directive) = extend(app, &worker_id, &active, request.visibility_timeout_ms).await?;
    let worker = lookup::worker(app, &worker_id).await?;
    let state = match (worker.told, directive.as_deref()) {
        (Some(Directive::Terminate), _) | (_, Some("terminate")) => "terminate",
        (Some(Directive::Drain), _) | (_, Some("quiet")) => "quiet",
        _ if worker.quarantine.is_some() => "quiet",
        _ => "running",
    };
    Ok(HeartbeatReply { state, extended, lost })
}

/// Returns the jobs that a heartbeat names in `active_job_ids` or `active_jobs`. A number in
/// `active_jobs` names none.
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

type LeaseExtension = (Vec<JobId>, Vec<JobId>, Option<String>);

/// Extends the leases of `active` jobs. Returns the extended jobs, the jobs that the worker does
/// not hold, and the directive that one of the jobs has for its worker.
async fn extend(
    app: &AppState,
    worker_id: &WorkerId,
    active: &[JobId],
    visibility_ms: Option<u64>,
) -> Result<LeaseExtension, CommandError> {
    let now = app.clock.now();
    let mut answers = Vec::with_capacity(active.len());
    for job_id in active {
        let holder = worker_id.clone();
        let rule: JobRule = Box::new(move |job: Option<&Job>| {
            Ok(job.map_or(RuleOutcome::Unchanged, |job| {
                job::extended(job, holder.as_str(), visibility_ms, now)
            }))
        });
        answers.push((job_id, app.store.decide(job_id, AckLevel::Visible, None, rule)));
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

/// Removes a worker. Its jobs return to their queues, and the claims do not count as attempts.
pub(crate) async fn deregister(
    app: &AppState,
    own: Option<&WorkerId>,
    worker_id: &str,
) -> Result<(), CommandError> {
    let worker_id = reporting_worker(own, Some(worker_id))?;
    let worker_id = worker_id.ok_or_else(|| Rejection::InvalidJob("worker_id is missing".into()))?;
    if workers::remove(app, &worker_id).await? {
        Ok(())
    } else {
        Err(Rejection::WorkerUnknown(worker_id).into())
    }
}

/// Checks the time for which a job is reserved.
pub(crate) fn check_visibility(ms: Option<u64>) -> Result<(), Rejection> {
    if ms.is_none_or(|ms| (1..=MAX_MS).contains(&ms)) {
        return Ok(());
    }
    Err(Rejection::InvalidJob(
        "visibility_timeout_ms has to be a whole number above 0, at most a hundred years".into(),
    ))
}
