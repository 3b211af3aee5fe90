//! What every command works with: the store, who waits, the clock, the settings.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use agenix_protocol::{ids::WorkerId, limits::Limits, time::Timestamp};
use agenix_rules::{capability::Abilities, worker::Worker};

use crate::{clock::Clock, matchmaker::Matchmaker, store::Store};

/// The inside of one agq, below the socket.
pub(crate) struct House {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) matchmaker: Matchmaker,
    pub(crate) clock: Clock,
    pub(crate) abilities: AbilitiesSeen,
    pub(crate) settings: Settings,
}

/// What registered workers can run, as it was read from their registrations: read once, not at every claim, for a machine
/// has a thousand programs. The registration's time says whether it is still the same.
#[derive(Default)]
pub(crate) struct AbilitiesSeen(Mutex<HashMap<WorkerId, (Timestamp, Arc<Abilities>)>>);

impl AbilitiesSeen {
    /// What the worker can run.
    pub(crate) fn of(&self, worker: &Worker) -> Arc<Abilities> {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, abilities)) = seen.get(&worker.worker_id)
            && *at == worker.registered_at
        {
            return Arc::clone(abilities);
        }
        let capabilities = worker.registration().map(|told| told.capabilities).unwrap_or_default();
        let abilities = Arc::new(Abilities::Commands(capabilities.commands().cloned().collect()));
        seen.insert(worker.worker_id.clone(), (worker.registered_at, Arc::clone(&abilities)));
        abilities
    }

    /// Forgets a worker that is no more.
    pub(crate) fn forget(&self, worker_id: &WorkerId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(worker_id);
    }
}

/// What the rules are told from outside.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) limits: Limits,
    /// How often a worker should be heard of, in milliseconds.
    pub(crate) heartbeat_interval_ms: u64,
    /// After how many intervals of silence it is dead.
    pub(crate) heartbeat_factor: u32,
    /// How long one attempt of a job may take, in milliseconds; 0 for no bound.
    pub(crate) job_timeout_ms: u64,
}

impl Settings {
    /// How long a worker may be silent, in milliseconds.
    pub(crate) fn silence_ms(&self) -> u64 {
        self.heartbeat_interval_ms.saturating_mul(u64::from(self.heartbeat_factor))
    }
}

/// The name of a connection, unlike any worker's id.
pub(crate) fn connection_name(number: u64) -> Arc<str> {
    format!("connection:{number}").into()
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
    /// The worker that registered on this connection.
    pub(crate) registered: Option<WorkerId>,
    /// The name that it gave itself, where that could be a worker's.
    pub(crate) name: Option<WorkerId>,
    /// Whether it sent HELLO or CLIENT, as client libraries do: it then expects the reply shapes of Redis.
    pub(crate) is_introduced: bool,
}
