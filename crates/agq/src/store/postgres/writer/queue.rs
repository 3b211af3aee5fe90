//! Queue of writes for a writer thread, in the order of their submission.

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use agenix_protocol::time::Timestamp;
use sqlx::Result;
use tokio::sync::oneshot;

use crate::store::{
    AckLevel, AddOutcome, Claim, Claimant, DocumentKind, DocumentRule, JobChange, NewAction, RuleResult,
    StoreError, StoreFuture, count_submitted_write,
    postgres::{
        txn::{PgTxn, documents::document_name, jobs::JobDecision},
        writer::{
            pace::Pace,
            subject::{Subjects, WriteSubject},
        },
    },
    types::RuleFuture,
};

type ReplySender<T> = oneshot::Sender<Result<T, StoreError>>;

pub(crate) struct PgWrite {
    pub(crate) level: AckLevel,
    pub(crate) work: WriteKind,
    /// Approximate number of bytes that go to the database with the write.
    bytes: usize,
}

pub(crate) enum WriteKind {
    Decide(Box<Deciding>),
    Claim(Claiming, PendingReply<Vec<Option<Claim>>>),
    Add(Box<Adding>),
    /// Any other write, in its order.
    Other(SingleWrite),
}

pub(crate) struct Deciding {
    pub(crate) decision: JobDecision,
    pub(crate) pending: PendingReply<RuleResult<Option<JobChange>>>,
}

pub(crate) struct Adding {
    pub(crate) new: NewAction,
    pub(crate) pending: PendingReply<RuleResult<AddOutcome>>,
}

pub(crate) struct Claiming {
    pub(crate) claimants: Vec<Claimant>,
    pub(crate) now: Timestamp,
    pub(crate) start_timeout_ms: u64,
}

pub(crate) struct PendingReply<T> {
    pub(crate) outcome: Option<T>,
    reply: ReplySender<T>,
}

impl<T> PendingReply<T> {
    fn new() -> (Self, oneshot::Receiver<Result<T, StoreError>>) {
        let (reply, answer) = oneshot::channel();
        (Self { outcome: None, reply }, answer)
    }

    fn answer(self, result: Result<(), StoreError>) {
        let never = || StoreError("the write was never applied".into());
        // The caller may have dropped the future.
        let _gone = self.reply.send(result.and_then(|()| self.outcome.ok_or_else(never)));
    }
}

/// Write with statements of its own.
pub(crate) struct SingleWrite {
    pub(crate) work: Box<dyn Work>,
    subjects: Subjects,
    /// True if the write changes users' keys.
    is_on_keys: bool,
    /// Name that the write locks first, if it locks one.
    pub(crate) name: Option<String>,
}

impl SingleWrite {
    /// Makes a write that locks no name, and the receiver of its answer.
    fn new<T: Send + 'static>(
        subjects: Subjects,
        work: impl Fn(&mut PgTxn<'_>) -> Result<T> + Send + 'static,
    ) -> (Self, oneshot::Receiver<Result<T, StoreError>>) {
        let (pending, answer) = PendingReply::new();
        (Self { work: Box::new((work, pending)), subjects, is_on_keys: false, name: None }, answer)
    }
}

/// Work of a write. The writer may apply it more than once.
pub(crate) trait Work: Send {
    fn apply(&mut self, txn: &mut PgTxn<'_>) -> Result<()>;
    fn answer(self: Box<Self>, result: Result<(), StoreError>);
}

impl<T, F> Work for (F, PendingReply<T>)
where
    T: Send,
    F: Fn(&mut PgTxn<'_>) -> Result<T> + Send,
{
    fn apply(&mut self, txn: &mut PgTxn<'_>) -> Result<()> {
        self.1.outcome = Some((self.0)(txn)?);
        Ok(())
    }

    fn answer(self: Box<Self>, result: Result<(), StoreError>) {
        self.1.answer(result);
    }
}

impl PgWrite {
    pub(crate) fn is_on_keys(&self) -> bool {
        matches!(&self.work, WriteKind::Other(other) if other.is_on_keys)
    }

    /// Returns the subjects of the write. A claim has no subjects, because it takes jobs without a
    /// holder.
    pub(crate) fn subjects(&self) -> Subjects {
        match &self.work {
            WriteKind::Decide(deciding) => Subjects::of_decision(&deciding.decision),
            WriteKind::Claim(..) => Subjects::default(),
            WriteKind::Add(adding) => Subjects::of_addition(&adding.new),
            WriteKind::Other(other) => other.subjects.clone(),
        }
    }

    pub(crate) fn answer(self, result: Result<(), StoreError>) {
        match self.work {
            WriteKind::Decide(deciding) => deciding.pending.answer(result),
            WriteKind::Claim(_, pending) => pending.answer(result),
            WriteKind::Add(adding) => adding.pending.answer(result),
            WriteKind::Other(other) => other.work.answer(result),
        }
    }
}

#[derive(Default)]
pub(crate) struct PgQueue {
    state: Mutex<PgQueueState>,
    submitted: Condvar,
}

#[derive(Default)]
struct PgQueueState {
    waiting: Vec<PgWrite>,
    /// Number of writes for which the writer waits. Fewer writes do not wake the writer.
    wanted: usize,
    is_closed: bool,
}

impl PgQueue {
    fn locked(&self) -> MutexGuard<'_, PgQueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for writes, and returns them in their order. Returns at most `most` writes, and more
    /// than one only if they have at most `bytes` bytes together.
    ///
    /// Waits a little longer for as many writes as `pace` expects. Returns no writes if none is
    /// submitted within `pause`, and `None` once the queue is closed and empty.
    pub(crate) fn take(
        &self,
        most: usize,
        bytes: usize,
        pause: Option<Duration>,
        pace: &mut Pace,
    ) -> Option<Vec<PgWrite>> {
        let state = self.wait(self.locked(), 1, pause);
        if state.waiting.is_empty() {
            return (!state.is_closed).then(Vec::new);
        }
        let (expected, wait) = pace.wait_for(state.waiting.len());
        let mut state = if wait.is_zero() { state } else { self.wait(state, expected, Some(wait)) };
        state.wanted = usize::MAX;
        pace.begin_batch(state.waiting.len());
        let mut sum = 0;
        let fits = |write: &&PgWrite| {
            sum += write.bytes;
            sum <= bytes
        };
        let count = state.waiting.iter().take(most).take_while(fits).count().max(1);
        Some(state.waiting.drain(..count).collect())
    }
}

impl PgQueue {
    /// Waits until `wanted` writes are submitted, at most for `most`.
    fn wait<'q>(
        &'q self,
        mut state: MutexGuard<'q, PgQueueState>,
        wanted: usize,
        most: Option<Duration>,
    ) -> MutexGuard<'q, PgQueueState> {
        state.wanted = wanted;
        let is_short = |state: &mut PgQueueState| state.waiting.len() < wanted && !state.is_closed;
        match most {
            None => self.submitted.wait_while(state, is_short).unwrap_or_else(PoisonError::into_inner),
            Some(most) => {
                let waited = self.submitted.wait_timeout_while(state, most, is_short);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        }
    }
}

/// Handle of a writer. The writer finishes the submitted writes, and ends, when the handle is
/// dropped.
pub(crate) struct PgWriteHandle(pub(crate) Arc<PgQueue>);

impl PgWriteHandle {
    pub(crate) fn decide(&self, level: AckLevel, decision: JobDecision) -> RuleFuture<Option<JobChange>> {
        let (pending, answer) = PendingReply::new();
        let bytes = decision.results.as_ref().map_or(0, |results| results.json.len());
        self.submit(level, WriteKind::Decide(Box::new(Deciding { decision, pending })), bytes, answer)
    }

    pub(crate) fn claim(&self, claiming: Claiming) -> StoreFuture<Vec<Option<Claim>>> {
        let (pending, answer) = PendingReply::new();
        self.submit(AckLevel::Applied, WriteKind::Claim(claiming, pending), 0, answer)
    }

    pub(crate) fn add(&self, new: NewAction) -> RuleFuture<AddOutcome> {
        let (pending, answer) = PendingReply::new();
        // The inputs behind the first ones are documents.
        let documents = new.documents.iter().map(|(_, _, json)| json.len());
        let bytes = new.jobs.iter().map(|job| job.input.len()).chain(documents).sum();
        self.submit(AckLevel::Durable, WriteKind::Add(Box::new(Adding { new, pending })), bytes, answer)
    }

    pub(crate) fn write<T: Send + 'static>(
        &self,
        subjects: Subjects,
        level: AckLevel,
        work: impl Fn(&mut PgTxn<'_>) -> Result<T> + Send + 'static,
    ) -> StoreFuture<T> {
        self.write_sized(0, subjects, level, work)
    }

    /// Submits a write with the approximate number of bytes that it sends to the database.
    pub(crate) fn write_sized<T: Send + 'static>(
        &self,
        bytes: usize,
        subjects: Subjects,
        level: AckLevel,
        work: impl Fn(&mut PgTxn<'_>) -> Result<T> + Send + 'static,
    ) -> StoreFuture<T> {
        let (work, answer) = SingleWrite::new(subjects, work);
        self.submit(level, WriteKind::Other(work), bytes, answer)
    }

    pub(crate) fn decide_document(
        &self,
        kind: DocumentKind,
        id: String,
        rule: DocumentRule,
    ) -> RuleFuture<()> {
        // The lock on the name puts two nodes that read an absent document in order.
        let name = Some(document_name(kind, &id));
        let subjects = Subjects::from(WriteSubject::Note(kind, id.clone()));
        let work = move |txn: &mut PgTxn<'_>| txn.decide_document(kind, &id, &rule);
        let (work, answer) = SingleWrite::new(subjects, work);
        self.submit(AckLevel::Durable, WriteKind::Other(SingleWrite { name, ..work }), 0, answer)
    }

    /// Submits a change of users' keys, with the approximate number of bytes that it sends to the
    /// database.
    pub(crate) fn change_keys(
        &self,
        bytes: usize,
        work: impl Fn(&mut PgTxn<'_>) -> Result<()> + Send + 'static,
    ) -> StoreFuture<()> {
        // These writes share one lock, for which they wait without bound, so none of them is late.
        let (work, answer) = SingleWrite::new(Subjects::default(), work);
        let work = SingleWrite { is_on_keys: true, ..work };
        self.submit(AckLevel::Durable, WriteKind::Other(work), bytes, answer)
    }

    /// Submits a write. The write takes its place in the order before this returns.
    fn submit<T: Send + 'static>(
        &self,
        level: AckLevel,
        work: WriteKind,
        bytes: usize,
        answer: oneshot::Receiver<Result<T, StoreError>>,
    ) -> StoreFuture<T> {
        let mut state = self.0.locked();
        state.waiting.push(PgWrite { level, work, bytes });
        let is_wanted = state.waiting.len() >= state.wanted;
        drop(state);
        count_submitted_write();
        if is_wanted {
            self.0.submitted.notify_one();
        }
        Box::pin(async move { answer.await.map_err(|_| StoreError("the store has stopped".into()))? })
    }
}

impl Drop for PgWriteHandle {
    fn drop(&mut self) {
        self.0.locked().is_closed = true;
        self.0.submitted.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use agenix_protocol::{
        ids::{ActionId, JobId, PlanId},
        time::Timestamp,
    };
    use agenix_rules::{
        action::Action,
        job::{NewJob, RuleOutcome},
    };

    use super::{Pace, PgQueue, PgWriteHandle, Subjects};
    use crate::store::{
        AckLevel, DocumentKind, NewAction, ReportedResults, postgres::txn::jobs::JobDecision,
    };

    /// Takes at most `most` writes or 100 bytes for each of `count` batches, and returns the
    /// numbers of writes.
    fn taken(queue: &PgQueue, most: usize, count: usize) -> Vec<usize> {
        let take = || queue.take(most, 100, Some(Duration::ZERO), &mut Pace::default());
        std::iter::from_fn(|| take().map(|taken| taken.len())).take(count).collect()
    }

    fn report(handle: &PgWriteHandle, bytes: usize) {
        let job_id = JobId::new("a-0").unwrap();
        let json = "x".repeat(bytes);
        let results = Some(ReportedResults::without_blobs(json));
        let decision = JobDecision { job_id, results, rule: Box::new(|_| Ok(RuleOutcome::Unchanged)) };
        drop(handle.decide(AckLevel::Durable, decision));
    }

    #[test]
    fn take_bounds_a_batch_by_bytes_and_by_writes() {
        let queue = Arc::new(PgQueue::default());
        let handle = PgWriteHandle(Arc::clone(&queue));
        for bytes in [60, 30, 20, 500, 0, 0] {
            report(&handle, bytes);
        }
        // A write that is larger than the bound is taken alone, and no write is left out.
        assert_eq!(taken(&queue, 2, 5), [2, 1, 1, 2, 0]);
    }

    #[test]
    fn take_counts_the_bytes_of_keys_and_of_other_writes() {
        let queue = Arc::new(PgQueue::default());
        let handle = PgWriteHandle(Arc::clone(&queue));
        for bytes in [60, 30, 20] {
            drop(handle.change_keys(bytes, |_| Ok(())));
        }
        drop(handle.write_sized(90, Subjects::default(), AckLevel::Durable, |_| Ok(())));
        assert_eq!(taken(&queue, 10, 4), [2, 1, 1, 0]);
    }

    #[test]
    fn take_counts_the_documents_of_a_new_action() {
        let queue = Arc::new(PgQueue::default());
        let handle = PgWriteHandle(Arc::clone(&queue));
        for id in ["a", "b"] {
            let action = Action::new(ActionId::new(id).unwrap(), PlanId::new("p").unwrap(), Timestamp(0));
            let job = NewJob { job_id: JobId::new("a-0").unwrap(), input: "x".repeat(10).into(), own: None };
            let documents = vec![(DocumentKind::Inputs, id.to_owned(), "x".repeat(90))];
            drop(handle.add(NewAction { documents, ..NewAction::new(action, vec![job]) }));
        }
        assert_eq!(taken(&queue, 10, 3), [1, 1, 0]);
    }

    #[test]
    fn take_returns_after_the_pause_and_at_the_end() {
        let queue = Arc::new(PgQueue::default());
        let handle = PgWriteHandle(Arc::clone(&queue));
        assert!(
            queue
                .take(2, 100, Some(Duration::ZERO), &mut Pace::default())
                .is_some_and(|taken| taken.is_empty())
        );
        drop(handle);
        assert!(queue.take(2, 100, Some(Duration::ZERO), &mut Pace::default()).is_none());
        assert!(queue.take(2, 100, None, &mut Pace::default()).is_none());
    }
}
