//! Settings of a node's work with the database.

use std::time::Duration;

use super::CONNECT_TIMEOUT;

/// How a node works with the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PostgresSettings {
    /// Most connections for reads and writes.
    pub(crate) connections: u32,
    /// How long a statement may take, and a transaction may wait for the next one.
    pub(crate) timeout: Duration,
    /// Whether what other nodes tell is listened for.
    pub(crate) listens: bool,
    /// How often to look for what may have been missed.
    pub(crate) poll: Duration,
    /// How long the node that leads may be silent before another does.
    pub(crate) term: Duration,
}

impl Default for PostgresSettings {
    fn default() -> Self {
        let [timeout, poll, term] = [60, 1, 30].map(Duration::from_secs);
        Self { connections: 8, timeout, listens: true, poll, term }
    }
}

impl PostgresSettings {
    /// How long to wait for an answer: the database gives up sooner, where it can be reached.
    pub(super) fn lock_timeout(&self) -> Duration {
        self.timeout + CONNECT_TIMEOUT
    }
}
