//! Contract between the server and its storage engines: the traits [`JobStore`], [`WorkerStore`],
//! [`DocumentStore`], [`StoreAdmin`] and [`Keyspace`], whose sum is [`Store`].
//!
//! A store keeps records and indexes, and makes no decisions of its own. A caller passes a rule,
//! and the store applies the rule to the current record, after every earlier write (ADR 2).
//!
//! - Order: a write takes its place in the order of writes when its method is called, not when its
//!   future is awaited.
//! - Atomicity: each write is applied whole or not at all.
//! - Visibility: a read that starts after the answer to a write sees that write.
//! - Durability: a write is answered once it has reached its [`AckLevel`] (ADR 3).
//! - Repetition: a store may call a rule more than once for one write, so a rule has no side
//!   effects.
//!
//! `contract` has the scripts that every store must answer alike.

mod admin;
mod batching_policy;
mod claim_index;
mod claimant_class;
#[cfg(test)]
mod contract;
mod decisions;
mod dedup;
mod documents;
mod empty_actions;
pub(crate) mod export;
pub(crate) mod held_back;
mod jobs;
mod keyspace;
mod notifications;
pub(crate) mod postgres;
pub(crate) mod redb;
mod types;
mod workers;

use std::cell::Cell;

use futures_util::future::BoxFuture;

pub(crate) use self::redb::GroupCommit;
pub(crate) use crate::store::documents::{DocumentChange, DocumentKind, DocumentRule, DocumentStore};
pub(crate) use crate::store::notifications::{BatchEvents, ChangeEvent, ChangeNotifier, ListPushes};
pub(crate) use admin::StoreAdmin;
pub(crate) use jobs::{JobStore, MAX_WITHDRAWN};
pub(crate) use keyspace::{
    KeyEntry, KeyRead, KeyReader, KeyUpdate, KeyWriter, Keyspace, RangeSlice, StoredValue, change, look, scan,
};
pub(crate) use types::{
    ActionRule, AddOutcome, AppendJobs, Claim, Claimant, Duplicate, JobChange, JobFilter, JobRule, LaneKey,
    LaneSummary, NewAction, NewPlan, OldestSnapshot, QueueCounts, ReportedResults, Retention, StoredJob,
    StoredPlan, Totals, UnusedRecords, WorkerRule,
};
pub(crate) use workers::WorkerStore;

use agenix_rules::rejection::Rejection;

/// Future of a call to the store. A write is carried out even if its future is dropped. The write
/// may begin only when its future is polled or dropped, so a caller does not keep the future while
/// it waits for something else.
pub(crate) type StoreFuture<T> = BoxFuture<'static, Result<T, StoreError>>;
/// Result of a rule: its outcome, or the reason for which it rejects the write.
pub(crate) type RuleResult<T> = Result<T, Rejection>;

/// Acknowledgement level: the state that a write must reach before the store answers it (ADR 3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum AckLevel {
    /// Every later read sees the write. A crash may lose the write, which the caller can
    /// tolerate.
    Applied,
    /// A crash does not lose the write, as far as [`Durability`] guarantees. The level of every
    /// write that a user would miss.
    Durable,
    /// The write is on disk, whatever [`Durability`] is set.
    Synced,
}

/// Policy for syncing writes to disk before they are answered (ADR 7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Durability {
    /// Every write is synced.
    Always,
    /// Writes of the level [`AckLevel::Durable`] or above are synced.
    #[default]
    Promised,
    /// Only writes of the level [`AckLevel::Synced`] are synced. Other writes follow within half a
    /// second: a killed process loses none of them, a power failure may.
    Interval,
}

/// Options for opening a database file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OpenOptions {
    pub(crate) durability: Durability,
    /// Maximum size of a file whose pages are all compared with their checksums, in bytes; 0 for no
    /// bound.
    pub(crate) max_checked_bytes: u64,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self { durability: Durability::default(), max_checked_bytes: 256 << 20 }
    }
}

/// Failure of the store itself, not of the request. For a write, the text ends with what is known
/// about the fate of the command.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the store failed: {0}")]
pub(crate) struct StoreError(pub(crate) String);

thread_local! {
    static WRITES_SUBMITTED: Cell<u64> = const { Cell::new(0) };
}

/// Returns the number of writes that this thread has submitted. If the first poll of a command
/// leaves the number unchanged, the command has no place in the order of writes.
///
/// A fixed property of the command would not be enough. Whether a command reads before it writes,
/// and waits for the read, depends on the store, on the identity of the client, and on caches.
pub(crate) fn writes_submitted() -> u64 {
    WRITES_SUBMITTED.get()
}

/// Counts a write that this thread submits.
fn count_submitted_write() {
    WRITES_SUBMITTED.set(WRITES_SUBMITTED.get() + 1);
}

/// Storage engine of agq: records and users' keys.
pub(crate) trait Store: JobStore + WorkerStore + DocumentStore + StoreAdmin + Keyspace {}
impl<T: JobStore + WorkerStore + DocumentStore + StoreAdmin + Keyspace> Store for T {}
