//! Elements of the list on which clients wait.

use std::collections::BTreeSet;

#[derive(Debug, Default)]
pub(super) struct Elements {
    pub(super) sent: BTreeSet<String>,
    pub(super) acknowledged: BTreeSet<String>,
    pub(super) taken: BTreeSet<String>,
    /// Number of elements that were on their way to a client that disconnected, or when agq died.
    /// As in Redis, these may be lost.
    pub(super) in_doubt: usize,
    /// Number of clients that disconnected without a reply since the last start of agq.
    pub(super) gone_waiters: usize,
}
