//! The way to the matchmaker of jobs: whoever comes while nobody waits is served on the spot.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::sync::mpsc;

use super::{
    Handoff, gone,
    jobs::{JobRequest, JobWaiter},
};
use crate::{
    clock::Clock,
    store::{Claim, Claimant, Store, StoreError, StoreFuture},
};

/// What several claimants got, each in its turn.
pub(super) type ClaimsFuture = StoreFuture<Vec<Option<Claim>>>;

/// How many of those who were sent away are remembered.
const MOST_DISMISSED: usize = 1000;

/// Where claimants come.
#[derive(Clone)]
pub(super) struct JobWaiters {
    store: Arc<dyn Store>,
    clock: Clock,
    start_timeout_ms: u64,
    orders: mpsc::UnboundedSender<JobRequest>,
    back: mpsc::UnboundedSender<Claim>,
    /// How many wait.
    queue: Arc<AtomicUsize>,
    dismissed: Arc<Mutex<Evictions>>,
}

/// Who was sent away lately: whoever tried to claim at once meanwhile, and is about to wait, has not heard of it.
#[derive(Default)]
struct Evictions {
    /// How many ever.
    count: u64,
    /// The last of them.
    latest: VecDeque<Arc<str>>,
}

impl Evictions {
    /// Whether a holder was sent away since there were so many; of what is too long ago nobody knows, and it counts.
    fn has_since(&self, count: u64, holder: &str) -> bool {
        let new = usize::try_from(self.count - count).unwrap_or(usize::MAX);
        new > self.latest.len() || self.latest.iter().rev().take(new).any(|gone| **gone == *holder)
    }
}

/// What the matchmaker has at its end.
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

    /// How many were ever sent away.
    pub(super) fn evictions(&self) -> u64 {
        self.locked().count
    }

    /// Sends away everyone who waits in a name.
    pub(super) fn evict(&self, holder: Arc<str>) {
        let mut dismissed = self.locked();
        dismissed.count += 1;
        dismissed.latest.push_back(Arc::clone(&holder));
        if dismissed.latest.len() > MOST_DISMISSED {
            dismissed.latest.pop_front();
        }
        // Without a matchmaker nobody waits.
        let _stopping = self.send(JobRequest::Dismiss(holder));
    }

    /// Lets somebody wait who came when so many had been sent away; `false` where it is among those who were since.
    pub(super) fn enqueue(&self, ticket: JobWaiter, dismissals: u64) -> Result<bool, StoreError> {
        // Locked until it is said: nobody is sent away in between.
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

    /// Whether others came before and wait.
    pub(super) fn has_queue(&self) -> bool {
        self.queue.load(Ordering::Relaxed) > 0
    }

    /// A job that is there. Where others wait, they come first: ask before.
    pub(super) async fn claim_at_once(
        &self,
        claimant: &Claimant,
    ) -> Result<Option<Handoff<Claim>>, StoreError> {
        Ok(self.claim_many(claimant, 1).await?.pop())
    }

    /// As many jobs as are there, at most `count`; see [`Self::claim_at_once`].
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

/// A claim on its way. Whoever made it may go away: what comes of it goes back then.
struct ClaimInFlight<'c> {
    claims: Option<ClaimsFuture>,
    orders: &'c mpsc::UnboundedSender<JobRequest>,
}

impl Drop for ClaimInFlight<'_> {
    fn drop(&mut self) {
        if let Some(claims) = self.claims.take() {
            // Without a matchmaker agq is stopping.
            let _stopping = self.orders.send(JobRequest::Abandoned(claims));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Evictions;

    #[test]
    fn whoever_was_sent_away_meanwhile_is_known_and_what_is_too_long_ago_counts() {
        let dismissed = Evictions { count: 5, latest: ["a".into(), "b".into()].into() };
        assert!(dismissed.has_since(4, "b") && !dismissed.has_since(4, "a") && !dismissed.has_since(5, "b"));
        assert!(dismissed.has_since(3, "a") && !dismissed.has_since(3, "c"));
        assert!(dismissed.has_since(2, "c"));
    }
}
