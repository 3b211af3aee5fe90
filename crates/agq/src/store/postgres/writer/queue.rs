//! Where writes wait for the writer, in the order in which they were handed in.

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use agenix_protocol::time::Timestamp;
use sqlx::Error;
use tokio::sync::oneshot;

use crate::store::{
    Added, Answer, Change, Claim, Claimant, NewAction, NoteKind, NoteRule, Promise, Ruled, StoreError,
    count_hand_in,
    postgres::{
        txn::{Batch, documents::note_name, jobs::Decision},
        writer::subject::{Subject, Subjects},
    },
};

/// Who waits for an outcome.
type Reply<T> = oneshot::Sender<Result<T, StoreError>>;

/// A write that waits.
pub(crate) struct Write {
    pub(crate) promise: Promise,
    pub(crate) work: Work,
    /// Approximate number of bytes that go to the database with the write.
    bytes: usize,
}

/// What is to be done.
pub(crate) enum Work {
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
pub(crate) struct Deciding {
    pub(crate) decision: Decision,
    pub(crate) pending: Pending<Ruled<Option<Change>>>,
}

/// An action to add, and who waits for that.
pub(crate) struct Adding {
    pub(crate) new: NewAction,
    pub(crate) pending: Pending<Ruled<Added>>,
}

/// Those who want jobs.
pub(crate) struct Claiming {
    pub(crate) claimants: Vec<Claimant>,
    pub(crate) now: Timestamp,
    pub(crate) start_timeout_ms: u64,
}

/// An outcome, and who waits for it.
pub(crate) struct Pending<T> {
    pub(crate) outcome: Option<T>,
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
pub(crate) trait Other: Send {
    fn apply(&mut self, batch: &mut Batch<'_>) -> Result<(), Error>;
    fn answer(self: Box<Self>, fate: Result<(), StoreError>);
    /// Whether it is about users' keys.
    fn is_on_keys(&self) -> bool;
    /// Returns the name that the task locks first, if it locks one.
    fn name(&self) -> Option<&str>;
    /// Returns the subjects of the task.
    fn subjects(&self) -> Subjects;
}

struct Task<T, F> {
    work: F,
    pending: Pending<T>,
    subjects: Subjects,
    is_on_keys: bool,
    name: Option<String>,
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

    fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    fn subjects(&self) -> Subjects {
        self.subjects.clone()
    }
}

impl Write {
    /// Returns whether the write is about users' keys.
    pub(crate) fn is_on_keys(&self) -> bool {
        matches!(&self.work, Work::Other(other) if other.is_on_keys())
    }

    /// Returns the subjects of the write. A claim has none, because it takes what nobody holds.
    pub(crate) fn subjects(&self) -> Subjects {
        match &self.work {
            Work::Decide(deciding) => Subjects::of_decision(&deciding.decision),
            Work::Claim(..) => Subjects::default(),
            Work::Add(adding) => Subjects::of_addition(&adding.new),
            Work::Other(other) => other.subjects(),
        }
    }

    pub(crate) fn answer(self, fate: Result<(), StoreError>) {
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
pub(crate) struct Queue {
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

    /// Waits for writes, and returns them in their order: at most `most` writes, and more than one
    /// only as long as they have at most `bytes` bytes together. Returns no writes if none has come
    /// within `pause`, and `None` if no more can come.
    pub(crate) fn take(&self, most: usize, bytes: usize, pause: Option<Duration>) -> Option<Vec<Write>> {
        let idle = |state: &mut State| state.waiting.is_empty() && !state.is_closed;
        let state = self.locked();
        let mut state = match pause {
            None => self.called.wait_while(state, idle).unwrap_or_else(PoisonError::into_inner),
            Some(pause) => {
                let waited = self.called.wait_timeout_while(state, pause, idle);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        };
        if state.waiting.is_empty() {
            return (!state.is_closed).then(Vec::new);
        }
        let mut sum = 0;
        let fits = |write: &&Write| {
            sum += write.bytes;
            sum <= bytes
        };
        let count = state.waiting.iter().take(most).take_while(fits).count().max(1);
        Some(state.waiting.drain(..count).collect())
    }
}

/// The way to the writer. When it is dropped the writer does what was handed in, and ends.
pub(crate) struct Inbox(pub(crate) Arc<Queue>);

impl Inbox {
    pub(crate) fn decide(&self, promise: Promise, decision: Decision) -> Answer<Ruled<Option<Change>>> {
        let (pending, answer) = Pending::new();
        let bytes = decision.results.as_ref().map_or(0, String::len);
        self.hand_in(promise, Work::Decide(Box::new(Deciding { decision, pending })), bytes, answer)
    }

    pub(crate) fn claim(&self, claiming: Claiming) -> Answer<Vec<Option<Claim>>> {
        let (pending, answer) = Pending::new();
        self.hand_in(Promise::Visible, Work::Claim(claiming, pending), 0, answer)
    }

    pub(crate) fn add(&self, new: NewAction) -> Answer<Ruled<Added>> {
        let (pending, answer) = Pending::new();
        let bytes = new.jobs.iter().map(|job| job.input.len()).sum();
        self.hand_in(Promise::Durable, Work::Add(Box::new(Adding { new, pending })), bytes, answer)
    }

    pub(crate) fn write<T: Send + 'static>(
        &self,
        subjects: Subjects,
        promise: Promise,
        work: impl Fn(&mut Batch<'_>) -> Result<T, Error> + Send + 'static,
    ) -> Answer<T> {
        let (pending, answer) = Pending::new();
        let task = Task { work, pending, subjects, is_on_keys: false, name: None };
        self.hand_in(promise, Work::Other(Box::new(task)), 0, answer)
    }

    pub(crate) fn decide_note(&self, kind: NoteKind, id: String, rule: NoteRule) -> Answer<Ruled<()>> {
        let (pending, answer) = Pending::new();
        // Of two nodes that look for a note that is not there, one comes after the other.
        let name = Some(note_name(kind, &id));
        let subjects = Subjects::from(Subject::Note(kind, id.clone()));
        let work = move |batch: &mut Batch<'_>| batch.decide_note(kind, &id, &rule);
        let task = Task { work, pending, subjects, is_on_keys: false, name };
        self.hand_in(Promise::Durable, Work::Other(Box::new(task)), 0, answer)
    }

    pub(crate) fn change_keys(
        &self,
        work: impl Fn(&mut Batch<'_>) -> Result<(), Error> + Send + 'static,
    ) -> Answer<()> {
        let (pending, answer) = Pending::new();
        // These writes share one lock, for which they wait without bound, so none of them is late.
        let subjects = Subjects::default();
        let task = Task { work, pending, subjects, is_on_keys: true, name: None };
        self.hand_in(Promise::Durable, Work::Other(Box::new(task)), 0, answer)
    }

    /// Its place in the order is taken before this returns.
    fn hand_in<T: Send + 'static>(
        &self,
        promise: Promise,
        work: Work,
        bytes: usize,
        answer: oneshot::Receiver<Result<T, StoreError>>,
    ) -> Answer<T> {
        self.0.locked().waiting.push(Write { promise, work, bytes });
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

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use agenix_protocol::ids::JobId;
    use agenix_rules::job::RuleOutcome;

    use super::{Inbox, Queue};
    use crate::store::{Promise, postgres::txn::jobs::Decision};

    /// Hands in a report with `bytes` bytes of results.
    fn report(inbox: &Inbox, bytes: usize) {
        let job_id = JobId::new("a-0").unwrap();
        let results = Some("x".repeat(bytes));
        let decision = Decision { job_id, results, rule: Box::new(|_| Ok(RuleOutcome::Unchanged)) };
        drop(inbox.decide(Promise::Durable, decision));
    }

    #[test]
    fn a_batch_is_bounded_by_its_bytes_and_by_its_writes() {
        let queue = Arc::new(Queue::default());
        let inbox = Inbox(Arc::clone(&queue));
        for bytes in [60, 30, 20, 500, 0, 0] {
            report(&inbox, bytes);
        }
        let sizes: Vec<usize> =
            std::iter::from_fn(|| queue.take(2, 100, Some(Duration::ZERO)).map(|taken| taken.len()))
                .take(5)
                .collect();
        // A write that is larger than the bound goes alone, and no write is left out.
        assert_eq!(sizes, [2, 1, 1, 2, 0]);
    }

    #[test]
    fn whoever_has_something_late_does_not_wait_for_ever() {
        let queue = Arc::new(Queue::default());
        let inbox = Inbox(Arc::clone(&queue));
        assert!(queue.take(2, 100, Some(Duration::ZERO)).is_some_and(|taken| taken.is_empty()));
        drop(inbox);
        assert!(queue.take(2, 100, Some(Duration::ZERO)).is_none());
        assert!(queue.take(2, 100, None).is_none());
    }
}
