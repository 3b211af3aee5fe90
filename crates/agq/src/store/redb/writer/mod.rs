//! The only writer: applies waiting writes in batches, makes each batch durable with one sync, then
//! answers all of its writes (group commit, ADR 3 and ADR 14).
//!
//! ```text
//!   tasks -- submit --> WriteQueue -- take --> Writer: one WriteTxn, Committer::commit, answers
//!     |                                          ^
//!     +--- the leader: first task that resumes --+--- or the writer thread
//! ```
//!
//! - A task that submits writes calls [`GroupCommit::commit`](group_commit::GroupCommit::commit),
//!   which yields once, so that other tasks can submit theirs. The first task that resumes is the
//!   leader, and writes everything that is queued on its own thread.
//! - The writer thread takes over if nobody has promised to commit a write, if a batch is slow to
//!   apply or to sync, if a write adds many jobs, if the WAL is full, or if writes are left over.
//! - [`batching_policy`](crate::store::batching_policy) decides whether a batch waits for more
//!   submitters.
//! - A batch has at most [`MAX_BATCH`] writes and about [`MAX_NEW_JOBS`] new jobs. Bulk submissions
//!   take turns with all other writes, so that neither delays the other for long.
//! - The acknowledgement level of a batch is the highest of its writes. All writes of a batch are
//!   answered alike: if one fails with an error of the store, none of them is written, and all get
//!   the error.
//! - A rejection by a rule is an outcome of a write, not an error, and does not affect the others.
//! - After a failed batch the [`WriterCache`] is read again, because it may contain changes that
//!   were not written.

pub(crate) mod group_commit;
pub(crate) mod queue;

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use redb::Error;
use tokio::sync::watch;
use tracing::error;

use crate::store::{
    AckLevel, ChangeNotifier, StoreError,
    batching_policy::BatchSizePredictor,
    redb::{
        engine::{Committer, smoothed},
        txn::{CommittedTxn, WriteTxn, writer_cache::WriterCache},
        writer::queue::{QueuedWrite, WriteHandle, WriteQueue, WriteSize},
    },
};

/// Maximum number of writes in one batch.
pub(super) const MAX_BATCH: usize = 1024;
/// Maximum number of new jobs in one batch. A single write may exceed it, because a write is not
/// split.
const MAX_NEW_JOBS: usize = 2000;

/// Average time to apply a batch above which the writer thread does it, in microseconds. Waking a
/// thread takes about as long.
const LONG_US: u64 = 100;

/// Addition to the error message of a failed commit, because a failing disk may have written the
/// batch.
const IN_DOUBT: &str = "whether it was written is known when agq has started again";

/// The writer, the handle for submitting writes, and the reason of its failure, once there is one.
type StartedWriter = (Writer, WriteHandle, watch::Receiver<Option<String>>);

/// Creates a writer that does not run yet.
pub(super) fn start(committer: Committer, notifier: Arc<ChangeNotifier>) -> Result<StartedWriter, Error> {
    let queue = Arc::new(WriteQueue::default());
    let (failed, failure) = watch::channel(None);
    let cache = WriterCache::load(&committer.snapshot()?)?;
    let (in_order, bulk) = (VecDeque::new(), VecDeque::new());
    let writer = Writer {
        queue: Arc::clone(&queue),
        in_order,
        bulk,
        is_bulks_turn: false,
        apply_us: 0,
        predictor: BatchSizePredictor::default(),
        committer,
        notifier,
        cache,
        failed,
    };
    Ok((writer, WriteHandle(queue), failure))
}

/// Returns true if redb refuses everything until the file is opened again.
fn is_fatal(error: &Error) -> bool {
    matches!(error, Error::Io(_) | Error::PreviousIo | Error::LockPoisoned(_))
}

pub(crate) struct Writer {
    queue: Arc<WriteQueue>,
    /// Small writes and submissions in order, waiting for a batch.
    in_order: VecDeque<Box<dyn QueuedWrite>>,
    /// Bulk submissions, which take turns with all other writes.
    bulk: VecDeque<Box<dyn QueuedWrite>>,
    is_bulks_turn: bool,
    /// Moving average of the time to apply a batch, in microseconds.
    apply_us: u64,
    predictor: BatchSizePredictor,
    committer: Committer,
    notifier: Arc<ChangeNotifier>,
    cache: WriterCache,
    failed: watch::Sender<Option<String>>,
}

impl Writer {
    /// Writes one batch of at most `most` waiting writes. Returns true if any waited.
    #[cfg(feature = "simulation")]
    pub(crate) fn step(&mut self, most: usize) -> bool {
        self.write_batch(most)
    }

    fn sort(&mut self, write: Box<dyn QueuedWrite>) {
        match write.size() {
            WriteSize::Bulk(_) => self.bulk.push_back(write),
            _ => self.in_order.push_back(write),
        }
    }

    /// Returns true if writes are left over from the last batch.
    pub(super) fn has_more(&self) -> bool {
        !self.in_order.is_empty() || !self.bulk.is_empty()
    }

    /// Refuses all further writes after a panic in the middle of a batch, and reports the failure,
    /// which ends agq.
    pub(super) fn poison(&mut self) {
        self.committer.poison();
        self.failed.send_replace(Some("the writer panicked in the middle of a batch".into()));
    }

    /// Returns true if a thread with other work should write the next batch, because it is likely
    /// to be fast.
    pub(super) fn sync_is_fast(&self) -> bool {
        self.apply_us < LONG_US && self.committer.sync_is_fast() && self.committer.has_room()
    }

    /// Returns true if the leader should wait for more submitters, given that `submitted` have
    /// submitted and that the first has waited for `waited`.
    pub(super) fn waits_for_writers(&self, submitted: u32, waited: Duration) -> bool {
        self.sync_is_fast() && waited < self.predictor.max_wait(submitted, self.committer.sync_time())
    }

    /// Returns the expected number of submitters, and how long the writer thread waits for them.
    /// The time is zero if syncs are fast, because waking the thread takes longer. Otherwise the
    /// time is half of that of a leader, because the time is lost if no other submitter writes.
    pub(super) fn linger(&self, submitted: u32) -> (u32, Duration) {
        let is_quick = self.committer.sync_is_fast();
        let wait = self.predictor.max_wait(submitted, self.committer.sync_time()) / 2;
        (self.predictor.expected(), if is_quick { Duration::ZERO } else { wait })
    }

    /// Writes the next batch of at most `most` writes. Returns true if any waited.
    pub(super) fn write_batch(&mut self, most: usize) -> bool {
        match self.queue.take_submitted() {
            // The batch has only writes that are left over from earlier batches.
            0 => {}
            submitted => self.predictor.observe(submitted),
        }
        for write in self.queue.take() {
            self.sort(write);
        }
        let is_bulk = !self.bulk.is_empty() && (self.is_bulks_turn || self.in_order.is_empty());
        self.is_bulks_turn = !is_bulk;
        let waiting = next_of(if is_bulk { &mut self.bulk } else { &mut self.in_order }, most);
        let is_any = !waiting.is_empty();
        if is_any {
            self.commit(waiting);
        }
        is_any
    }

    fn commit(&mut self, mut waiting: Vec<Box<dyn QueuedWrite>>) {
        let fate = self.transact(&mut waiting).map_err(|error| {
            // The failure is published before anything else, because agq ends by it.
            if is_fatal(&error) {
                self.failed.send_replace(Some(error.to_string()));
            }
            error!(%error, writes = waiting.len(), "a batch could not be written");
            let state = if is_fatal(&error) { IN_DOUBT } else { "it was not written" };
            StoreError(format!("{error}; {state}"))
        });
        if fate.is_err() {
            self.reload_cache();
        }
        for write in waiting {
            write.answer(fate.clone());
        }
    }

    /// Restores the cache from the database after a batch that was not written.
    fn reload_cache(&mut self) {
        // If this fails, the failure has been reported already.
        let Ok(snapshot) = self.committer.snapshot() else { return };
        match WriterCache::load(&snapshot) {
            Ok(cache) => self.cache = cache,
            Err(error) => {
                self.failed.send_replace(Some(error.to_string()));
                error!(%error, "the cache of the writer could not be loaded again");
            }
        }
    }

    fn transact(&mut self, waiting: &mut [Box<dyn QueuedWrite>]) -> Result<(), Error> {
        let begun = Instant::now();
        let snapshot = self.committer.snapshot()?;
        let mut batch = WriteTxn::open(&snapshot, &mut self.cache, self.notifier.has_subscribers());
        let mut ack_level = AckLevel::Applied;
        for write in waiting.iter_mut() {
            ack_level = ack_level.max(write.ack_level());
            write.apply(&mut batch)?;
        }
        let CommittedTxn { changes, arrived } = batch.close()?;
        drop(snapshot);
        self.apply_us = smoothed(self.apply_us, begun.elapsed());
        self.committer.commit(changes, ack_level)?;
        self.notifier.announce(arrived);
        Ok(())
    }
}

/// Removes writes from `waiting` up to the limits of a batch.
fn next_of(waiting: &mut VecDeque<Box<dyn QueuedWrite>>, most: usize) -> Vec<Box<dyn QueuedWrite>> {
    let mut batch = Vec::with_capacity(64);
    let mut new_jobs = 0;
    while batch.len() < most && new_jobs < MAX_NEW_JOBS {
        let Some(write) = waiting.pop_front() else { break };
        new_jobs += write.size().new_jobs();
        batch.push(write);
    }
    batch
}

#[cfg(test)]
mod tests;
