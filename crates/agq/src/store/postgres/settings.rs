//! Settings of the PostgreSQL store.

use std::time::Duration;

use super::CONNECT_TIMEOUT;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PostgresSettings {
    /// Maximum number of connections for reads and writes.
    pub(crate) connections: u32,
    /// Maximum duration of a statement, and maximum time between two statements of a transaction.
    pub(crate) timeout: Duration,
    /// True if the node receives notifications of other nodes by LISTEN.
    pub(crate) listens: bool,
    /// Interval at which waiters are woken, because a notification may have been lost, or another
    /// session may have locked a job for a while.
    pub(crate) poll: Duration,
    /// Term of the leader: time of silence after which another node may become the leader.
    pub(crate) term: Duration,
}

impl Default for PostgresSettings {
    fn default() -> Self {
        let [timeout, poll, term] = [60, 1, 30].map(Duration::from_secs);
        Self { connections: 8, timeout, listens: true, poll, term }
    }
}

impl PostgresSettings {
    /// Returns the maximum time to wait for an answer. A database in reach gives up before that.
    pub(super) fn answer_timeout(&self) -> Duration {
        self.timeout + CONNECT_TIMEOUT
    }
}
