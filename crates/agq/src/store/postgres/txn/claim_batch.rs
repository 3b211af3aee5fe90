//! Claims of a transaction, and what the transaction has read for them.

use std::collections::HashSet;

use agenix_protocol::time::Timestamp;

use crate::store::postgres::{
    ready_positions::Position,
    txn::{
        candidates::{Barred, ClaimRequest},
        ready_jobs::ReadyJobs,
    },
};

/// State of claimants, queues and ready jobs before the transaction changed any.
pub(crate) struct ClaimReads {
    pub(crate) barred: Barred,
    pub(crate) paused: HashSet<String>,
    pub(crate) ready: ReadyJobs,
}

/// Claims of a transaction, and what it has read for them.
pub(crate) struct ClaimBatch<'r> {
    pub(crate) all: &'r [ClaimRequest<'r>],
    /// Time of the latest claim, at which the bounds of all claims are checked.
    pub(crate) now: Timestamp,
    pub(crate) barred: Barred,
    pub(crate) ready: ReadyJobs,
    /// Lanes whose limit or budget another transaction has locked.
    pub(crate) closed: Vec<i32>,
    /// Number of reads of lanes by the claims so far.
    pub(crate) reads: u32,
    /// Number of ready jobs that the claims have ended so far, because they can no longer run.
    pub(crate) withdrawn: usize,
}

/// Claim that has chosen a lane, whose first job the transaction has to lock.
pub(crate) struct SeenChoice {
    /// Place of the claim in its batch.
    pub(crate) at: usize,
    pub(crate) queue: String,
    pub(crate) lane: i32,
    pub(crate) position: Position,
}
