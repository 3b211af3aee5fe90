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
    store::{AckLevel, Claim, Claimant, Store, StoreError, StoreFuture, at_once},
};

/// Claimant that waits for a job.
pub(super) struct JobWaiter {
    pub(super) number: u64,
    /// Set if the claimant does not wait: it gets a job that is ready now, or nothing.
    pub(super) is_passing: bool,
    pub(super) claimant: Claimant,
    pub(super) give: oneshot::Sender<Result<Option<Handoff<Claim>>, StoreError>>,
}

/// Request to the task that matches jobs with waiters.
pub(super) enum JobRequest {
    /// Adds a waiter.
    Park(JobWaiter),
    /// Removes the waiter with this number, because its time is over.
    Leave(u64),
    /// Removes all waiters of this holder.
    Dismiss(Arc<str>),
    /// Returns the jobs of a claim whose caller is gone.
    Abandoned(ClaimsFuture),
}

/// Future result of one write that claims for several claimants, in their order.
type ClaimsFuture = StoreFuture<Vec<Option<Claim>>>;

/// Maximum number of evictions that are remembered.
const MOST_DISMISSED: usize = 1000;

/// Handle by which commands claim jobs and enqueue waiters.
#[derive(Clone)]
pub(super) struct JobWaiters {
    store: Arc<dyn Store>,
    clock: Clock,
    start_timeout_ms: u64,
    orders: mpsc::UnboundedSender<JobRequest>,
    back: mpsc::UnboundedSender<Claim>,
    /// Number of waiters.
    queue: Arc<AtomicUsize>,
    dismissed: Arc<Mutex<Evictions>>,
}

/// Recently evicted holders.
///
/// A claimant checks this before it starts waiting, because it may have been evicted while its
/// immediate claim was in flight.
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
    pub(super) clock: Clock,
    pub(super) start_timeout_ms: u64,
    pub(super) orders: mpsc::UnboundedReceiver<JobRequest>,
    pub(super) back: mpsc::UnboundedSender<Claim>,
    pub(super) returned: mpsc::UnboundedReceiver<Claim>,
    pub(super) queue: Arc<AtomicUsize>,
}

impl JobWaiters {
    pub(super) fn new(store: &Arc<dyn Store>, clock: &Clock, start_timeout_ms: u64) -> (Self, WaiterInputs) {
        let (orders, ordered) = mpsc::unbounded_channel();
        let (back, returned) = mpsc::unbounded_channel();
        let (store, clock, queue) = (Arc::clone(store), clock.clone(), Arc::default());
        let counter = Self {
            store: Arc::clone(&store),
            clock: clock.clone(),
            start_timeout_ms,
            orders,
            back: back.clone(),
            queue: Arc::clone(&queue),
            dismissed: Arc::default(),
        };
        (counter, WaiterInputs { store, clock, start_timeout_ms, orders: ordered, back, returned, queue })
    }

    pub(super) fn send(&self, order: JobRequest) -> Result<(), StoreError> {
        self.orders.send(order).map_err(|_| gone())
    }

    /// Returns the number of evictions since the start.
    pub(super) fn evictions(&self) -> u64 {
        self.locked().count
    }

    /// Evicts all waiters of `holder`.
    pub(super) fn evict(&self, holder: Arc<str>) {
        let mut dismissed = self.locked();
        dismissed.count += 1;
        dismissed.latest.push_back(Arc::clone(&holder));
        if dismissed.latest.len() > MOST_DISMISSED {
            dismissed.latest.pop_front();
        }
        // A closed channel means that nobody waits any more.
        let _stopping = self.send(JobRequest::Dismiss(holder));
    }

    /// Enqueues a waiter. Returns false if its holder has been evicted since the counter was at
    /// `dismissals`.
    pub(super) fn enqueue(&self, ticket: JobWaiter, dismissals: u64) -> Result<bool, StoreError> {
        // Keep the lock until the request is sent, so that no eviction comes in between.
        let dismissed = self.locked();
        if dismissed.has_since(dismissals, &ticket.claimant.holder) {
            return Ok(false);
        }
        self.send(JobRequest::Park(ticket))?;
        Ok(true)
    }

    fn locked(&self) -> MutexGuard<'_, Evictions> {
        self.dismissed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if other claimants wait.
    pub(super) fn has_queue(&self) -> bool {
        self.queue.load(Ordering::Relaxed) > 0
    }

    /// Claims a job that is ready now.
    ///
    /// Waiters come first: check [`Self::has_queue`] before this call.
    pub(super) async fn claim_at_once(
        &self,
        claimant: &Claimant,
    ) -> Result<Option<Handoff<Claim>>, StoreError> {
        Ok(self.claim_many(claimant, 1).await?.pop())
    }

    /// Claims at most `count` jobs that are ready now; see [`Self::claim_at_once`].
    pub(super) async fn claim_many(
        &self,
        claimant: &Claimant,
        count: usize,
    ) -> Result<Vec<Handoff<Claim>>, StoreError> {
        let claimants = vec![claimant.clone(); count];
        let claims = self.store.claim(claimants, self.clock.now(), self.start_timeout_ms);
        let mut underway = ClaimInFlight { claims: Some(claims), orders: &self.orders };
        let claims = match &mut underway.claims {
            Some(claims) => claims.await,
            None => return Ok(Vec::new()),
        };
        underway.claims = None;
        Ok(claims?.into_iter().flatten().map(|claim| Handoff::new(claim, self.back.clone())).collect())
    }
}

/// Claim whose write is in flight. If it is dropped before the result arrives, the claimed jobs go
/// back to their queues.
struct ClaimInFlight<'c> {
    claims: Option<ClaimsFuture>,
    orders: &'c mpsc::UnboundedSender<JobRequest>,
}

impl Drop for ClaimInFlight<'_> {
    fn drop(&mut self) {
        if let Some(claims) = self.claims.take() {
            // A closed channel means that agq is stopping.
            let _stopping = self.orders.send(JobRequest::Abandoned(claims));
        }
    }
}

pub(super) async fn run(desk: WaiterInputs) {
    let WaiterInputs { store, clock, start_timeout_ms, mut orders, back, mut returned, queue } = desk;
    let notifier = store.notifier();
    let mut waiting = VecDeque::new();
    loop {
        let mut is_due = false;
        tokio::select! {
            biased;
            order = orders.recv() => match order {
                None => return,
                Some(order) => is_due |= handle(&*store, order, &mut waiting).await,
            },
            () = notifier.jobs() => is_due = true,
            Some(claim) = returned.recv() => give_back(&*store, &claim),
        }
        while let Ok(order) = orders.try_recv() {
            is_due |= handle(&*store, order, &mut waiting).await;
        }
        while let Ok(claim) = returned.try_recv() {
            give_back(&*store, &claim);
        }
        waiting.retain(|ticket: &JobWaiter| !ticket.give.is_closed());
        // A removed waiter or a returned claim needs no new claim: the return of a job is a change
        // notification of its own.
        queue.store(waiting.len(), Ordering::Relaxed);
        notifier.set_job_interest(!waiting.is_empty());
        if is_due {
            serve(&*store, clock.now(), start_timeout_ms, &mut waiting, &back).await;
            queue.store(waiting.len(), Ordering::Relaxed);
        }
    }
}

/// Handles a request. Returns true if a waiter was added.
async fn handle(store: &dyn Store, order: JobRequest, waiting: &mut VecDeque<JobWaiter>) -> bool {
    let comes = matches!(order, JobRequest::Park(_));
    match order {
        JobRequest::Park(ticket) => waiting.push_back(ticket),
        JobRequest::Leave(number) => waiting.retain(|ticket| ticket.number != number),
        JobRequest::Dismiss(holder) => {
            let (gone, stay) = take(waiting).into_iter().partition(|ticket| ticket.claimant.holder == holder);
            *waiting = stay;
            let gone: VecDeque<JobWaiter> = gone;
            for ticket in gone {
                let _gone_already = ticket.give.send(Ok(None));
            }
        }
        JobRequest::Abandoned(claims) => {
            for claim in claims.await.into_iter().flatten().flatten() {
                give_back(store, &claim);
            }
        }
    }
    comes
}

async fn serve(
    store: &dyn Store,
    now: Timestamp,
    start_timeout_ms: u64,
    waiting: &mut VecDeque<JobWaiter>,
    back: &mpsc::UnboundedSender<Claim>,
) {
    if waiting.is_empty() {
        return;
    }
    let mut claimants = waiting.iter().map(|ticket| ticket.claimant.clone()).collect();
    let mut claims = None;
    at_once(store, None, &mut || claims = Some(store.claim(take(&mut claimants), now, start_timeout_ms)))
        .await;
    let Some(claims) = claims else { return };
    match claims.await {
        Ok(claims) => {
            for (ticket, claim) in take(waiting).into_iter().zip(claims) {
                match claim {
                    None if ticket.is_passing => drop(ticket.give.send(Ok(None))),
                    None => waiting.push_back(ticket),
                    // If the waiter is gone, `send` returns the handoff in its error. The drop
                    // gives the job back.
                    Some(claim) => drop(ticket.give.send(Ok(Some(Handoff::new(claim, back.clone()))))),
                }
            }
        }
        Err(error) => {
            for ticket in waiting.drain(..) {
                let _gone = ticket.give.send(Err(error.clone()));
            }
        }
    }
}

/// Returns the job of a claim that nobody received to its queue.
fn give_back(store: &dyn Store, claim: &Claim) {
    let (holder, attempt) = (claim.job.holder.clone().unwrap_or_default(), claim.job.attempt);
    warn!(job_id = %claim.job.job_id, holder, "the claimant has gone; its job goes back");
    let rule = move |job: Option<&job::Job>| {
        Ok(job.map_or(job::RuleOutcome::Unchanged, |job| job::given_back(job, &holder, Some(attempt))))
    };
    // The store keeps the order of writes. Nobody waits for the result.
    drop(store.decide(&claim.job.job_id, AckLevel::Visible, None, Box::new(rule)));
}

#[cfg(test)]
mod tests {
    use super::Evictions;

    #[test]
    fn has_since_finds_later_evictions_and_matches_forgotten_ones() {
        let dismissed = Evictions { count: 5, latest: ["a".into(), "b".into()].into() };
        assert!(dismissed.has_since(4, "b") && !dismissed.has_since(4, "a") && !dismissed.has_since(5, "b"));
        assert!(dismissed.has_since(3, "a") && !dismissed.has_since(3, "c"));
        assert!(dismissed.has_since(2, "c"));
    }
}
