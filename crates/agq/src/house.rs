//! What every command works with: the store, who waits, the clock, the settings.

use std::sync::Arc;

use agenix_protocol::{ids::WorkerId, limits::Limits};

use crate::{clock::Clock, matchmaker::Matchmaker, store::Store};

/// The inside of one agq, below the socket.
pub(crate) struct House {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) matchmaker: Matchmaker,
    pub(crate) clock: Clock,
    pub(crate) settings: Settings,
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
