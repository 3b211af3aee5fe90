//! Who waits for what. Only this lives in memory alone: everything else is in the store (design, decision 1).
//!
//! Callers leave a ticket and wait for their turn; first come, first served. Whatever is handed over to someone who
//! has gone meanwhile goes back at once.

mod handoff;
mod jobs;
mod lists;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use agenix_protocol::request::{BlockingPop, BlockingWait, ListEnd};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::sync::{mpsc, oneshot};

pub(crate) use crate::waiters::handoff::Handoff;

use crate::{
    clock::Clock,
    store::{Claim, Claimant, RuleResult, Store, StoreError},
    waiters::jobs::JobWaiters,
};

/// What goes on until it is dropped.
pub(crate) type BackgroundTask = BoxFuture<'static, ()>;

/// The front of the matchmakers: one for jobs, one for the elements of lists.
#[derive(Clone)]
pub(crate) struct Waiters {
    clock: Clock,
    jobs: JobWaiters,
    elements: mpsc::UnboundedSender<lists::ListRequest>,
    next_ticket: Arc<AtomicU64>,
}

impl Waiters {
    /// The matchmakers, and their work: it ends when the last `Matchmaker` is dropped.
    pub(crate) fn new(
        store: &Arc<dyn Store>,
        clock: &Clock,
        start_timeout_ms: u64,
    ) -> (Self, [BackgroundTask; 2]) {
        let (jobs, orders) = JobWaiters::new(store, clock, start_timeout_ms);
        let (elements, tickets) = mpsc::unbounded_channel();
        let matching: BackgroundTask = Box::pin(jobs::run(orders));
        let giving: BackgroundTask = Box::pin(lists::run(Arc::clone(store), clock.clone(), tickets));
        (Self { jobs, elements, clock: clock.clone(), next_ticket: Arc::default() }, [matching, giving])
    }

    /// How many were ever sent away: to be asked before it is looked who a claimant is.
    pub(crate) fn evictions(&self) -> u64 {
        self.jobs.evictions()
    }

    /// Waits for a job that the claimant can run; of those that are there, it gets at most so many. None when the time is over, or
    /// the claimant was sent away, if only since so many had been.
    pub(crate) async fn jobs(
        &self,
        claimant: Claimant,
        dismissals: u64,
        wait: BlockingWait,
        most: usize,
    ) -> Result<Vec<Handoff<Claim>>, StoreError> {
        if !self.jobs.has_queue() {
            let given = self.jobs.claim_many(&claimant, most).await?;
            if !given.is_empty() {
                return Ok(given);
            }
        }
        let (number, (give, get)) = (self.ticket_number(), oneshot::channel());
        let ticket = jobs::JobWaiter { number, is_passing: false, claimant, give };
        if !self.jobs.enqueue(ticket, dismissals)? {
            return Ok(Vec::new());
        }
        let leave = || drop(self.jobs.send(jobs::JobRequest::Leave(number)));
        Ok(await_turn(&self.clock, get, wait, leave).await.transpose()?.flatten().into_iter().collect())
    }

    /// A job that is there now. It is handed over as one that was waited for: a claimant may go away meanwhile.
    pub(crate) async fn job_now(&self, claimant: Claimant) -> Result<Option<Handoff<Claim>>, StoreError> {
        if !self.jobs.has_queue() {
            return self.jobs.claim_at_once(&claimant).await;
        }
        let (number, (give, get)) = (self.ticket_number(), oneshot::channel());
        self.jobs.send(jobs::JobRequest::Park(jobs::JobWaiter {
            number,
            is_passing: true,
            claimant,
            give,
        }))?;
        get.await.map_err(|_| gone())?
    }

    /// As many jobs as are there now, at most `count`.
    pub(crate) async fn jobs_now(
        &self,
        claimant: &Claimant,
        count: usize,
    ) -> Result<Vec<Handoff<Claim>>, StoreError> {
        if !self.jobs.has_queue() {
            return self.jobs.claim_many(claimant, count).await;
        }
        let mut jobs = Vec::new();
        while jobs.len() < count
            && let Some(job) = self.job_now(claimant.clone()).await?
        {
            jobs.push(job);
        }
        Ok(jobs)
    }

    /// Sends away everyone who waits for a job in the name of a holder that is no more.
    pub(crate) fn evict(&self, holder: &str) {
        self.jobs.evict(holder.into());
    }

    /// Waits for an element of a list, and moves it where it is to be moved; `None` when the time is over.
    pub(crate) async fn element(
        &self,
        pop: BlockingPop,
    ) -> Result<RuleResult<Option<Handoff<Element>>>, StoreError> {
        let (wait, number, (give, get)) = (pop.timeout, self.ticket_number(), oneshot::channel());
        let ticket = lists::ListWaiter { number, pop, give };
        self.elements.send(lists::ListRequest::Park(ticket)).map_err(|_| gone())?;
        let leave = || drop(self.elements.send(lists::ListRequest::Leave(number)));
        Ok(await_turn(&self.clock, get, wait, leave).await.transpose()?.transpose())
    }

    fn ticket_number(&self) -> u64 {
        self.next_ticket.fetch_add(1, Ordering::Relaxed)
    }
}

/// An element that was taken from a list.
#[derive(Debug)]
pub(crate) struct Element {
    pub(crate) key: Bytes,
    pub(crate) value: Bytes,
    /// The end of the list that it goes back to when nobody receives it; none where it was moved to another list.
    pub(crate) back_to: Option<ListEnd>,
}

fn gone() -> StoreError {
    StoreError("agq is stopping".into())
}

/// Waits for a turn. Whose time is over leaves, and does not go before the matchmaker has seen that: what was on its way to it
/// is received, and not taken from the store for nobody.
async fn await_turn<T>(
    clock: &Clock,
    mut get: oneshot::Receiver<Result<T, StoreError>>,
    wait: BlockingWait,
    leave: impl FnOnce(),
) -> Option<Result<T, StoreError>> {
    let lost = |_| Err(gone());
    match wait {
        BlockingWait::Forever => Some(get.await.unwrap_or_else(lost)),
        BlockingWait::Ms(ms) => {
            if let Some(given) = clock.within(Duration::from_millis(ms), &mut get).await {
                return Some(given.unwrap_or_else(lost));
            }
            leave();
            get.await.ok()
        }
    }
}

#[cfg(test)]
mod tests {
    use agenix_protocol::request::BlockingWait;
    use tokio::sync::oneshot;

    use super::await_turn;
    use crate::{clock::Clock, store::StoreError};

    #[tokio::test]
    async fn a_wait_ends_without_anything_after_its_time() {
        let (give, get) = oneshot::channel::<Result<(), StoreError>>();
        assert!(await_turn(&Clock::default(), get, BlockingWait::Ms(1), || drop(give)).await.is_none());
    }

    #[tokio::test]
    async fn what_is_on_its_way_when_the_time_is_over_is_received() {
        let (give, get) = oneshot::channel();
        let leave = || assert!(give.send(Ok(7)).is_ok());
        assert_eq!(await_turn(&Clock::default(), get, BlockingWait::Ms(1), leave).await.unwrap().unwrap(), 7);
    }

    #[tokio::test]
    async fn what_is_handed_over_in_time_is_received() {
        let (give, get) = oneshot::channel::<Result<u8, StoreError>>();
        assert!(give.send(Ok(7)).is_ok());
        assert_eq!(
            await_turn(&Clock::default(), get, BlockingWait::Ms(1000), || {}).await.unwrap().unwrap(),
            7
        );
    }
}
