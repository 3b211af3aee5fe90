//! Long polling of jobs: claims ready jobs for the waiting claimants, in one write, first come,
//! first served.

use std::{
    collections::VecDeque,
    mem::take,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use agenix_protocol::time::Timestamp;
use agenix_rules::job;
use tokio::sync::{mpsc, oneshot};
use tracing::warn;

use super::{Handoff, gone};
use crate::{
    clock::Clock,
    store::{AckLevel, Claim, Claimant, GroupCommit, Store, StoreError, StoreFuture},
};

/// Claimant that waits for a job.
pub(super) struct JobWaiter {
    pub(super) number: u64,
    /// Set if the claimant does not wait: it gets a job that is ready now, or nothing.
    pub(super) no_wait: bool,
    pub(super) claimant: Claimant,
    pub(super) reply: oneshot::Sender<Result<Option<Handoff<Claim>>, StoreError>>,
}

/// Request to the task that matches jobs with waiters.
pub(super) enum JobRequest {
    /// Adds a waiter.
    Enqueue(JobWaiter),
    /// Removes the waiter with this number, because its time is over.
    Remove(u64),
    /// Removes all waiters of this holder.
    Evict(Arc<str>),
    /// Returns the jobs of a claim whose caller is gone.
    Abandoned(ClaimsFuture),
}

/// Future result of one write that claims for several claimants, in their order.
type ClaimsFuture = StoreFuture<Vec<Option<Claim>>>;

/// Maximum number of recorded evictions.
const MAX_EVICTIONS: usize = 1000;

/// Handle by which commands claim jobs and enqueue waiters.
#[derive(Clone)]
pub(super) struct JobWaiters {
    store: Arc<dyn Store>,
    clock: Clock,
    start_timeout_ms: u64,
    requests: mpsc::UnboundedSender<JobRequest>,
    back: mpsc::UnboundedSender<Claim>,
    /// Number of waiters.
    queue: Arc<AtomicUsize>,
    evictions: Arc<Mutex<Evictions>>,
}

/// Recently evicted holders.
///
/// A claimant checks the evictions before it starts waiting, because it may have been evicted while
/// its immediate claim was in flight.
#[derive(Default)]
struct Evictions {
    /// Number of evictions since the start.
    count: u64,
    /// Holders of the latest evictions, the oldest first.
    latest: VecDeque<Arc<str>>,
}

impl Evictions {
    /// Returns true if `holder` was evicted after the eviction counter was at `count`. Evictions
    /// older than `latest` count as a match.
    fn has_since(&self, count: u64, holder: &str) -> bool {
        let new = usize::try_from(self.count - count).unwrap_or(usize::MAX);
        new > self.latest.len() || self.latest.iter().rev().take(new).any(|gone| **gone == *holder)
    }
}

/// Inputs of the task that matches jobs with waiters.
pub(super) struct WaiterInputs {
    pub(super) store: Arc<dyn Store>,
    pub(super) group_commit: Option<Arc<GroupCommit>>,
    pub(super) clock: Clock,
    pub(super) start_timeout_ms: u64,
    pub(super) requests: mpsc::UnboundedReceiver<JobRequest>,
    pub(super) back: mpsc::UnboundedSender<Claim>,
    pub(super) returned: mpsc::UnboundedReceiver<Claim>,
    pub(super) queue: Arc<AtomicUsize>,
}

impl JobWaiters {
    pub(super) fn new(
        store: &Arc<dyn Store>,
        group_commit: Option<Arc<GroupCommit>>,
        clock: &Clock,
        start_timeout_ms: u64,
    ) -> (Self, WaiterInputs) {
        let (requests, received) = mpsc::unbounded_channel();
        let (back, returned) = mpsc::unbounded_channel();
        let (store, clock, queue) = (Arc::clone(store), clock.clone(), Arc::default());
        let handle = Self {
            store: Arc::clone(&store),
            clock: clock.clone(),
            start_timeout_ms,
            requests,
            back: back.clone(),
            queue: Arc::clone(&queue),
            evictions: Arc::default(),
        };
        let requests = received;
        (
            handle,
            WaiterInputs { store, group_commit, clock, start_timeout_ms, requests, back, returned, queue },
        )
    }

    pub(super) fn send(&self, request: JobRequest) -> Result<(), StoreError> {
        self.requests.send(request).map_err(|_| gone())
    }

    /// Returns the number of evictions since the start.
    pub(super) fn evictions(&self) -> u64 {
        self.locked().count
    }

    /// Evicts all waiters of `holder`.
    pub(super) fn evict(&self, holder: Arc<str>) {
        let mut evictions = self.locked();
        evictions.count += 1;
        evictions.latest.push_back(Arc::clone(&holder));
        if evictions.latest.len() > MAX_EVICTIONS {
            evictions.latest.pop_front();
        }
        // A closed channel means that nobody waits any more.
        let _stopping = self.send(JobRequest::Evict(holder));
    }

    /// Enqueues a waiter. Returns false if the holder of the waiter has been evicted since the
    /// counter was at `count`.
    pub(super) fn enqueue(&self, waiter: JobWaiter, count: u64) -> Result<bool, StoreError> {
        // Keep the lock until the request is sent, so that no eviction comes in between.
        let evictions = self.locked();
        if evictions.has_since(count, &waiter.claimant.holder) {
            return Ok(false);
        }
        self.send(JobRequest::Enqueue(waiter))?;
        Ok(true)
    }

    fn locked(&self) -> MutexGuard<'_, Evictions> {
        self.evictions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if other claimants wait.
    pub(super) fn has_queue(&self) -> bool {
        self.queue.load(Ordering::Relaxed) > 0
    }

    /// Claims at most `count` jobs that are ready now.
    ///
    /// Waiters come first: check [`Self::has_queue`] before this call.
    pub(super) async fn claim(
        &self,
        claimant: &Claimant,
        count: usize,
    ) -> Result<Vec<Handoff<Claim>>, StoreError> {
        let claimants = vec![claimant.clone(); count];
        let claims = self.store.claim(claimants, self.clock.now(), self.start_timeout_ms);
        let mut in_flight = ClaimInFlight { claims: Some(claims), requests: &self.requests };
        let claims = match &mut in_flight.claims {
            Some(claims) => claims.await,
            None => return Ok(Vec::new()),
        };
        in_flight.claims = None;
        Ok(claims?.into_iter().flatten().map(|claim| Handoff::new(claim, self.back.clone())).collect())
    }
}

/// Claim whose write is in flight. If the claim is dropped before the result arrives, the claimed
/// jobs go back to their queues.
struct ClaimInFlight<'c> {
    claims: Option<ClaimsFuture>,
    requests: &'c mpsc::UnboundedSender<JobRequest>,
}

impl Drop for ClaimInFlight<'_> {
    fn drop(&mut self) {
        if let Some(claims) = self.claims.take() {
            // A closed channel means that agq is stopping.
            let _stopping = self.requests.send(JobRequest::Abandoned(claims));
        }
    }
}

pub(super) async fn run(inputs: WaiterInputs) {
    let WaiterInputs {
        store,
        group_commit,
        clock,
        start_timeout_ms,
        mut requests,
        back,
        mut returned,
        queue,
    } = inputs;
    let notifier = store.notifier();
    let mut waiting = VecDeque::new();
    loop {
        let mut needs_claim = false;
        tokio::select! {
            biased;
            request = requests.recv() => match request {
                None => return,
                Some(request) => needs_claim |= handle(&*store, &clock, request, &mut waiting).await,
            },
            () = notifier.jobs() => needs_claim = true,
            Some(claim) = returned.recv() => give_back(&*store, &claim, clock.now()),
        }
        while let Ok(request) = requests.try_recv() {
            needs_claim |= handle(&*store, &clock, request, &mut waiting).await;
        }
        while let Ok(claim) = returned.try_recv() {
            give_back(&*store, &claim, clock.now());
        }
        waiting.retain(|waiter: &JobWaiter| !waiter.reply.is_closed());
        // A removed waiter or a returned claim needs no new claim: the return of a job is a change
        // notification of its own.
        queue.store(waiting.len(), Ordering::Relaxed);
        notifier.set_job_interest(!waiting.is_empty());
        if needs_claim && !waiting.is_empty() {
            let claimants = waiting.iter().map(|waiter| waiter.claimant.clone()).collect();
            let claims = store.claim(claimants, clock.now(), start_timeout_ms);
            if let Some(group_commit) = &group_commit {
                group_commit.commit(None).await;
            }
            distribute(claims.await, &mut waiting, &back);
            queue.store(waiting.len(), Ordering::Relaxed);
        }
    }
}

/// Handles a request. Returns true if a waiter was added.
async fn handle(
    store: &dyn Store,
    clock: &Clock,
    request: JobRequest,
    waiting: &mut VecDeque<JobWaiter>,
) -> bool {
    let is_new = matches!(request, JobRequest::Enqueue(_));
    match request {
        JobRequest::Enqueue(waiter) => waiting.push_back(waiter),
        JobRequest::Remove(number) => waiting.retain(|waiter| waiter.number != number),
        JobRequest::Evict(holder) => {
            let (gone, stay) = take(waiting).into_iter().partition(|waiter| waiter.claimant.holder == holder);
            *waiting = stay;
            let gone: VecDeque<JobWaiter> = gone;
            for waiter in gone {
                let _gone_already = waiter.reply.send(Ok(None));
            }
        }
        JobRequest::Abandoned(claims) => {
            for claim in claims.await.into_iter().flatten().flatten() {
                give_back(store, &claim, clock.now());
            }
        }
    }
    is_new
}

/// Sends the result of a claim for all waiters to them. Waiters without a job continue to wait.
fn distribute(
    claims: Result<Vec<Option<Claim>>, StoreError>,
    waiting: &mut VecDeque<JobWaiter>,
    back: &mpsc::UnboundedSender<Claim>,
) {
    match claims {
        Ok(claims) => {
            for (waiter, claim) in take(waiting).into_iter().zip(claims) {
                match claim {
                    None if waiter.no_wait => drop(waiter.reply.send(Ok(None))),
                    None => waiting.push_back(waiter),
                    // If the waiter is gone, `send` returns the handoff in its error. The drop
                    // gives the job back.
                    Some(claim) => drop(waiter.reply.send(Ok(Some(Handoff::new(claim, back.clone()))))),
                }
            }
        }
        Err(error) => {
            for waiter in waiting.drain(..) {
                let _gone = waiter.reply.send(Err(error.clone()));
            }
        }
    }
}

/// Returns the job of a claim that nobody received to its queue.
fn give_back(store: &dyn Store, claim: &Claim, now: Timestamp) {
    let (holder, attempt) = (claim.job.holder.clone().unwrap_or_default(), claim.job.attempt);
    warn!(job_id = %claim.job.job_id, holder, "the client is gone; its job goes back to the queue");
    let rule = move |job: Option<&job::Job>| {
        Ok(job.map_or(job::RuleOutcome::Unchanged, |job| job::given_back(job, &holder, Some(attempt), now)))
    };
    // The store keeps the order of writes. Nobody waits for the result.
    drop(store.decide(&claim.job.job_id, AckLevel::Applied, None, Box::new(rule)));
}

#[cfg(test)]
mod tests {
    use super::Evictions;

    #[test]
    fn has_since_finds_later_evictions_and_matches_forgotten_ones() {
        let evictions = Evictions { count: 5, latest: ["a".into(), "b".into()].into() };
        assert!(evictions.has_since(4, "b") && !evictions.has_since(4, "a") && !evictions.has_since(5, "b"));
        assert!(evictions.has_since(3, "a") && !evictions.has_since(3, "c"));
        assert!(evictions.has_since(2, "c"));
    }
}
