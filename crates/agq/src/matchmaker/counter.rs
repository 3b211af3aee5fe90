//! The way to the matchmaker of jobs: whoever comes while nobody waits is served on the spot.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tokio::sync::mpsc;

use super::{Handed, gone, jobs::Order};
use crate::{
    clock::Clock,
    store::{Answer, Claim, Claimant, Store, StoreError},
};

/// What several claimants got, each in its turn.
pub(super) type Claims = Answer<Vec<Option<Claim>>>;

/// Where claimants come.
#[derive(Clone)]
pub(super) struct Counter {
    store: Arc<dyn Store>,
    clock: Clock,
    start_timeout_ms: u64,
    orders: mpsc::UnboundedSender<Order>,
    back: mpsc::UnboundedSender<Claim>,
    /// How many wait.
    queue: Arc<AtomicUsize>,
}

/// What the matchmaker has at its end.
pub(super) struct Desk {
    pub(super) store: Arc<dyn Store>,
    pub(super) clock: Clock,
    pub(super) start_timeout_ms: u64,
    pub(super) orders: mpsc::UnboundedReceiver<Order>,
    pub(super) back: mpsc::UnboundedSender<Claim>,
    pub(super) returned: mpsc::UnboundedReceiver<Claim>,
    pub(super) queue: Arc<AtomicUsize>,
}

impl Counter {
    pub(super) fn new(store: &Arc<dyn Store>, clock: &Clock, start_timeout_ms: u64) -> (Self, Desk) {
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
        };
        (counter, Desk { store, clock, start_timeout_ms, orders: ordered, back, returned, queue })
    }

    pub(super) fn send(&self, order: Order) -> Result<(), StoreError> {
        self.orders.send(order).map_err(|_| gone())
    }

    /// Whether others came before and wait.
    pub(super) fn has_queue(&self) -> bool {
        self.queue.load(Ordering::Relaxed) > 0
    }

    /// A job that is there. Where others wait, they come first: ask before.
    pub(super) async fn claim_at_once(
        &self,
        claimant: &Claimant,
    ) -> Result<Option<Handed<Claim>>, StoreError> {
        let claims = self.store.claim(vec![claimant.clone()], self.clock.now(), self.start_timeout_ms);
        let mut underway = Underway { claims: Some(claims), orders: &self.orders };
        let claims = match &mut underway.claims {
            Some(claims) => claims.await,
            None => return Ok(None),
        };
        underway.claims = None;
        let claim = claims?.pop().flatten();
        Ok(claim.map(|claim| Handed::new(claim, self.back.clone())))
    }
}

/// A claim on its way. Whoever made it may go away: what comes of it goes back then.
struct Underway<'c> {
    claims: Option<Claims>,
    orders: &'c mpsc::UnboundedSender<Order>,
}

impl Drop for Underway<'_> {
    fn drop(&mut self) {
        if let Some(claims) = self.claims.take() {
            // Without a matchmaker agq is stopping.
            let _stopping = self.orders.send(Order::Abandoned(claims));
        }
    }
}
