//! A worker's life: registered, seen, silent, dead, unregistered (worker spec §6).

use agenix_protocol::{
    documents::{WorkerRegistration, WorkerStatus},
    ids::WorkerId,
    time::Timestamp,
};
use serde::{Deserialize, Serialize};

mod introduction;
mod trial;

use introduction::check_words;
pub use introduction::{MAX_DESCRIPTION_BYTES, check_capabilities, check_stats, shorten_descriptions};
pub use trial::{TRIAL_AFTER_MS, judged, quarantined, tried, untried};

use crate::rejection::Rejection;

/// Where a worker is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Liveness {
    /// Registered and heard of in time.
    Active,
    /// Silent for too long; kept for whoever looks for what happened.
    Dead,
}

/// What a worker was told by someone who may (WORKER.DRAIN, WORKER.TERMINATE).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Directive {
    /// Take no more jobs.
    Drain,
    /// Take no more jobs, finish those under way, and end.
    Terminate,
}

/// A worker as a store keeps it; its registration, which is large, is kept apart. Fields are durable and positional:
/// append, never reorder.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Worker {
    /// The worker.
    pub worker_id: WorkerId,
    /// Where it is in its life.
    pub standing: Liveness,
    /// The random name of this run of the worker, where it gave one.
    pub instance: Option<String>,
    /// The last statistics it sent, as JSON.
    pub stats: Option<String>,
    /// When it registered; every registration has another time.
    pub registered_at: Timestamp,
    /// When it was last heard of.
    pub last_seen_at: Timestamp,
    /// The connection on which it registered, while that is open.
    pub connection: Option<String>,
    /// What it was told.
    pub told: Option<Directive>,
    /// Why it gets no jobs, where it is quarantined.
    pub quarantine: Option<String>,
    /// Jobs of its that took longer than they may.
    pub timed_out_jobs: u64,
    /// How many jobs it runs at once.
    pub max_concurrent_jobs: u32,
    /// Whether it said that it takes no jobs for now.
    #[serde(default)]
    pub is_quiet: bool,
    /// How long it may be silent, in milliseconds, where that is not what agq is set to.
    #[serde(default)]
    pub silence_ms: Option<u64>,
    /// Time from which a quarantined worker may get a trial job. `None` means at once.
    #[serde(default)]
    pub trial_at: Option<Timestamp>,
    /// True if a quarantined worker may get a trial job, whose result decides about the end of the
    /// quarantine.
    #[serde(default)]
    pub is_on_trial: bool,
}

impl Worker {
    /// Whether it may take jobs, and does.
    pub fn wants_jobs(&self) -> bool {
        self.takes_jobs() && !self.is_quiet
    }

    /// Whether it may take jobs.
    pub fn takes_jobs(&self) -> bool {
        self.can_work() && self.quarantine.is_none()
    }

    /// Tells whether a claim of the worker may get a job, because the worker takes jobs or is on
    /// trial.
    pub fn may_claim(&self) -> bool {
        self.can_work() && (self.quarantine.is_none() || self.is_on_trial)
    }

    fn can_work(&self) -> bool {
        self.standing == Liveness::Active && self.told.is_none()
    }

    /// The word for how it stands.
    pub fn state(&self) -> &'static str {
        match (self.standing, self.told) {
            (Liveness::Dead, _) => "dead",
            (_, Some(Directive::Terminate)) => "terminating",
            (_, Some(Directive::Drain)) => "draining",
            _ if self.quarantine.is_some() => "quarantined",
            _ if self.is_quiet => "quiet",
            _ => "active",
        }
    }

    /// The worker as `WORKER.LIST` shows it.
    pub fn status(&self, registration: Option<WorkerRegistration>, active_jobs: u64) -> WorkerStatus {
        let told = registration.unwrap_or_else(|| WorkerRegistration::of(self.worker_id.clone()));
        WorkerStatus {
            worker_id: self.worker_id.clone(),
            state: self.state().into(),
            hostname: told.hostname,
            platform: told.platform,
            agw_version: told.agw_version,
            capabilities: told.capabilities,
            max_concurrent_jobs: self.max_concurrent_jobs,
            active_jobs,
            timed_out_jobs: self.timed_out_jobs,
            quarantine_reason: self.quarantine.clone(),
            registered_at: self.registered_at,
            last_seen_at: self.last_seen_at,
            stats: self.stats.as_deref().and_then(|stats| serde_json::from_str(stats).ok()),
            tags: told.tags,
        }
    }
}

/// A worker registers, on `connection`.
///
/// An id that lives is taken, unless it is the same run of the worker that comes back (same `instance`), or the
/// connection on which it registered is gone.
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
        && known.standing == Liveness::Active
        && known.connection.as_deref().is_some_and(|open| open != connection)
        && (known.instance.is_none() || known.instance != registration.instance)
    {
        return Err(Rejection::WorkerIdTaken);
    }
    // What it was told and found guilty of stays with a run of the worker; another run is another chance.
    let same_run = known.filter(|known| known.instance.is_some() && known.instance == registration.instance);
    let registered_at = known.map_or(now, |known| now.max(known.registered_at.plus_ms(1)));
    Ok(Worker {
        worker_id: registration.worker_id.clone(),
        standing: Liveness::Active,
        instance: registration.instance.clone(),
        stats: same_run.and_then(|known| known.stats.clone()),
        registered_at,
        last_seen_at: now,
        connection: Some(connection.to_owned()),
        told: same_run.and_then(|known| known.told),
        quarantine: same_run.and_then(|known| known.quarantine.clone()),
        timed_out_jobs: known.map_or(0, |known| known.timed_out_jobs),
        max_concurrent_jobs: registration.max_concurrent_jobs,
        is_quiet: same_run.is_some_and(|known| known.is_quiet),
        silence_ms: None,
        trial_at: same_run.and_then(|known| known.trial_at),
        is_on_trial: same_run.is_some_and(|known| known.is_on_trial),
    })
}

/// A connection is one worker: `registered` is who registered on it before.
pub fn check_connection(registered: Option<&WorkerId>, worker_id: &WorkerId) -> Result<(), Rejection> {
    match registered.filter(|other| *other != worker_id) {
        None => Ok(()),
        Some(other) => Err(Rejection::InvalidRegistration(format!(
            "this connection registered worker {other} before: use another connection for {worker_id}"
        ))),
    }
}

/// A connection that has shown a worker's own key (`own`) speaks for that worker alone.
pub fn check_key(own: Option<&WorkerId>, worker_id: &WorkerId) -> Result<(), Rejection> {
    match own.filter(|own| *own != worker_id) {
        None => Ok(()),
        Some(own) => Err(Rejection::NotPermitted(format!(
            "This key is worker {own}'s and may not speak for {worker_id}"
        ))),
    }
}

/// In whose name a report is made, of `own`, the worker that the connection is, and `named`, the one that the report names:
/// who is no worker may name one, who is one may not name another. `None` is the connection itself.
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

/// Whether the worker that registers is another run of the one that is known: what that one had is lost with it. Known only of
/// workers that name their runs.
pub fn is_new_run(known: &Worker, registration: &WorkerRegistration) -> bool {
    known.instance.is_some() && registration.instance.is_some() && known.instance != registration.instance
}

/// A heartbeat. A worker that was found dead has to register again.
pub fn heartbeat(
    known: &Worker,
    stats: Option<&str>,
    is_quiet: bool,
    now: Timestamp,
) -> Result<Worker, Rejection> {
    if known.standing != Liveness::Active {
        return Err(Rejection::WorkerUnknown(known.worker_id.clone()));
    }
    let mut seen = known.clone();
    // Also where that is earlier: the clock was set back, and a time to come would count as heard until it has come.
    seen.last_seen_at = now;
    if let Some(stats) = stats {
        seen.stats = Some(stats.to_owned());
        seen.is_quiet = is_quiet;
    }
    Ok(seen)
}

/// A worker is told to drain or to terminate, or (`None`) to go on; going on ends its quarantine too.
pub fn directed(known: &Worker, told: Option<Directive>) -> Result<Worker, Rejection> {
    if known.standing != Liveness::Active {
        return Err(Rejection::WorkerUnknown(known.worker_id.clone()));
    }
    let quarantine = known.quarantine.clone().filter(|_| told.is_some());
    Ok(Worker { told, quarantine, is_on_trial: false, ..known.clone() })
}

/// A job of a worker took longer than it may: the worker may hang (worker spec §5.2).
#[must_use]
pub fn flagged(known: &Worker) -> Worker {
    Worker { timed_out_jobs: known.timed_out_jobs + 1, ..known.clone() }
}

/// Whether it was heard of in time.
pub fn is_alive(worker: &Worker) -> bool {
    worker.standing == Liveness::Active
}

/// Whether a worker has been silent for longer than `timeout_ms`, or than its own time where it has one (worker spec §3.2: three heartbeat intervals). Only the time
/// since `listening_since` counts: while agq was away nobody could be heard. A sign of life from far ahead is from before the
/// clock was set back, and says nothing.
pub fn is_silent(worker: &Worker, now: Timestamp, listening_since: Timestamp, timeout_ms: u64) -> bool {
    let timeout_ms = worker.silence_ms.unwrap_or(timeout_ms);
    let seen = Some(worker.last_seen_at).filter(|seen| seen.ms_since(now) <= timeout_ms);
    let heard = seen.unwrap_or_default().max(listening_since);
    worker.standing == Liveness::Active && now.ms_since(heard) > timeout_ms
}

/// The worker, found dead.
pub fn dead(worker: &Worker) -> Worker {
    Worker { standing: Liveness::Dead, connection: None, ..worker.clone() }
}

/// The worker after `connection` closed; `None` when that changes nothing.
pub fn detached(worker: &Worker, connection: &str) -> Option<Worker> {
    let detached = || Worker { connection: None, ..worker.clone() };
    (worker.connection.as_deref() == Some(connection)).then(detached)
}

#[cfg(test)]
mod tests {
    use agenix_protocol::{
        documents::{WorkerRegistration, parse},
        time::Timestamp,
    };

    use super::{
        Directive, Liveness, Worker, check_connection, dead, detached, directed, heartbeat, is_new_run,
        is_silent, quarantined, registered, reporter,
    };
    use crate::rejection::Rejection;

    const NOW: Timestamp = Timestamp(1000);

    fn registration(instance: &str) -> WorkerRegistration {
        parse(format!(r#"{{"worker_id":"w","capabilities":["sort"],"instance":"{instance}"}}"#).as_bytes())
            .unwrap()
    }

    fn worker() -> Worker {
        registered(None, &registration("a"), "c1", NOW).unwrap()
    }

    #[test]
    fn an_id_is_taken_while_its_connection_lives() {
        let again = |known: &Worker, instance| registered(Some(known), &registration(instance), "c2", NOW);
        assert_eq!(again(&worker(), "b"), Err(Rejection::WorkerIdTaken));
        assert!(again(&worker(), "a").is_ok());
        assert!(again(&detached(&worker(), "c1").unwrap(), "b").is_ok());
        assert!(again(&dead(&worker()), "b").is_ok());
    }

    #[test]
    fn a_connection_is_one_worker_and_names_no_other() {
        let (w, x) = (worker().worker_id, "x".parse().unwrap());
        assert!(check_connection(None, &w).is_ok() && check_connection(Some(&w), &w).is_ok());
        let refused = check_connection(Some(&x), &w).unwrap_err().to_string();
        assert!(refused.ends_with("registered worker x before: use another connection for w"), "{refused}");
        assert_eq!(reporter(None, None), Ok(None));
        assert_eq!(reporter(None, Some(&x)), Ok(Some(&x)));
        assert_eq!(reporter(Some(&w), None), Ok(Some(&w)));
        let refused = reporter(Some(&w), Some(&x)).unwrap_err().to_string();
        assert_eq!(refused, "Invalid job update: worker_id is x, this connection is w");
    }

    #[test]
    fn runs_are_told_apart_by_their_names() {
        assert!(is_new_run(&worker(), &registration("b")));
        assert!(!is_new_run(&worker(), &registration("a")));
        assert!(!is_new_run(&worker(), &WorkerRegistration { instance: None, ..registration("a") }));
    }

    #[test]
    fn silence_is_measured_from_the_last_sign_of_life() {
        let worker = heartbeat(&worker(), None, false, Timestamp(2000)).unwrap();
        assert!(!is_silent(&worker, Timestamp(2000 + 90_000), NOW, 90_000));
        assert!(is_silent(&worker, Timestamp(2000 + 90_001), NOW, 90_000));
        assert!(
            !is_silent(&worker, Timestamp(2000 + 90_001), Timestamp(50_000), 90_000),
            "agq was away until then"
        );
        assert!(!is_silent(&dead(&worker), Timestamp(1_000_000), NOW, 90_000));
    }

    #[test]
    fn silence_is_noticed_when_the_clock_was_set_back() {
        let long_ago = Timestamp(1_000_000);
        let worker = heartbeat(&worker(), None, false, Timestamp(9_000_000)).unwrap();
        assert!(!is_silent(&worker, long_ago, long_ago, 90_000), "it is listened for from now on");
        assert!(is_silent(&worker, Timestamp(long_ago.0 + 90_001), long_ago, 90_000));
        let heard = heartbeat(&worker, None, false, Timestamp(long_ago.0 + 80_000)).unwrap();
        assert!(!is_silent(&heard, Timestamp(long_ago.0 + 90_001), long_ago, 90_000));
        let just_now = heartbeat(&worker, None, false, Timestamp(long_ago.0 + 5)).unwrap();
        assert!(!is_silent(&just_now, long_ago, NOW, 90_000), "it was heard while somebody looked");
    }

    #[test]
    fn the_dead_must_register_again() {
        assert!(heartbeat(&dead(&worker()), None, false, NOW).is_err());
        let quiet = heartbeat(&worker(), Some("{}"), true, NOW).unwrap();
        assert_eq!((quiet.state(), quiet.takes_jobs(), quiet.wants_jobs()), ("quiet", true, false));
        assert_eq!(heartbeat(&quiet, None, false, NOW).unwrap().state(), "quiet", "it said nothing else");
        assert_eq!(dead(&worker()).standing, Liveness::Dead);
        assert_eq!(detached(&worker(), "c9"), None);
    }

    #[test]
    fn what_a_worker_was_told_stays_with_its_run() {
        let draining = directed(&worker(), Some(Directive::Drain)).unwrap();
        assert_eq!((draining.state(), draining.takes_jobs()), ("draining", false));
        let again =
            |known: &Worker, instance| registered(Some(known), &registration(instance), "c1", NOW).unwrap();
        assert_eq!(again(&draining, "a").state(), "draining");
        assert_eq!(again(&draining, "b").state(), "active");
        assert!(again(&draining, "a").registered_at > draining.registered_at);
        assert_eq!(directed(&quarantined(&worker(), "it fails", NOW), None).unwrap().state(), "active");
        assert_eq!(
            directed(&quarantined(&worker(), "it fails", NOW), Some(Directive::Drain))
                .unwrap()
                .quarantine
                .as_deref(),
            Some("it fails")
        );
        assert!(directed(&dead(&worker()), None).is_err());
    }
}
