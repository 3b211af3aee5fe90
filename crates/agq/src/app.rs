//! What every command works with: the store, who waits, the clock, the settings.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use agenix_protocol::{
    documents::{self, PlanCache},
    ids::WorkerId,
    limits::Limits,
    time::Timestamp,
};
use agenix_rules::{
    capability::Abilities,
    quarantine::{self, OutcomeHistory},
    worker::{Liveness, Worker},
};

use crate::{
    auth::{
        audit_log::AuditLog,
        keyring::{Identity, Role},
    },
    clock::Clock,
    registry::{
        backups::Backups, challenges::Challenges, connections::ConnectionRegistry, event_log::EventLog,
        last_figures::LastFigures, output_handovers::OutputHandovers, pubsub::PubSub,
        queue_limits::QueueLimitCache, throughput::Throughput,
    },
    store::{Store, StoreError},
    waiters::Waiters,
};

/// The inside of one agq, below the socket.
pub(crate) struct AppState {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) waiters: Waiters,
    pub(crate) clock: Clock,
    pub(crate) abilities: CapabilityCache,
    pub(crate) plans: PlanCache,
    pub(crate) outcomes: OutcomeTracker,
    pub(crate) unended_steps: UnendedSteps,
    pub(crate) output_handovers: OutputHandovers,
    pub(crate) pubsub: PubSub,
    pub(crate) challenges: Challenges,
    pub(crate) backups: Backups,
    pub(crate) connections: ConnectionRegistry,
    pub(crate) events: EventLog,
    pub(crate) pace: Throughput,
    pub(crate) last_figures: LastFigures,
    pub(crate) bounds: QueueLimitCache,
    pub(crate) audit: AuditLog,
    pub(crate) settings: Settings,
    /// When this agq started.
    pub(crate) started_at: Timestamp,
}

/// What registered workers can run, as it was read from their registrations: read once, not at every claim, for a machine
/// has a thousand programs. The registration's time says whether it is still the same.
#[derive(Default)]
pub(crate) struct CapabilityCache(Mutex<HashMap<WorkerId, (Timestamp, Arc<Abilities>)>>);

impl CapabilityCache {
    /// What the worker can run.
    pub(crate) async fn of(&self, store: &dyn Store, worker: &Worker) -> Result<Arc<Abilities>, StoreError> {
        if let Some((at, abilities)) = lock(&self.0).get(&worker.worker_id)
            && *at == worker.registered_at
        {
            return Ok(Arc::clone(abilities));
        }
        let told = store.registration(&worker.worker_id).await?;
        let told = told.and_then(|told| documents::parse(told.as_bytes()).ok());
        let abilities = Arc::new(told.as_ref().map_or(Abilities::Nothing, Abilities::of));
        lock(&self.0).insert(worker.worker_id.clone(), (worker.registered_at, Arc::clone(&abilities)));
        Ok(abilities)
    }

    /// Forgets a worker that is no more.
    pub(crate) fn forget(&self, worker_id: &WorkerId) {
        lock(&self.0).remove(worker_id);
    }
}

/// How the latest jobs of each worker ended, since this agq started.
#[derive(Default)]
pub(crate) struct OutcomeTracker(Mutex<WorkerHistories>);

#[derive(Default)]
struct WorkerHistories {
    histories: HashMap<WorkerId, OutcomeHistory>,
    /// Quarantined workers, with the begin of their trials. The first job that a worker has claimed
    /// since then decides on its quarantine.
    on_trial: HashMap<WorkerId, Timestamp>,
}

impl WorkerHistories {
    /// Returns why `worker_id` is to blame for failures at `kind`, compared with the other workers
    /// that `counts` accepts. Returns `None` if the worker is not to blame.
    fn blame(&self, worker_id: &WorkerId, kind: &str, counts: impl Fn(&WorkerId) -> bool) -> Option<String> {
        let own = self.histories.get(worker_id)?.of(kind);
        let others = self.histories.iter().filter(|(id, _)| *id != worker_id && counts(id));
        quarantine::blame(kind, own, others.map(|(_, history)| history.of(kind)))
    }
}

impl OutcomeTracker {
    /// Records the end of a job of `kind`, and returns whether the worker now needs a closer look.
    pub(crate) fn note(&self, worker_id: &WorkerId, kind: &str, failed: bool) -> bool {
        let mut known = lock(&self.0);
        known.histories.entry(worker_id.clone()).or_default().record(kind, failed);
        failed && known.blame(worker_id, kind, |_| true).is_some()
    }

    /// Why this worker is to be quarantined, if it is, given all workers.
    pub(crate) fn verdict(&self, worker_id: &WorkerId, kind: &str, workers: &[Worker]) -> Option<String> {
        let live: HashMap<&WorkerId, bool> = workers
            .iter()
            .filter(|worker| worker.standing == Liveness::Active)
            .map(|worker| (&worker.worker_id, worker.quarantine.is_some()))
            .collect();
        let quarantined = live.values().filter(|is_quarantined| **is_quarantined).count();
        if live.get(worker_id) == Some(&true) || !quarantine::is_bounded(quarantined, live.len()) {
            return None;
        }
        lock(&self.0).blame(worker_id, kind, |other| live.contains_key(other))
    }

    /// Records that a quarantined worker gets one trial job, whose end decides on the quarantine.
    pub(crate) fn try_again(&self, worker_id: &WorkerId, now: Timestamp) {
        lock(&self.0).on_trial.insert(worker_id.clone(), now);
    }

    /// Returns whether the job that a worker has just ended is its trial job, which it claimed at
    /// `claimed_at`. Returns `true` once per trial.
    pub(crate) fn take_trial(&self, worker_id: &WorkerId, claimed_at: Option<Timestamp>) -> bool {
        let mut known = lock(&self.0);
        let began = known.on_trial.get(worker_id).copied();
        let decides = began.zip(claimed_at).is_some_and(|(began, claimed_at)| claimed_at >= began);
        decides && known.on_trial.remove(worker_id).is_some()
    }

    /// Ends a trial for which there was no job.
    pub(crate) fn drop_trial(&self, worker_id: &WorkerId) {
        lock(&self.0).on_trial.remove(worker_id);
    }

    /// Forgets what is known of a worker: it is no more, or gets another chance.
    pub(crate) fn forget(&self, worker_id: &WorkerId) {
        let mut known = lock(&self.0);
        known.histories.remove(worker_id);
        known.on_trial.remove(worker_id);
    }
}

/// Number of unended steps in each group of steps, as of the latest look at the workflow. The end
/// of a step needs a look at the whole workflow only if the step may be the last one. The reaper
/// finds the workflows whose number is unknown or wrong.
#[derive(Default)]
pub(crate) struct UnendedSteps(Mutex<HashMap<String, usize>>);

impl UnendedSteps {
    /// Records that `left` steps of a workflow are under way, of which none begins by the end of
    /// another.
    pub(crate) fn note(&self, workflow_id: &str, left: usize) {
        let mut known = lock(&self.0);
        // A single step needs no entry, because `ended` returns `true` for a workflow without an
        // entry.
        if left > 1 {
            known.insert(workflow_id.to_owned(), left);
        } else {
            known.remove(workflow_id);
        }
    }

    /// Records that a step of a workflow has ended, and returns whether the workflow may have to
    /// advance now.
    pub(crate) fn ended(&self, workflow_id: &str) -> bool {
        let mut known = lock(&self.0);
        let Some(left) = known.get_mut(workflow_id) else { return true };
        *left = left.saturating_sub(1);
        *left == 0
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the rules are told from outside.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) limits: Limits,
    /// Number of inputs of an action that one write of the store makes jobs of.
    pub(crate) inputs_at_once: usize,
    /// How often a worker should be heard of, in milliseconds.
    pub(crate) heartbeat_interval_ms: u64,
    /// After how many intervals of silence it is dead.
    pub(crate) heartbeat_factor: u32,
    /// How long one attempt of a job may take when its plan does not say, in milliseconds; 0 for no bound.
    pub(crate) job_timeout_ms: u64,
    /// How long a claimed job may go unreported before it goes back, in milliseconds; 0 for no bound.
    pub(crate) start_timeout_ms: u64,
    /// How long a connection may be there without having logged in, in milliseconds; 0 for no bound.
    pub(crate) login_timeout_ms: u64,
    /// How long a command may take from its first byte to its last, in milliseconds; 0 for no bound.
    pub(crate) frame_timeout_ms: u64,
    /// How long a client may take nothing of what is sent to it, in milliseconds; 0 for no bound.
    pub(crate) send_timeout_ms: u64,
    /// How long jobs that ended well, failed or were cancelled are kept, in milliseconds; 0 for ever.
    pub(crate) keep_ended_ms: u64,
    /// How long dead jobs are kept, in milliseconds; 0 for ever.
    pub(crate) keep_dead_ms: u64,
    /// How many ended jobs are kept at most, the dead apart; 0 for no bound.
    pub(crate) keep_ended_count: u64,
    /// Whether workers that fail far more often than others are quarantined.
    pub(crate) quarantine: bool,
    /// The shape of BRPOP's reply.
    pub(crate) brpop_reply: PopReply,
    /// Choice between the texts of authentication errors.
    pub(crate) auth_errors: AuthErrors,
}

/// Choice between the texts of authentication errors: those of the RESP specification, or those of
/// Redis, which client libraries recognise by the first word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum AuthErrors {
    /// The texts of Redis for clients that introduced themselves (HELLO, CLIENT, AUTH with the user
    /// name `default`), else the texts of the specification.
    #[default]
    Auto,
    /// Always the texts of the specification.
    Plain,
    /// Always the texts of Redis.
    Redis,
}

/// The shape of BRPOP's reply for one key: the seed's bare value, or Redis' pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum PopReply {
    /// The pair for clients that introduced themselves (HELLO, CLIENT, AUTH with the user name
    /// `default`), else the value.
    #[default]
    Auto,
    /// Always the value.
    Bulk,
    /// Always the pair.
    Pair,
}

impl Settings {
    /// Returns the settings that must be the same at all nodes, because the nodes share jobs and
    /// workers. Names are those of the command line, and times are in seconds.
    pub(crate) fn shared_by_nodes(&self) -> String {
        let seconds = |ms: u64| std::time::Duration::from_millis(ms).as_secs_f64();
        format!(
            "heartbeat-interval={} heartbeat-factor={} job-timeout={} start-timeout={} keep-ended={} keep-dead={} keep-ended-count={}",
            seconds(self.heartbeat_interval_ms),
            self.heartbeat_factor,
            seconds(self.job_timeout_ms),
            seconds(self.start_timeout_ms),
            seconds(self.keep_ended_ms),
            seconds(self.keep_dead_ms),
            self.keep_ended_count,
        )
    }

    /// How long a worker may be silent, in milliseconds.
    pub(crate) fn silence_ms(&self) -> u64 {
        self.heartbeat_interval_ms.saturating_mul(u64::from(self.heartbeat_factor))
    }
}

impl AppState {
    /// News cost something to collect: the store does it while someone listens.
    pub(crate) fn update_event_interest(&self) {
        self.pubsub.update_interest(|is_heard| self.store.notifier().set_subscribers(is_heard));
    }
}

/// The name of a connection, unlike any worker's id, and unlike that of any at another node.
pub(crate) fn connection_name(node: Option<&str>, number: u64) -> Arc<str> {
    match node {
        None => format!("connection:{number}").into(),
        Some(node) => format!("connection:{node}:{number}").into(),
    }
}

/// The node that a connection is at, where its name says so.
pub(crate) fn node_of(connection: &str) -> Option<&str> {
    connection.strip_prefix("connection:")?.split_once(':').map(|(node, _)| node)
}

/// Whether a holder is a connection rather than a worker.
pub(crate) fn is_connection(holder: &str) -> bool {
    holder.starts_with("connection:")
}

/// Who sent a command (ADR 1).
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    /// The connection's name, unlike any worker's id.
    pub(crate) connection: Arc<str>,
    /// Its number.
    pub(crate) number: u64,
    /// Where it comes from, for people.
    pub(crate) from: Arc<str>,
    /// Whose key it has shown.
    pub(crate) identity: Option<Identity>,
    /// The worker that registered on this connection.
    pub(crate) registered: Option<WorkerId>,
    /// The name that it gave itself, where that could be a worker's.
    pub(crate) name: Option<WorkerId>,
    /// Whether it sent HELLO or CLIENT, as client libraries do: it then expects the reply shapes of Redis.
    pub(crate) is_introduced: bool,
}

impl Caller {
    /// The worker that registered on it; a client's key speaks for no worker, whatever was said before it was shown.
    pub(crate) fn registered_here(&self) -> Option<&WorkerId> {
        let is_client = self.identity.as_ref().is_some_and(|identity| identity.role == Role::Client);
        self.registered.as_ref().filter(|_| !is_client)
    }

    /// The worker whose name it bears, where it may: a name is no key, so only one who may do everything can speak for a worker
    /// by its name alone.
    pub(crate) fn claimed_name(&self) -> Option<&WorkerId> {
        let is_admin = self.identity.as_ref().is_some_and(|identity| identity.role == Role::Admin);
        self.name.as_ref().filter(|_| is_admin)
    }

    /// The worker whose own key this is.
    pub(crate) fn key_worker(&self) -> Option<WorkerId> {
        let identity = self.identity.as_ref().filter(|identity| identity.role == Role::Worker)?;
        WorkerId::new(&*identity.name).ok()
    }
}

#[cfg(test)]
mod tests {
    use agenix_protocol::{ids::WorkerId, time::Timestamp};

    use super::{OutcomeTracker, UnendedSteps};

    #[test]
    fn a_job_that_was_claimed_before_the_trial_decides_nothing() {
        let (outcomes, worker) = (OutcomeTracker::default(), WorkerId::new("w").unwrap());
        assert!(!outcomes.take_trial(&worker, Some(Timestamp(5))), "there is no trial");
        outcomes.try_again(&worker, Timestamp(5));
        assert!(!outcomes.take_trial(&worker, Some(Timestamp(4))) && !outcomes.take_trial(&worker, None));
        assert!(outcomes.take_trial(&worker, Some(Timestamp(5))));
        assert!(!outcomes.take_trial(&worker, Some(Timestamp(6))), "one job decides");
        outcomes.try_again(&worker, Timestamp(7));
        outcomes.drop_trial(&worker);
        assert!(!outcomes.take_trial(&worker, Some(Timestamp(7))));
    }

    #[test]
    fn only_the_end_of_the_last_step_is_worth_a_look_at_all() {
        let steps = UnendedSteps::default();
        assert!(steps.ended("unknown"), "nobody has looked yet");
        steps.note("w", 3);
        assert_eq!([(); 4].map(|()| steps.ended("w")), [false, false, true, true]);
        steps.note("w", 2);
        assert!(!steps.ended("w"));
        steps.note("w", 1);
        assert!(steps.ended("w") && steps.ended("w"), "a look is due from the last one on");
    }
}
