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

use crate::store::{Answer, Promise, StoreError, count_hand_in, redb::txn::Batch};

/// How much a write is, and whether others may pass it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Size {
    /// A few records.
    Small,
    /// So many new jobs, in its turn: what comes behind it on its connection may need them.
    Jobs(usize),
    /// So many new jobs of someone who sends nothing else until they are there: they have a transaction of their own, and what
    /// comes behind passes them once.
    Bulk(usize),
}

impl Size {
    pub(crate) fn new_jobs(self) -> usize {
        match self {
            Self::Small => 0,
            Self::Jobs(count) | Self::Bulk(count) => count,
        }
    }
}

/// A write on its way through the writer.
pub(crate) trait Waiting: Send {
    fn promise(&self) -> Promise;
    fn size(&self) -> Size;
    fn apply(&mut self, batch: &mut Batch<'_>) -> Result<(), Error>;
    fn answer(self: Box<Self>, fate: Result<(), StoreError>);
}

struct Write<T, F> {
    promise: Promise,
    size: Size,
    /// Taken when it is applied.
    work: Option<F>,
    done: Option<T>,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

impl<T, F> Waiting for Write<T, F>
where
    T: Send,
    F: FnOnce(&mut Batch<'_>) -> Result<T, Error> + Send,
{
    fn promise(&self) -> Promise {
        self.promise
    }

    fn size(&self) -> Size {
        self.size
    }

    fn apply(&mut self, batch: &mut Batch<'_>) -> Result<(), Error> {
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
pub(crate) fn looked_after(work: impl FnOnce()) -> u32 {
    LOOKED_AFTER.set(Some(0));
    let _also_after_a_panic = NoLonger;
    work();
    LOOKED_AFTER.get().unwrap_or_default()
}

struct NoLonger;

impl Drop for NoLonger {
    fn drop(&mut self) {
        LOOKED_AFTER.set(None);
    }
}

/// What waits.
#[derive(Default)]
pub(crate) struct Queue {
    waiting: Mutex<Vec<Box<dyn Waiting>>>,
    /// How often everything that waited was taken.
    rounds: AtomicU64,
    /// How often something was handed in since anything was taken: several writes at once count as one.
    hand_ins: AtomicU32,
    /// Whether the thread was called and has not come yet, or is to end.
    call: Mutex<Call>,
    called: Condvar,
}

#[derive(Default)]
struct Call {
    is_made: bool,
    is_last: bool,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Queue {
    pub(crate) fn is_empty(&self) -> bool {
        locked(&self.waiting).is_empty()
    }

    /// Everything that waits, in its order.
    pub(crate) fn take(&self) -> Vec<Box<dyn Waiting>> {
        let mut waiting = locked(&self.waiting);
        self.rounds.fetch_add(1, Ordering::Relaxed);
        take(&mut *waiting)
    }

    /// How often everything was taken: what was handed in when it was as often waits still.
    pub(crate) fn rounds(&self) -> u64 {
        self.rounds.load(Ordering::Relaxed)
    }

    /// Notes that somebody has handed something in.
    pub(crate) fn count_hand_in(&self) {
        self.hand_ins.fetch_add(1, Ordering::Relaxed);
    }

    /// How often that was since they were taken.
    pub(crate) fn hand_ins(&self) -> u32 {
        self.hand_ins.load(Ordering::Relaxed)
    }

    /// How often that was, which is taken.
    pub(crate) fn take_hand_ins(&self) -> u32 {
        self.hand_ins.swap(0, Ordering::Relaxed)
    }

    /// Waits until so many have handed something in, but no longer than that.
    pub(crate) fn wait_for_company(&self, (company, longest): (u32, Duration)) {
        if longest.is_zero() {
            return;
        }
        let call = locked(&self.call);
        let is_missed = |call: &mut Call| !call.is_last && self.hand_ins() < company;
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
        let is_idle = |call: &mut Call| !call.is_made && !call.is_last;
        let mut call = self.called.wait_while(call, is_idle).unwrap_or_else(PoisonError::into_inner);
        call.is_made = false;
        !call.is_last
    }
}

/// The way to the writer. When it is dropped the writer makes everything durable and ends.
pub(crate) struct Inbox(pub(crate) Arc<Queue>);

impl Inbox {
    /// Hands a write to the writer; its place in the order is taken before this returns.
    pub(crate) fn write<T, F>(&self, promise: Promise, size: Size, work: F) -> Answer<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut Batch<'_>) -> Result<T, Error> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let write = Write { promise, size, work: Some(work), done: None, reply };
        locked(&self.0.waiting).push(Box::new(write));
        count_hand_in();
        match LOOKED_AFTER.get() {
            Some(count) if size.new_jobs() <= MOST_ON_THE_SPOT => LOOKED_AFTER.set(Some(count + 1)),
            _ => {
                self.0.count_hand_in();
                self.0.call();
            }
        }
        Box::pin(async move { answer.await.map_err(|_| StoreError("the store has stopped".into()))? })
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        locked(&self.0.call).is_last = true;
        self.0.called.notify_one();
    }
}
