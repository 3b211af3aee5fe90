//! The one writer: it drains its inbox, applies every waiting write to one batch, makes the batch durable once, then answers
//! all (ADR 3). How it becomes durable `commit` knows.

pub(crate) mod batching_policy;
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
    redb::{
        engine::{Committer, smoothed},
        txn::{CommittedTxn, WriteTxn, writer_cache::WriterCache},
        writer::{
            batching_policy::BatchSizePredictor,
            queue::{QueuedWrite, WriteHandle, WriteQueue, WriteSize},
        },
    },
};

/// Most writes that one batch takes: what came later waits for the next.
pub(super) const MAX_BATCH: usize = 1024;
/// Most jobs that they add; one write may pass it, for it is done whole.
const MAX_NEW_JOBS: usize = 2000;

/// What takes longer to apply is done while others read and answer, in microseconds: less than that is about what it takes to wake a
/// thread and to be woken by it.
const LONG_US: u64 = 100;

/// A disk that fails while it writes may have written: nobody knows before the file is opened again.
const IN_DOUBT: &str = "whether it was written is known when agq has started again";

/// The writer, the way in, and the reason why it cannot go on, once there is one.
type StartedWriter = (Writer, WriteHandle, watch::Receiver<Option<String>>);

/// A writer that has yet to be set to work.
pub(super) fn start(committer: Committer, notifier: Arc<ChangeNotifier>) -> Result<StartedWriter, Error> {
    let queue = Arc::new(WriteQueue::default());
    let (failed, failure) = watch::channel(None);
    let known = WriterCache::load(&committer.view()?)?;
    let (turn, bulk) = (VecDeque::new(), VecDeque::new());
    let writer = Writer {
        queue: Arc::clone(&queue),
        turn,
        bulk,
        is_bulks_turn: false,
        apply_us: 0,
        company: BatchSizePredictor::default(),
        committer,
        notifier,
        known,
        failed,
    };
    Ok((writer, WriteHandle(queue), failure))
}

/// After an error of the disk redb refuses everything until the file is opened again.
fn is_fatal(error: &Error) -> bool {
    matches!(error, Error::Io(_) | Error::PreviousIo | Error::LockPoisoned(_))
}

pub(crate) struct Writer {
    queue: Arc<WriteQueue>,
    /// What came in and waits for its turn.
    turn: VecDeque<Box<dyn QueuedWrite>>,
    /// Submissions in bulk: one of them, then all others, and so on.
    bulk: VecDeque<Box<dyn QueuedWrite>>,
    is_bulks_turn: bool,
    /// How long it takes to apply a batch, in microseconds, on average and lately.
    apply_us: u64,
    company: BatchSizePredictor,
    committer: Committer,
    notifier: Arc<ChangeNotifier>,
    known: WriterCache,
    failed: watch::Sender<Option<String>>,
}

impl Writer {
    /// Writes one batch of at most so many waiting writes, on the spot; whether any waited.
    #[cfg(feature = "simulation")]
    pub(crate) fn step(&mut self, most: usize) -> bool {
        self.write_batch(most)
    }

    fn sort(&mut self, write: Box<dyn QueuedWrite>) {
        match write.size() {
            WriteSize::Bulk(_) => self.bulk.push_back(write),
            _ => self.turn.push_back(write),
        }
    }

    /// Whether something has come in and waits for its turn.
    pub(super) fn has_more(&self) -> bool {
        !self.turn.is_empty() || !self.bulk.is_empty()
    }

    /// A batch broke off in the middle, with a panic: nothing is written any more, and agq ends with this.
    pub(super) fn poison(&mut self) {
        self.committer.poison();
        self.failed.send_replace(Some("the writer broke off in the middle of a batch".into()));
    }

    /// Whether the next batch is likely to be on disk so soon that a thread that has other work may write it.
    pub(super) fn sync_is_fast(&self) -> bool {
        self.apply_us < LONG_US && self.committer.sync_is_fast() && self.committer.has_room()
    }

    /// Whether the next batch, if it is a quick one, waits for others, where so many have come and the first has waited for so long.
    pub(super) fn waits_for_writers(&self, come: u32, waited: Duration) -> bool {
        self.sync_is_fast() && waited < self.company.max_wait(come, self.committer.sync_time())
    }

    /// How many are expected, and for how long the thread waits for them, where so many have come. Where syncs are quick, to be
    /// woken takes longer than that; where they are slow, it is half as long: much time, if nobody comes.
    pub(super) fn linger(&self, come: u32) -> (u32, Duration) {
        let is_quick = self.committer.sync_is_fast();
        let patience = self.company.max_wait(come, self.committer.sync_time()) / 2;
        (self.company.expected(), if is_quick { Duration::ZERO } else { patience })
    }

    /// Writes the next batch of at most so many writes; whether any waited.
    pub(super) fn write_batch(&mut self, most: usize) -> bool {
        match self.queue.take_submitted() {
            // What is left of those who came before.
            0 => {}
            come => self.company.observe(come),
        }
        for write in self.queue.take() {
            self.sort(write);
        }
        let is_bulk = !self.bulk.is_empty() && (self.is_bulks_turn || self.turn.is_empty());
        self.is_bulks_turn = !is_bulk;
        let waiting = next_of(if is_bulk { &mut self.bulk } else { &mut self.turn }, most);
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
            let known = if is_fatal(&error) { IN_DOUBT } else { "it was not written" };
            StoreError(format!("{error}; {known}"))
        });
        if fate.is_err() {
            self.reload_cache();
        }
        for write in waiting {
            write.answer(fate.clone());
        }
    }

    /// After a batch that was not written.
    fn reload_cache(&mut self) {
        // Where nothing can be written any more, that has been said.
        let Ok(view) = self.committer.view() else { return };
        match WriterCache::load(&view) {
            Ok(known) => self.known = known,
            Err(error) => {
                self.failed.send_replace(Some(error.to_string()));
                error!(%error, "the lanes could not be read again");
            }
        }
    }

    fn transact(&mut self, waiting: &mut [Box<dyn QueuedWrite>]) -> Result<(), Error> {
        let begun = Instant::now();
        let view = self.committer.view()?;
        let mut batch = WriteTxn::open(&view, &mut self.known, self.notifier.has_subscribers());
        let mut promise = AckLevel::Visible;
        for write in waiting.iter_mut() {
            promise = promise.max(write.ack_level());
            write.apply(&mut batch)?;
        }
        let CommittedTxn { changes, arrived } = batch.close()?;
        drop(view);
        self.apply_us = smoothed(self.apply_us, begun.elapsed());
        self.committer.commit(changes, promise)?;
        self.notifier.announce(arrived);
        Ok(())
    }
}

/// What is next of those that wait, until it is many writes or many jobs.
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
