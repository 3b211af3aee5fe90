//! Lifecycle of a worker: registration, heartbeat, silence, death, directives (worker spec §6).

use agenix_protocol::{
    documents::{DrainMark, Quantities, WorkerRegistration, WorkerStatus},
    ids::WorkerId,
    time::Timestamp,
};
use serde::{Deserialize, Serialize};

mod introduction;
mod trial;

use introduction::check_words;
pub use introduction::{
    MAX_DESCRIPTION_BYTES, check_capabilities, check_stats, listed_jobs, shorten_descriptions,
};
pub use trial::{TRIAL_AFTER_MS, judged, quarantined, tried, untried};

use crate::{ojs::VISIBILITY_MS, rejection::Rejection};

/// Liveness of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Liveness {
    /// Registered, with a recent sign of life.
    Active,
    /// Silent for too long. The record is kept for diagnosis.
    Dead,
}

/// Directive of an operator for a worker (WORKER.DRAIN, WORKER.TERMINATE).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Directive {
    /// Claim no more jobs.
    Drain,
    /// Claim no more jobs, finish the running ones, and exit.
    Terminate,
}

/// Stored record of a worker, without its large registration. Durable, positional: append only.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[must_use]
pub struct Worker {
    /// The worker.
    pub worker_id: WorkerId,
    /// Liveness.
    #[serde(rename = "standing")]
    pub liveness: Liveness,
    /// Random name of the current run of the worker, if the worker gave one.
    pub instance: Option<String>,
    /// Statistics of the last heartbeat, as JSON.
    pub stats: Option<String>,
    /// Time of the registration. Every registration has another time.
    pub registered_at: Timestamp,
    /// Time of the last sign of life.
    pub last_seen_at: Timestamp,
    /// Connection of the registration, while it is open.
    pub connection: Option<String>,
    /// Directive of an operator.
    #[serde(rename = "told")]
    pub directive: Option<Directive>,
    /// Reason of the quarantine of the worker.
    pub quarantine: Option<String>,
    /// Number of jobs of the worker that exceeded their timeout.
    pub timed_out_jobs: u64,
    /// Maximum number of concurrent jobs.
    pub max_concurrent_jobs: u32,
    /// True if the worker reported that it takes no jobs for now.
    #[serde(default)]
    pub is_quiet: bool,
    /// Silence in milliseconds after which the worker is dead, if not the setting of agq.
    #[serde(default)]
    pub silence_ms: Option<u64>,
    /// Time from which a quarantined worker may get a trial job. `None` means at once.
    #[serde(default)]
    pub trial_at: Option<Timestamp>,
    /// True if a quarantined worker may get a trial job, whose success ends the quarantine.
    #[serde(default)]
    pub is_on_trial: bool,
    /// Program that has drained the worker, unless an operator has.
    #[serde(default)]
    pub drained: Option<DrainMark>,
}

impl Worker {
    /// Returns true if the worker may take jobs, and is not quiet.
    pub fn wants_jobs(&self) -> bool {
        self.takes_jobs() && !self.is_quiet
    }

    /// Returns true if the worker may take jobs.
    pub fn takes_jobs(&self) -> bool {
        self.can_work() && self.quarantine.is_none()
    }

    /// Returns true if a claim may get a job: the worker takes jobs or is on trial.
    pub fn may_claim(&self) -> bool {
        self.can_work() && (self.quarantine.is_none() || self.is_on_trial)
    }

    fn can_work(&self) -> bool {
        self.liveness == Liveness::Active && self.directive.is_none()
    }

    /// Returns the state that `WORKER.LIST` shows.
    pub fn state(&self) -> &'static str {
        match (self.liveness, self.directive) {
            (Liveness::Dead, _) => "dead",
            (_, Some(Directive::Terminate)) => "terminating",
            (_, Some(Directive::Drain)) => "draining",
            _ if self.quarantine.is_some() => "quarantined",
            _ if self.is_quiet => "quiet",
            _ => "active",
        }
    }

    /// Returns the worker as `WORKER.LIST` shows it, with `active_jobs` that use `used_resources`.
    pub fn status(
        &self,
        registration: Option<WorkerRegistration>,
        active_jobs: u64,
        used_resources: Quantities,
    ) -> WorkerStatus {
        let registration = registration.unwrap_or_else(|| WorkerRegistration::of(self.worker_id.clone()));
        WorkerStatus {
            worker_id: self.worker_id.clone(),
            state: self.state().into(),
            hostname: registration.hostname,
            platform: registration.platform,
            agw_version: registration.agw_version,
            capabilities: registration.capabilities,
            max_concurrent_jobs: self.max_concurrent_jobs,
            active_jobs,
            timed_out_jobs: self.timed_out_jobs,
            quarantine_reason: self.quarantine.clone(),
            registered_at: self.registered_at,
            last_seen_at: self.last_seen_at,
            stats: self.stats.as_deref().and_then(|stats| serde_json::from_str(stats).ok()),
            tags: registration.tags,
            sandbox: registration.sandbox,
            resources: registration.resources,
            used_resources,
            drained: self.drained.clone(),
        }
    }
}

/// Name of the connection in the records of all workers over HTTP, which have no connection.
pub const NO_CONNECTION: &str = "http";

/// Registers a worker on `connection`.
///
/// A directive and a quarantine stay with a run of the worker, which its connection or `instance`
/// identifies. Another run starts without directive and quarantine. A worker without `instance` on
/// another connection keeps a drain and a quarantine. The error is [`Rejection::WorkerIdTaken`] if
/// the id belongs to a live worker on another open connection, and the registration is not of the
/// same run.
pub fn registered(
    known: Option<&Worker>,
    registration: &WorkerRegistration,
    connection: &str,
    now: Timestamp,
) -> Result<Worker, Rejection> {
    check_capabilities(&registration.capabilities)?;
    check_words(registration)?;
    if registration.max_concurrent_jobs == 0 {
        let text = "max_concurrent_jobs is 0: a worker runs at least one job";
        return Err(Rejection::InvalidRegistration(text.into()));
    }
    if let Some(known) = known
        && known.liveness == Liveness::Active
        && known.connection.as_deref().is_some_and(|open| open != connection)
        && (known.instance.is_none() || known.instance != registration.instance)
    {
        return Err(Rejection::WorkerIdTaken);
    }
    // Directive and quarantine belong to a run of the worker, because another run may work well.
    let same_run = known.filter(|known| is_same_run(known, registration, connection));
    // A worker without `instance` may have lost its connection (worker spec §5.1) or be a new run.
    // A worker that was to exit is a new run.
    let unnamed = known.filter(|known| known.instance.is_none() && registration.instance.is_none());
    let kept = same_run.or(unnamed);
    let directive = kept.and_then(|known| known.directive);
    let registered_at = known.map_or(now, |known| now.max(known.registered_at.plus_ms(1)));
    Ok(Worker {
        worker_id: registration.worker_id.clone(),
        liveness: Liveness::Active,
        instance: registration.instance.clone(),
        stats: same_run.and_then(|known| known.stats.clone()),
        registered_at,
        last_seen_at: now,
        connection: Some(connection.to_owned()),
        directive: directive.filter(|directive| same_run.is_some() || *directive == Directive::Drain),
        quarantine: kept.and_then(|known| known.quarantine.clone()),
        timed_out_jobs: known.map_or(0, |known| known.timed_out_jobs),
        max_concurrent_jobs: registration.max_concurrent_jobs,
        is_quiet: same_run.is_some_and(|known| known.is_quiet),
        silence_ms: None,
        trial_at: kept.and_then(|known| known.trial_at),
        is_on_trial: kept.is_some_and(|known| known.is_on_trial),
        drained: kept.and_then(|known| known.drained.clone()),
    })
}

/// Returns true if the registration is certainly of the same run as the `known` record.
fn is_same_run(known: &Worker, registration: &WorkerRegistration, connection: &str) -> bool {
    let has_same_instance = known.instance.is_some() && known.instance == registration.instance;
    let is_same_connection = connection != NO_CONNECTION && known.connection.as_deref() == Some(connection);
    has_same_instance || (is_same_connection && !is_new_run(known, registration))
}

/// Checks that a connection registers one worker only; `registered` is its earlier one.
pub fn check_connection(registered: Option<&WorkerId>, worker_id: &WorkerId) -> Result<(), Rejection> {
    match registered.filter(|other| *other != worker_id) {
        None => Ok(()),
        Some(other) => Err(Rejection::InvalidRegistration(format!(
            "this connection registered worker {other} before: use another connection for {worker_id}"
        ))),
    }
}

/// Checks that a connection with the key of a worker (`own`) acts for that worker only.
pub fn check_key(own: Option<&WorkerId>, worker_id: &WorkerId) -> Result<(), Rejection> {
    match own.filter(|own| *own != worker_id) {
        None => Ok(()),
        Some(own) => Err(Rejection::NotPermitted(format!(
            "This key is worker {own}'s and may not act for {worker_id}"
        ))),
    }
}

/// Returns the worker in whose name a report is made. `None` stands for the connection itself.
///
/// `own` is the worker of the connection, and `named` the worker that the report names. A
/// connection without a worker may name one, and a connection with a worker may not name another.
pub fn reporter<'w>(
    own: Option<&'w WorkerId>,
    named: Option<&'w WorkerId>,
) -> Result<Option<&'w WorkerId>, Rejection> {
    match (own, named) {
        (Some(own), Some(named)) if own != named => {
            Err(Rejection::InvalidUpdate(format!("worker_id is {named}, this connection is {own}")))
        }
        (own, named) => Ok(own.or(named)),
    }
}

/// Returns true for another named run of the worker, so that jobs of the earlier run are lost.
pub fn is_new_run(known: &Worker, registration: &WorkerRegistration) -> bool {
    known.instance.is_some() && registration.instance.is_some() && known.instance != registration.instance
}

/// Applies a heartbeat. A dead worker has to register again.
pub fn heartbeat(
    known: &Worker,
    stats: Option<&str>,
    is_quiet: bool,
    now: Timestamp,
) -> Result<Worker, Rejection> {
    if known.liveness != Liveness::Active {
        return Err(Rejection::WorkerUnknown(known.worker_id.clone()));
    }
    let mut seen = known.clone();
    // An earlier time counts, too, because the clock may have been set back. A time in the future
    // would count as a sign of life until it has passed.
    seen.last_seen_at = now;
    if let Some(stats) = stats {
        seen.stats = Some(stats.to_owned());
        seen.is_quiet = is_quiet;
    }
    Ok(seen)
}

/// Sets or, with `None`, removes a directive. Removing a directive ends the quarantine, too.
pub fn directed(known: &Worker, directive: Option<Directive>) -> Result<Worker, Rejection> {
    if known.liveness != Liveness::Active {
        return Err(Rejection::WorkerUnknown(known.worker_id.clone()));
    }
    let quarantine = known.quarantine.clone().filter(|_| directive.is_some());
    Ok(Worker { directive, quarantine, is_on_trial: false, drained: None, ..known.clone() })
}

/// Drains the worker for the program that `mark` names. A worker that an operator has drained gets
/// no mark, because the program must not resume or end that worker.
pub fn drained(known: &Worker, mark: DrainMark) -> Result<Worker, Rejection> {
    let is_operators = known.directive == Some(Directive::Drain) && known.drained.is_none();
    let drained = (!is_operators).then_some(mark);
    Ok(Worker { drained, ..directed(known, Some(Directive::Drain))? })
}

/// Counts a job that exceeded its timeout, because the worker may hang (worker spec §5.2).
pub fn flagged(known: &Worker) -> Worker {
    Worker { timed_out_jobs: known.timed_out_jobs + 1, ..known.clone() }
}

/// Returns true if the worker is not dead.
pub fn is_alive(worker: &Worker) -> bool {
    worker.liveness == Liveness::Active
}

/// Returns true if a worker has been silent for longer than `timeout_ms`, or longer than its own
/// `silence_ms` (worker spec §3.2: three heartbeat intervals).
///
/// Only the time since `listening_since` counts, because agq received no heartbeats before. A sign
/// of life far in the future does not count, because it comes from before the clock was set back.
pub fn is_silent(worker: &Worker, now: Timestamp, listening_since: Timestamp, timeout_ms: u64) -> bool {
    let timeout_ms = worker.silence_ms.unwrap_or(timeout_ms);
    let seen = Some(worker.last_seen_at).filter(|seen| seen.ms_since(now) <= timeout_ms);
    let last_sign = seen.unwrap_or_default().max(listening_since);
    worker.liveness == Liveness::Active && now.ms_since(last_sign) > timeout_ms
}

/// Lets an OJS worker that has only fetched be silent for `lease_ms`, the lease of a job that it
/// holds. Returns `None` for a worker that sends heartbeats, and if it may be silent for longer.
pub fn with_longer_lease(worker: &Worker, lease_ms: u64) -> Option<Worker> {
    let silence_ms = worker.silence_ms.filter(|ms| *ms >= VISIBILITY_MS)?;
    (silence_ms < lease_ms).then(|| Worker { silence_ms: Some(lease_ms), ..worker.clone() })
}

/// Marks the worker as dead.
pub fn dead(worker: &Worker) -> Worker {
    Worker { liveness: Liveness::Dead, connection: None, ..worker.clone() }
}

/// Removes a closed `connection`, or returns `None` if the worker has another one.
pub fn detached(worker: &Worker, connection: &str) -> Option<Worker> {
    let detached = || Worker { connection: None, ..worker.clone() };
    (worker.connection.as_deref() == Some(connection)).then(detached)
}

/// Names the run of a worker that has registered on `connection`, or returns `None` if the worker
/// has another connection.
pub fn run_named(worker: &Worker, connection: &str, instance: Option<&str>) -> Option<Worker> {
    let named = || Worker { instance: instance.map(str::to_owned), ..worker.clone() };
    (worker.connection.as_deref() == Some(connection)).then(named)
}

#[cfg(test)]
mod tests;
