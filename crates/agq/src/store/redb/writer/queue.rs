//! Queue of writes that wait for the writer, in order of submission.

use std::{
    mem::take,
    pin::Pin,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    task::{Context, Poll},
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
pub(super) trait QueuedWrite: Send {
    fn ack_level(&self) -> AckLevel;
    fn size(&self) -> WriteSize;
    fn apply(&mut self, txn: &mut WriteTxn<'_>) -> Result<(), Error>;
    fn answer(self: Box<Self>, fate: Result<(), StoreError>);
}

struct ClosureTxn<T, F> {
    ack_level: AckLevel,
    size: WriteSize,
    /// Work; `None` once the write has been applied.
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

#[derive(Default)]
pub(crate) struct WriteQueue {
    round: Mutex<Round>,
    /// Number of times that the queue was emptied. Changes only while `round` is locked.
    rounds: AtomicU64,
    /// Number of submissions since the queue was last emptied. Several writes of one submission
    /// count once.
    submissions: AtomicU32,
    /// Wake-up of the writer thread.
    call: Mutex<Wakeup>,
    called: Condvar,
}

/// Writes between two times that the queue is emptied.
#[derive(Default)]
struct Round {
    waiting: Vec<Box<dyn QueuedWrite>>,
    committer: RoundCommitter,
}

/// Thread that will commit a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum RoundCommitter {
    #[default]
    Undecided,
    /// A task that has promised to commit the round.
    Leader,
    /// The writer thread, which is awake.
    WriterThread,
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
        locked(&self.round).waiting.is_empty()
    }

    /// Adds a write to the current round, and returns the number of the round. Wakes the writer
    /// thread for a large write only.
    fn push(&self, write: Box<dyn QueuedWrite>) -> u64 {
        let is_large = write.size().new_jobs() > MAX_LEADER_JOBS;
        let mut round = locked(&self.round);
        round.waiting.push(write);
        let number = self.rounds();
        if is_large {
            self.leave_to_writer_thread(round);
        }
        number
    }

    /// Removes all waiting writes, and returns them in order.
    pub(super) fn take(&self) -> Vec<Box<dyn QueuedWrite>> {
        let mut round = locked(&self.round);
        self.rounds.fetch_add(1, Ordering::Relaxed);
        take(&mut *round).waiting
    }

    /// Promises that the caller commits the current round, and returns the number of the round.
    /// Returns `None` if there is nothing to commit, or if the writer thread does it.
    pub(crate) fn promise(&self) -> Option<u64> {
        let mut round = locked(&self.round);
        if round.waiting.is_empty() {
            return None;
        }
        if round.committer == RoundCommitter::WriterThread {
            self.leave_to_writer_thread(round);
            return None;
        }
        round.committer = RoundCommitter::Leader;
        self.count_submission();
        Some(self.rounds())
    }

    /// Wakes the writer thread if the writes of round `number` are still waiting, and no leader has
    /// promised to commit them.
    fn call_unless_promised(&self, number: u64) {
        // The first comparison needs no lock.
        if self.rounds() == number {
            let round = locked(&self.round);
            if self.rounds() == number && round.committer != RoundCommitter::Leader {
                self.leave_to_writer_thread(round);
            }
        }
    }

    fn leave_to_writer_thread(&self, mut round: MutexGuard<'_, Round>) {
        round.committer = RoundCommitter::WriterThread;
        drop(round);
        self.count_submission();
        self.call();
    }

    /// Returns the number of the current round. Writes that were submitted in this round are still
    /// waiting.
    pub(crate) fn rounds(&self) -> u64 {
        self.rounds.load(Ordering::Relaxed)
    }

    fn count_submission(&self) {
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
        // Every submission of another thread wakes this thread. All writes that caused a wake-up
        // are taken together.
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

/// Handle for submitting writes. The writer makes everything durable, and ends, when the handle is
/// dropped.
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
        let round = self.0.push(Box::new(write));
        count_submitted_write();
        Box::pin(WriteTicket { queue: Arc::clone(&self.0), round, polls: 0, answer })
    }
}

/// Future of a submitted write.
///
/// The future does not wake the writer thread at once, because its caller may commit the round
/// itself ([`GroupCommit::commit`](super::group_commit::GroupCommit::commit)). If nobody has
/// promised to commit the round by the second poll, or when the future is dropped, the future wakes
/// the writer thread.
struct WriteTicket<T> {
    queue: Arc<WriteQueue>,
    round: u64,
    /// Number of polls, counted up to 2.
    polls: u8,
    answer: oneshot::Receiver<Result<T, StoreError>>,
}

impl<T> Future for WriteTicket<T> {
    type Output = Result<T, StoreError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = Pin::new(&mut self.answer).poll(cx);
        if answer.is_pending() && self.polls < 2 {
            self.polls += 1;
            match self.polls {
                1 => cx.waker().wake_by_ref(),
                _ => self.queue.call_unless_promised(self.round),
            }
        }
        answer.map(|answer| answer.map_err(|_| StoreError("the store has stopped".into()))?)
    }
}

impl<T> Drop for WriteTicket<T> {
    fn drop(&mut self) {
        if self.polls < 2 {
            self.queue.call_unless_promised(self.round);
        }
    }
}

impl Drop for WriteHandle {
    fn drop(&mut self) {
        locked(&self.0.call).is_last = true;
        self.0.called.notify_one();
    }
}
