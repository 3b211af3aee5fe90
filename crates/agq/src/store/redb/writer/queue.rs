//! Queue of writes that wait for the writer, in order of submission.

use std::{
    cell::Cell,
    mem::take,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use redb::Error;
use tokio::sync::oneshot;

use crate::store::{AckLevel, StoreError, StoreFuture, count_submitted_write, redb::txn::WriteTxn};

/// Size of a write, and whether others may overtake it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteSize {
    /// A few records.
    Small,
    /// Number of new jobs of a write in order: later writes of the same connection may need them.
    Jobs(usize),
    /// Number of new jobs of a client that submits nothing else meanwhile. The write has a batch of
    /// its own, and other writes may overtake it once.
    Bulk(usize),
}

impl WriteSize {
    pub(crate) fn new_jobs(self) -> usize {
        match self {
            Self::Small => 0,
            Self::Jobs(count) | Self::Bulk(count) => count,
        }
    }
}

/// A submitted write.
pub(crate) trait QueuedWrite: Send {
    fn ack_level(&self) -> AckLevel;
    fn size(&self) -> WriteSize;
    fn apply(&mut self, txn: &mut WriteTxn<'_>) -> Result<(), Error>;
    fn answer(self: Box<Self>, fate: Result<(), StoreError>);
}

struct ClosureTxn<T, F> {
    ack_level: AckLevel,
    size: WriteSize,
    /// `None` once it has been applied.
    work: Option<F>,
    done: Option<T>,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

impl<T, F> QueuedWrite for ClosureTxn<T, F>
where
    T: Send,
    F: FnOnce(&mut WriteTxn<'_>) -> Result<T, Error> + Send,
{
    fn ack_level(&self) -> AckLevel {
        self.ack_level
    }

    fn size(&self) -> WriteSize {
        self.size
    }

    fn apply(&mut self, txn: &mut WriteTxn<'_>) -> Result<(), Error> {
        if let Some(work) = self.work.take() {
            self.done = Some(work(txn)?);
        }
        Ok(())
    }

    fn answer(self: Box<Self>, fate: Result<(), StoreError>) {
        let Self { done, reply, .. } = *self;
        let never = || StoreError("the write was never applied".into());
        // The submitter may have gone.
        let _gone = reply.send(fate.and_then(|()| done.ok_or_else(never)));
    }
}

/// Maximum number of new jobs of a write that a leader applies. Larger writes go to the writer
/// thread, because they would delay other clients of the leader's thread.
const MAX_LEADER_JOBS: usize = 16;

thread_local! {
    /// Number of writes that this thread has submitted and will commit as the leader. They do not
    /// wake the writer thread.
    static LEADER_WRITES: Cell<Option<u32>> = const { Cell::new(None) };
}

/// Runs `work` without waking the writer thread, and returns the number of submitted writes. The
/// caller has to commit them.
pub(crate) fn count_submitted(work: impl FnOnce()) -> u32 {
    LEADER_WRITES.set(Some(0));
    let _also_after_a_panic = CountingScope;
    work();
    LEADER_WRITES.get().unwrap_or_default()
}

struct CountingScope;

impl Drop for CountingScope {
    fn drop(&mut self) {
        LEADER_WRITES.set(None);
    }
}

#[derive(Default)]
pub(crate) struct WriteQueue {
    waiting: Mutex<Vec<Box<dyn QueuedWrite>>>,
    /// Number of times that the queue was emptied.
    rounds: AtomicU64,
    /// Number of submissions since the queue was last emptied. Several writes of one submission
    /// count once.
    submissions: AtomicU32,
    /// Wake-up of the writer thread.
    call: Mutex<Wakeup>,
    called: Condvar,
}

#[derive(Default)]
struct Wakeup {
    is_made: bool,
    is_last: bool,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl WriteQueue {
    pub(crate) fn is_empty(&self) -> bool {
        locked(&self.waiting).is_empty()
    }

    /// Removes all waiting writes, and returns them in order.
    pub(crate) fn take(&self) -> Vec<Box<dyn QueuedWrite>> {
        let mut waiting = locked(&self.waiting);
        self.rounds.fetch_add(1, Ordering::Relaxed);
        take(&mut *waiting)
    }

    /// Returns the number of the current round. Writes that were submitted in this round are still
    /// waiting.
    pub(crate) fn rounds(&self) -> u64 {
        self.rounds.load(Ordering::Relaxed)
    }

    /// Counts a submission.
    pub(crate) fn count_submitted_write(&self) {
        self.submissions.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of submissions since the queue was last emptied.
    pub(crate) fn submitted(&self) -> u32 {
        self.submissions.load(Ordering::Relaxed)
    }

    /// Returns the number of submissions, and resets it.
    pub(crate) fn take_submitted(&self) -> u32 {
        self.submissions.swap(0, Ordering::Relaxed)
    }

    /// Waits until the expected number of submissions, at most for the given duration.
    pub(crate) fn wait_for_writers(&self, (expected, longest): (u32, Duration)) {
        if longest.is_zero() {
            return;
        }
        let call = locked(&self.call);
        let is_missed = |call: &mut Wakeup| !call.is_last && self.submitted() < expected;
        // Every submission of another thread wakes this one. All writes that caused a wake-up are
        // taken together.
        let waited = self.called.wait_timeout_while(call, longest, is_missed);
        waited.unwrap_or_else(PoisonError::into_inner).0.is_made = false;
    }

    /// Wakes the writer thread.
    pub(crate) fn call(&self) {
        let mut call = locked(&self.call);
        call.is_made = true;
        self.called.notify_one();
    }

    /// Waits for a wake-up. Returns false if the thread has to end after this round.
    pub(crate) fn wait_for_wakeup(&self) -> bool {
        let call = locked(&self.call);
        let is_idle = |call: &mut Wakeup| !call.is_made && !call.is_last;
        let mut call = self.called.wait_while(call, is_idle).unwrap_or_else(PoisonError::into_inner);
        call.is_made = false;
        !call.is_last
    }
}

/// Handle for submitting writes. When it is dropped, the writer makes everything durable and ends.
pub(crate) struct WriteHandle(pub(crate) Arc<WriteQueue>);

impl WriteHandle {
    /// Submits a write, which gets its place in the order of all writes before this returns.
    pub(crate) fn write<T, F>(&self, ack_level: AckLevel, size: WriteSize, work: F) -> StoreFuture<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut WriteTxn<'_>) -> Result<T, Error> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let write = ClosureTxn { ack_level, size, work: Some(work), done: None, reply };
        locked(&self.0.waiting).push(Box::new(write));
        count_submitted_write();
        match LEADER_WRITES.get() {
            Some(count) if size.new_jobs() <= MAX_LEADER_JOBS => LEADER_WRITES.set(Some(count + 1)),
            _ => {
                self.0.count_submitted_write();
                self.0.call();
            }
        }
        Box::pin(async move { answer.await.map_err(|_| StoreError("the store has stopped".into()))? })
    }
}

impl Drop for WriteHandle {
    fn drop(&mut self) {
        locked(&self.0.call).is_last = true;
        self.0.called.notify_one();
    }
}
