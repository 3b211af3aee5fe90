//! Who does the writer's work: a thread of its own, or, where that is soon done, whoever has just handed something in (ADR 14). To
//! wake another thread takes as long as a sync does.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError},
    thread,
    time::Instant,
};

use crate::store::redb::writer::{
    MAX_BATCH, Writer,
    batching_policy::SubmitterHistory,
    queue::{WriteQueue, count_submitted},
};

pub(crate) struct GroupCommit {
    writer: Mutex<Writer>,
    queue: Arc<WriteQueue>,
    callers: Mutex<SubmitterHistory>,
}

impl GroupCommit {
    pub(crate) fn new(writer: Writer, queue: Arc<WriteQueue>) -> Arc<Self> {
        Arc::new(Self { writer: Mutex::new(writer), queue, callers: Mutex::default() })
    }

    /// Sets a thread to work, which ends when the last way in is dropped.
    pub(crate) fn work(self: Arc<Self>) -> std::io::Result<thread::JoinHandle<()>> {
        thread::Builder::new().name("writer".into()).spawn(move || {
            loop {
                let goes_on = self.queue.wait_for_call();
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

    /// Does `work` for somebody, or for many, which hands writes in and waits for none of them; the round, where any are to be seen to.
    pub(crate) fn submit(&self, who: Option<u64>, work: &mut dyn FnMut()) -> Option<u64> {
        if count_submitted(work) == 0 {
            return None;
        }
        self.callers().came(who);
        self.queue.count_submitted_write();
        Some(self.queue.rounds())
    }

    /// Whether it is worth to wait for others before what was collected since then is written. Those who are there at this moment
    /// are waited for in any case, unless nobody but one has come for a while.
    pub(crate) fn waits_for_writers(&self, round: u64, since: Option<Instant>) -> bool {
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

    /// Writes what was collected, here or by the thread, unless somebody has taken it since.
    pub(crate) fn flush_round(&self, round: u64) {
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
            // Whoever is at it looks again when that is done.
            Err(TryLockError::WouldBlock) => return,
        };
        if must_call || !self.queue.is_empty() {
            self.queue.call();
        }
    }

    fn has_work(&self) -> bool {
        // In this order: whoever hands in while the writer is looked at finds it taken, and relies on being found here.
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
