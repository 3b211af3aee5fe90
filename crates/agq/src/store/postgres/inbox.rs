//! Where writes wait for the writer, in the order in which they were handed in.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use agenix_protocol::time::Timestamp;
use sqlx::Error;
use tokio::sync::oneshot;

use super::{batch::Batch, claims::Decision};
use crate::store::{
    Added, Answer, Change, Claim, Claimant, NewAction, Promise, Ruled, StoreError, count_hand_in,
};

/// Who waits for an outcome.
type Reply<T> = oneshot::Sender<Result<T, StoreError>>;

/// A write that waits.
pub(super) struct Write {
    pub(super) promise: Promise,
    pub(super) work: Work,
}

/// What is to be done.
pub(super) enum Work {
    /// What becomes of a job; many are done together.
    Decide(Box<Deciding>),
    /// Jobs for claimants; many are done together.
    Claim(Claiming, Pending<Vec<Option<Claim>>>),
    /// An action with its jobs; many are added together.
    Add(Box<Adding>),
    /// Anything else, in its order.
    Other(Box<dyn Other>),
}

/// What is to become of a job, and who waits for that.
pub(super) struct Deciding {
    pub(super) decision: Decision,
    pub(super) pending: Pending<Ruled<Option<Change>>>,
}

/// An action to add, and who waits for that.
pub(super) struct Adding {
    pub(super) new: NewAction,
    pub(super) pending: Pending<Ruled<Added>>,
}

/// Those who want jobs.
pub(super) struct Claiming {
    pub(super) claimants: Vec<Claimant>,
    pub(super) now: Timestamp,
    pub(super) start_timeout_ms: u64,
}

/// An outcome, and who waits for it.
pub(super) struct Pending<T> {
    pub(super) outcome: Option<T>,
    reply: Reply<T>,
}

impl<T> Pending<T> {
    fn new() -> (Self, oneshot::Receiver<Result<T, StoreError>>) {
        let (reply, answer) = oneshot::channel();
        (Self { outcome: None, reply }, answer)
    }

    fn answer(self, fate: Result<(), StoreError>) {
        let never = || StoreError("the write was never done".into());
        // Whoever asked may have gone.
        let _gone = self.reply.send(fate.and_then(|()| self.outcome.ok_or_else(never)));
    }
}

/// A write that is done by itself; it may be done more than once.
pub(super) trait Other: Send {
    fn apply(&mut self, batch: &mut Batch<'_>) -> Result<(), Error>;
    fn answer(self: Box<Self>, fate: Result<(), StoreError>);
    /// Whether it is about users' keys.
    fn is_on_keys(&self) -> bool;
}

struct Task<T, F> {
    work: F,
    pending: Pending<T>,
    is_on_keys: bool,
}

impl<T, F> Other for Task<T, F>
where
    T: Send,
    F: Fn(&mut Batch<'_>) -> Result<T, Error> + Send,
{
    fn apply(&mut self, batch: &mut Batch<'_>) -> Result<(), Error> {
        self.pending.outcome = Some((self.work)(batch)?);
        Ok(())
    }

    fn answer(self: Box<Self>, fate: Result<(), StoreError>) {
        self.pending.answer(fate);
    }

    fn is_on_keys(&self) -> bool {
        self.is_on_keys
    }
}

impl Write {
    pub(super) fn answer(self, fate: Result<(), StoreError>) {
        match self.work {
            Work::Decide(deciding) => deciding.pending.answer(fate),
            Work::Claim(_, pending) => pending.answer(fate),
            Work::Add(adding) => adding.pending.answer(fate),
            Work::Other(other) => other.answer(fate),
        }
    }
}

/// What waits.
#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    called: Condvar,
}

#[derive(Default)]
struct State {
    waiting: Vec<Write>,
    is_closed: bool,
}

impl Queue {
    fn locked(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Everything that waits, at most so much, in its order, as soon as there is something; `None` when nothing comes any more.
    pub(super) fn take(&self, most: usize) -> Option<Vec<Write>> {
        let idle = |state: &mut State| state.waiting.is_empty() && !state.is_closed;
        let mut state = self.called.wait_while(self.locked(), idle).unwrap_or_else(PoisonError::into_inner);
        let most = most.min(state.waiting.len());
        Some(state.waiting.drain(..most).collect::<Vec<_>>()).filter(|taken| !taken.is_empty())
    }
}

/// The way to the writer. When it is dropped the writer does what was handed in, and ends.
pub(super) struct Inbox(pub(super) Arc<Queue>);

impl Inbox {
    pub(super) fn decide(&self, promise: Promise, decision: Decision) -> Answer<Ruled<Option<Change>>> {
        let (pending, answer) = Pending::new();
        self.hand_in(promise, Work::Decide(Box::new(Deciding { decision, pending })), answer)
    }

    pub(super) fn claim(&self, claiming: Claiming) -> Answer<Vec<Option<Claim>>> {
        let (pending, answer) = Pending::new();
        self.hand_in(Promise::Visible, Work::Claim(claiming, pending), answer)
    }

    pub(super) fn add(&self, new: NewAction) -> Answer<Ruled<Added>> {
        let (pending, answer) = Pending::new();
        self.hand_in(Promise::Durable, Work::Add(Box::new(Adding { new, pending })), answer)
    }

    pub(super) fn write<T: Send + 'static>(
        &self,
        promise: Promise,
        work: impl Fn(&mut Batch<'_>) -> Result<T, Error> + Send + 'static,
    ) -> Answer<T> {
        let (pending, answer) = Pending::new();
        self.hand_in(promise, Work::Other(Box::new(Task { work, pending, is_on_keys: false })), answer)
    }

    pub(super) fn change_keys(
        &self,
        work: impl Fn(&mut Batch<'_>) -> Result<(), Error> + Send + 'static,
    ) -> Answer<()> {
        let (pending, answer) = Pending::new();
        self.hand_in(
            Promise::Durable,
            Work::Other(Box::new(Task { work, pending, is_on_keys: true })),
            answer,
        )
    }

    /// Its place in the order is taken before this returns.
    fn hand_in<T: Send + 'static>(
        &self,
        promise: Promise,
        work: Work,
        answer: oneshot::Receiver<Result<T, StoreError>>,
    ) -> Answer<T> {
        self.0.locked().waiting.push(Write { promise, work });
        count_hand_in();
        self.0.called.notify_one();
        Box::pin(async move { answer.await.map_err(|_| StoreError("the store has stopped".into()))? })
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        self.0.locked().is_closed = true;
        self.0.called.notify_one();
    }
}
