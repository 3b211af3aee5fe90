//! Where writes wait for the writer, in the order in which they were handed in.

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

/// How much a write is, and whether others may pass it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteSize {
    /// A few records.
    Small,
    /// So many new jobs, in its turn: what comes behind it on its connection may need them.
    Jobs(usize),
    /// So many new jobs of someone who sends nothing else until they are there: they have a transaction of their own, and what
    /// comes behind passes them once.
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

/// A write on its way through the writer.
pub(crate) trait QueuedWrite: Send {
    fn ack_level(&self) -> AckLevel;
    fn size(&self) -> WriteSize;
    fn apply(&mut self, batch: &mut WriteTxn<'_>) -> Result<(), Error>;
    fn answer(self: Box<Self>, fate: Result<(), StoreError>);
}

struct ClosureTxn<T, F> {
    promise: AckLevel,
    size: WriteSize,
    /// Taken when it is applied.
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
        self.promise
    }

    fn size(&self) -> WriteSize {
        self.size
    }

    fn apply(&mut self, batch: &mut WriteTxn<'_>) -> Result<(), Error> {
        if let Some(work) = self.work.take() {
            self.done = Some(work(batch)?);
        }
        Ok(())
    }

    fn answer(self: Box<Self>, fate: Result<(), StoreError>) {
        let Self { done, reply, .. } = *self;
        let never = || StoreError("the write was never applied".into());
        // Whoever asked may have gone.
        let _gone = reply.send(fate.and_then(|()| done.ok_or_else(never)));
    }
}

/// Whoever adds more jobs than these leaves them to the writer's thread: they would keep others waiting.
const MOST_ON_THE_SPOT: usize = 16;

thread_local! {
    /// How many writes this thread has handed in that it looks after itself: nobody need be called for them.
    static LOOKED_AFTER: Cell<Option<u32>> = const { Cell::new(None) };
}

/// Hands writes in without calling anybody; the caller looks after them when this returns. How many there were.
pub(crate) fn count_submitted(work: impl FnOnce()) -> u32 {
    LOOKED_AFTER.set(Some(0));
    let _also_after_a_panic = CountingScope;
    work();
    LOOKED_AFTER.get().unwrap_or_default()
}

struct CountingScope;

impl Drop for CountingScope {
    fn drop(&mut self) {
        LOOKED_AFTER.set(None);
    }
}

/// What waits.
#[derive(Default)]
pub(crate) struct WriteQueue {
    waiting: Mutex<Vec<Box<dyn QueuedWrite>>>,
    /// How often everything that waited was taken.
    rounds: AtomicU64,
    /// How often something was handed in since anything was taken: several writes at once count as one.
    hand_ins: AtomicU32,
    /// Whether the thread was called and has not come yet, or is to end.
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

    /// Everything that waits, in its order.
    pub(crate) fn take(&self) -> Vec<Box<dyn QueuedWrite>> {
        let mut waiting = locked(&self.waiting);
        self.rounds.fetch_add(1, Ordering::Relaxed);
        take(&mut *waiting)
    }

    /// How often everything was taken: what was handed in when it was as often waits still.
    pub(crate) fn rounds(&self) -> u64 {
        self.rounds.load(Ordering::Relaxed)
    }

    /// Notes that somebody has handed something in.
    pub(crate) fn count_submitted_write(&self) {
        self.hand_ins.fetch_add(1, Ordering::Relaxed);
    }

    /// How often that was since they were taken.
    pub(crate) fn submitted(&self) -> u32 {
        self.hand_ins.load(Ordering::Relaxed)
    }

    /// How often that was, which is taken.
    pub(crate) fn take_submitted(&self) -> u32 {
        self.hand_ins.swap(0, Ordering::Relaxed)
    }

    /// Waits until so many have handed something in, but no longer than that.
    pub(crate) fn wait_for_writers(&self, (company, longest): (u32, Duration)) {
        if longest.is_zero() {
            return;
        }
        let call = locked(&self.call);
        let is_missed = |call: &mut Wakeup| !call.is_last && self.submitted() < company;
        // Who comes calls; what was called for is taken together with the others.
        let waited = self.called.wait_timeout_while(call, longest, is_missed);
        waited.unwrap_or_else(PoisonError::into_inner).0.is_made = false;
    }

    /// Calls the thread.
    pub(crate) fn call(&self) {
        let mut call = locked(&self.call);
        call.is_made = true;
        self.called.notify_one();
    }

    /// Waits until the thread is called; whether it is to go on after that.
    pub(crate) fn wait_for_call(&self) -> bool {
        let call = locked(&self.call);
        let is_idle = |call: &mut Wakeup| !call.is_made && !call.is_last;
        let mut call = self.called.wait_while(call, is_idle).unwrap_or_else(PoisonError::into_inner);
        call.is_made = false;
        !call.is_last
    }
}

/// The way to the writer. When it is dropped the writer makes everything durable and ends.
pub(crate) struct WriteHandle(pub(crate) Arc<WriteQueue>);

impl WriteHandle {
    /// Hands a write to the writer; its place in the order is taken before this returns.
    pub(crate) fn write<T, F>(&self, promise: AckLevel, size: WriteSize, work: F) -> StoreFuture<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut WriteTxn<'_>) -> Result<T, Error> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let write = ClosureTxn { promise, size, work: Some(work), done: None, reply };
        locked(&self.0.waiting).push(Box::new(write));
        count_submitted_write();
        match LOOKED_AFTER.get() {
            Some(count) if size.new_jobs() <= MOST_ON_THE_SPOT => LOOKED_AFTER.set(Some(count + 1)),
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
