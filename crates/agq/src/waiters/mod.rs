//! Long polling: clients that wait for a job or a list element.
//!
//! A waiting client is a waiter in memory. The queues and lists themselves are in the store (ADR
//! 1). There are two tasks, one for jobs (`jobs`) and one for lists (`lists`). Each task has a
//! queue of waiters in the order of arrival.
//!
//! - A client that finds no waiters tries to claim at once. If nothing is ready, the client
//!   enqueues a waiter with a one-shot channel, and waits on the channel until its time-out.
//! - The task wakes when a waiter arrives, and when the store notifies it of new jobs or elements.
//!   The task claims for all waiters in one write, and sends each claim through the channel of its
//!   waiter.
//! - A client whose time is over removes its waiter, and then waits until the task has confirmed
//!   the removal. A claim that was sent meanwhile is received, and not lost.
//! - Claims and elements are delivered in a [`Handoff`]. If the receiver is gone, the handoff is
//!   dropped, and its content goes back to the queue or list.

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
    store::{Claim, Claimant, GroupCommit, RuleResult, Store, StoreError},
    waiters::jobs::JobWaiters,
};

/// Task that runs until it is dropped.
pub(crate) type BackgroundTask = BoxFuture<'static, ()>;

#[derive(Clone)]
pub(crate) struct Waiters {
    clock: Clock,
    jobs: JobWaiters,
    elements: mpsc::UnboundedSender<lists::ListRequest>,
    next_number: Arc<AtomicU64>,
}

impl Waiters {
    /// The tasks end when the last clone of the handle is dropped.
    pub(crate) fn new(
        store: &Arc<dyn Store>,
        group_commit: Option<Arc<GroupCommit>>,
        clock: &Clock,
        start_timeout_ms: u64,
    ) -> (Self, [BackgroundTask; 2]) {
        let (jobs, inputs) = JobWaiters::new(store, group_commit, clock, start_timeout_ms);
        let (elements, list_requests) = mpsc::unbounded_channel();
        let jobs_task: BackgroundTask = Box::pin(jobs::run(inputs));
        let lists: BackgroundTask = Box::pin(lists::run(Arc::clone(store), clock.clone(), list_requests));
        (Self { jobs, elements, clock: clock.clone(), next_number: Arc::default() }, [jobs_task, lists])
    }

    /// Returns the number of evictions so far. The caller reads the number before it looks up the
    /// claimant, and passes the number to [`Self::jobs`].
    pub(crate) fn evictions(&self) -> u64 {
        self.jobs.evictions()
    }

    /// Returns at most `limit` jobs if they are ready at once, one job after a wait, and nothing if
    /// the time is over, or if the holder has been evicted since the counter was at `evictions`.
    pub(crate) async fn jobs(
        &self,
        claimant: Claimant,
        evictions: u64,
        wait: BlockingWait,
        limit: usize,
    ) -> Result<Vec<Handoff<Claim>>, StoreError> {
        if !self.jobs.has_queue() {
            let claimed = self.jobs.claim(&claimant, limit).await?;
            if !claimed.is_empty() {
                return Ok(claimed);
            }
        }
        let (number, (reply, result)) = (self.next_number(), oneshot::channel());
        let waiter = jobs::JobWaiter { number, no_wait: false, claimant, reply };
        if !self.jobs.enqueue(waiter, evictions)? {
            return Ok(Vec::new());
        }
        let leave = || drop(self.jobs.send(jobs::JobRequest::Remove(number)));
        Ok(await_result(&self.clock, result, wait, leave).await.transpose()?.flatten().into_iter().collect())
    }

    pub(crate) async fn jobs_now(
        &self,
        claimant: &Claimant,
        count: usize,
    ) -> Result<Vec<Handoff<Claim>>, StoreError> {
        if !self.jobs.has_queue() {
            return self.jobs.claim(claimant, count).await;
        }
        let mut jobs = Vec::new();
        while jobs.len() < count {
            let (number, (reply, result)) = (self.next_number(), oneshot::channel());
            let waiter = jobs::JobWaiter { number, no_wait: true, claimant: claimant.clone(), reply };
            self.jobs.send(jobs::JobRequest::Enqueue(waiter))?;
            let Some(job) = result.await.map_err(|_| gone())?? else { break };
            jobs.push(job);
        }
        Ok(jobs)
    }

    /// Evicts all waiters of a holder that was removed.
    pub(crate) fn evict(&self, holder: &str) {
        self.jobs.evict(holder.into());
    }

    /// Moves the element to the destination of `pop`, if there is one. Returns `None` if the time
    /// is over.
    pub(crate) async fn element(
        &self,
        pop: BlockingPop,
    ) -> Result<RuleResult<Option<Handoff<Element>>>, StoreError> {
        let (wait, number, (reply, result)) = (pop.timeout, self.next_number(), oneshot::channel());
        let waiter = lists::ListWaiter { number, pop, reply };
        self.elements.send(lists::ListRequest::Enqueue(waiter)).map_err(|_| gone())?;
        let leave = || drop(self.elements.send(lists::ListRequest::Remove(number)));
        Ok(await_result(&self.clock, result, wait, leave).await.transpose()?.transpose())
    }

    fn next_number(&self) -> u64 {
        self.next_number.fetch_add(1, Ordering::Relaxed)
    }
}

#[derive(Debug)]
pub(crate) struct Element {
    pub(crate) key: Bytes,
    pub(crate) value: Bytes,
    /// `None` if the element was moved to another list.
    pub(crate) back_to: Option<ListEnd>,
}

fn gone() -> StoreError {
    StoreError("agq is stopping".into())
}

/// After the time-out, calls `leave`, and waits until the task has removed the waiter. A result
/// that was sent meanwhile is received, and not given back.
async fn await_result<T>(
    clock: &Clock,
    mut get: oneshot::Receiver<Result<T, StoreError>>,
    wait: BlockingWait,
    leave: impl FnOnce(),
) -> Option<Result<T, StoreError>> {
    let lost = |_| Err(gone());
    match wait {
        BlockingWait::Forever => Some(get.await.unwrap_or_else(lost)),
        BlockingWait::Ms(ms) => {
            if let Some(received) = clock.within(Duration::from_millis(ms), &mut get).await {
                return Some(received.unwrap_or_else(lost));
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

    use super::await_result;
    use crate::{clock::Clock, store::StoreError};

    #[tokio::test]
    async fn await_result_returns_nothing_after_the_time_out() {
        let (reply, result) = oneshot::channel::<Result<(), StoreError>>();
        assert!(await_result(&Clock::default(), result, BlockingWait::Ms(1), || drop(reply)).await.is_none());
    }

    #[tokio::test]
    async fn await_result_receives_a_result_sent_at_the_time_out() {
        let (reply, result) = oneshot::channel();
        let leave = || assert!(reply.send(Ok(7)).is_ok());
        let received = await_result(&Clock::default(), result, BlockingWait::Ms(1), leave).await;
        assert_eq!(received.unwrap().unwrap(), 7);
    }

    #[tokio::test]
    async fn await_result_receives_a_result_in_time() {
        let (reply, result) = oneshot::channel::<Result<u8, StoreError>>();
        assert!(reply.send(Ok(7)).is_ok());
        let received = await_result(&Clock::default(), result, BlockingWait::Ms(1000), || {}).await;
        assert_eq!(received.unwrap().unwrap(), 7);
    }
}
