//! Group commit without a thread switch (ADR 14). The batch is written by the writer thread, or, if
//! that is fast, by the task that has just submitted a write (the leader), because waking a thread
//! takes as long as a sync. A caller that does not call [`GroupCommit::commit`] leaves the batch to
//! the writer thread.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError},
    thread,
    time::Instant,
};

use crate::store::{
    batching_policy::SubmitterHistory,
    redb::writer::{MAX_BATCH, Writer, queue::WriteQueue},
};

/// Handle of a store by which callers commit the writes that they have submitted.
pub(crate) struct GroupCommit {
    writer: Mutex<Writer>,
    pub(super) queue: Arc<WriteQueue>,
    callers: Mutex<SubmitterHistory>,
}

impl GroupCommit {
    pub(crate) fn new(writer: Writer, queue: Arc<WriteQueue>) -> Arc<Self> {
        Arc::new(Self { writer: Mutex::new(writer), queue, callers: Mutex::default() })
    }

    /// Starts the writer thread. The thread ends when the
    /// [`WriteHandle`](super::queue::WriteHandle) is dropped.
    pub(crate) fn work(self: Arc<Self>) -> std::io::Result<thread::JoinHandle<()>> {
        thread::Builder::new().name("writer".into()).spawn(move || {
            loop {
                let goes_on = self.queue.wait_for_wakeup();
                while self.has_work() {
                    let linger = self.locked().linger(self.queue.submitted());
                    self.queue.wait_for_writers(linger);
                    self.locked().write_batch(MAX_BATCH);
                }
                if !goes_on {
                    break;
                }
            }
        })
    }

    /// Commits the writes that wait, together with those of other callers: here, or by the writer
    /// thread. Does nothing if no write waits.
    ///
    /// `submitter` is the connection that has submitted the writes, or `None` for several
    /// connections. The future waits as long as more writers are expected.
    pub(crate) fn commit(&self, submitter: Option<u64>) -> impl Future<Output = ()> {
        // The promise is kept even if this future is dropped, because other callers rely on it.
        let promise = self.queue.promise().map(|round| {
            self.callers().record(submitter);
            Promise { group_commit: self, round }
        });
        async move {
            let Some(promise) = promise else { return };
            let mut since = None;
            while self.waits_for_writers(promise.round, since) {
                since.get_or_insert_with(Instant::now);
                tokio::task::yield_now().await;
            }
        }
    }

    /// Returns true if it is worth to wait for other submitters before the writes of `round` are
    /// committed. Without `since`, tasks that are ready now are meant, and only a submitter that
    /// has been alone for a while does not wait for them.
    pub(super) fn waits_for_writers(&self, round: u64, since: Option<Instant>) -> bool {
        let is_worth_it = || match since {
            None => !self.callers().is_one(),
            Some(since) => self
                .writer
                .try_lock()
                .is_ok_and(|writer| writer.waits_for_writers(self.queue.submitted(), since.elapsed())),
        };
        self.queue.rounds() == round && is_worth_it()
    }

    fn callers(&self) -> MutexGuard<'_, SubmitterHistory> {
        self.callers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Commits the writes of `round`, here or by the writer thread, unless they were taken already.
    fn flush_round(&self, round: u64) {
        if self.queue.rounds() != round || self.queue.is_empty() {
            return;
        }
        let must_call = match self.writer.try_lock() {
            Ok(mut writer) if writer.sync_is_fast() => {
                writer.write_batch(MAX_BATCH);
                writer.has_more()
            }
            Ok(_slow) => true,
            Err(TryLockError::Poisoned(_)) => true,
            // The current leader checks the queue again when it is done.
            Err(TryLockError::WouldBlock) => return,
        };
        if must_call || !self.queue.is_empty() {
            self.queue.call();
        }
    }

    fn has_work(&self) -> bool {
        // This order matters: a task that submits while the writer is locked here does not become
        // the leader, and relies on its write being found in the queue.
        let has_more = self.locked().has_more();
        has_more || !self.queue.is_empty()
    }

    fn locked(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(|poisoned| {
            let mut writer = PoisonError::into_inner(poisoned);
            writer.poison();
            writer
        })
    }
}

/// Promise of a leader to commit a round. The drop commits the round.
struct Promise<'g> {
    group_commit: &'g GroupCommit,
    round: u64,
}

impl Drop for Promise<'_> {
    fn drop(&mut self) {
        self.group_commit.flush_round(self.round);
    }
}
