//! The contract of a store: records, and the indexes to find them by.
//!
//! A store remembers; it never decides. What becomes of a job or a worker is a rule that the caller hands over and
//! that the store applies to the record as it is at that instant, with every write before it done (ADR 2). Each
//! method takes its place in the order of writes when it is called, not when its answer is awaited.

#[cfg(test)]
mod contract;
mod dedup;
mod documents;
pub(crate) mod export;
mod keyspace;
mod notifications;
pub(crate) mod postgres;
mod records;
pub(crate) mod redb;

use std::{cell::Cell, time::Instant};

use futures_util::future::BoxFuture;

pub(crate) use crate::store::documents::{DocumentChange, DocumentKind, DocumentRule};
pub(crate) use crate::store::notifications::{BatchEvents, ChangeEvent, ChangeNotifier, ListPushes};
pub(crate) use keyspace::{
    KeyEntry, KeyRead, KeyReader, KeyUpdate, KeyWriter, Keyspace, RangeSlice, StoredValue, change, look, scan,
};
pub(crate) use records::{
    ActionRule, AddOutcome, AppendJobs, Claim, Claimant, Duplicate, JobChange, JobFilter, JobRule,
    LaneSummary, NewAction, OldestSnapshot, QueueCounts, Records, Retention, StoredJob, StoredPlan, Totals,
    UnusedRecords, WorkerRule,
};

use agenix_rules::rejection::Rejection;

/// An answer that is on its way.
pub(crate) type StoreFuture<T> = BoxFuture<'static, Result<T, StoreError>>;
/// What a rule allowed or refused.
pub(crate) type RuleResult<T> = Result<T, Rejection>;

/// When a write may be answered (ADR 3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum AckLevel {
    /// When every later read sees it: a crash may forget it, and nothing is lost by that.
    Visible,
    /// When it is on disk, as [`Durability`] has it: everything that a user would miss.
    Durable,
    /// When it is on disk, whatever else is set.
    OnDisk,
}

/// What is on disk before it is answered (ADR 7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Durability {
    /// Every write.
    Always,
    /// What is promised to be.
    #[default]
    Promised,
    /// Nothing: it follows within half a second. A process that is killed loses nothing, a machine that loses its power may.
    Interval,
}

/// How a database is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OpenOptions {
    pub(crate) durability: Durability,
    /// The largest file of which every page is compared with its checksum, in bytes; 0 for no bound.
    pub(crate) max_checked_bytes: u64,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self { durability: Durability::default(), max_checked_bytes: 256 << 20 }
    }
}

/// The store could not do its work; nobody did anything wrong. The text ends with what is known of the command, where it was to
/// write.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the store failed: {0}")]
pub(crate) struct StoreError(pub(crate) String);

thread_local! {
    static HAND_INS: Cell<u64> = const { Cell::new(0) };
}

/// How many writes this thread has handed in. A command that has handed in none yet has no place in their order.
pub(crate) fn writes_submitted() -> u64 {
    HAND_INS.get()
}

/// This thread hands in a write.
fn count_submitted_write() {
    HAND_INS.set(HAND_INS.get() + 1);
}

/// Does `work` for a connection, or for many, which makes calls to the store and waits for none of their answers. They are
/// carried out together with what all others ask who have something to ask at this moment, or are about to, where it is worth to
/// wait for them.
pub(crate) fn at_once<'s>(
    store: &'s dyn Store,
    connection: Option<u64>,
    work: &mut dyn FnMut(),
) -> impl Future<Output = ()> + use<'s> {
    // Whoever stops waiting does not keep the others from what they asked.
    let collected = store.submit(connection, work).map(|round| PendingFlush { store, round });
    async move {
        let Some(seen_to) = collected else { return };
        let mut since = None;
        while store.waits_for_writers(seen_to.round, since) {
            since.get_or_insert_with(Instant::now);
            tokio::task::yield_now().await;
        }
    }
}

struct PendingFlush<'s> {
    store: &'s dyn Store,
    round: u64,
}

impl Drop for PendingFlush<'_> {
    fn drop(&mut self) {
        self.store.flush_round(self.round);
    }
}

/// Everything agq remembers.
pub(crate) trait Store: Records + Keyspace {}
impl<T: Records + Keyspace> Store for T {}
