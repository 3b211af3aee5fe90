//! Who waits for what. Only this lives in memory alone: everything else is in the store (design, decision 1).
//!
//! Callers leave a ticket and wait for their turn; first come, first served. Whatever is handed over to someone who
//! has gone meanwhile goes back at once.

mod elements;
mod handed;
mod jobs;

use std::sync::Arc;

use agenix_protocol::request::Wait;
use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};

pub(crate) use handed::Handed;

use crate::{
    clock::Clock,
    store::{Claim, Claimant, Ruled, Store, StoreError},
};

/// The front of the matchmakers: one for jobs, one for the elements of lists.
#[derive(Clone)]
pub(crate) struct Matchmaker {
    jobs: mpsc::UnboundedSender<jobs::Order>,
    elements: mpsc::UnboundedSender<elements::Ticket>,
}

impl Matchmaker {
    /// Starts the matchmakers; they end when the last `Matchmaker` is dropped.
    pub(crate) fn start(store: &Arc<dyn Store>) -> Self {
        let (jobs, job_tickets) = mpsc::unbounded_channel();
        let (elements, element_tickets) = mpsc::unbounded_channel();
        tokio::spawn(jobs::run(Arc::clone(store), Clock::default(), job_tickets));
        tokio::spawn(elements::run(Arc::clone(store), element_tickets));
        Self { jobs, elements }
    }

    /// Waits for a job that the claimant can run; `None` when the time is over, or the claimant was sent away.
    pub(crate) async fn job(
        &self,
        claimant: Claimant,
        wait: Wait,
    ) -> Result<Option<Handed<Claim>>, StoreError> {
        let (give, get) = oneshot::channel();
        self.jobs.send(jobs::Order::Park(jobs::Ticket { claimant, give })).map_err(|_| gone())?;
        Ok(await_turn(get, wait).await.transpose()?.flatten())
    }

    /// Sends away everyone who waits for a job in the name of a holder that is no more.
    pub(crate) fn dismiss(&self, holder: &str) {
        // Without a matchmaker nobody waits.
        let _stopping = self.jobs.send(jobs::Order::Dismiss(holder.into()));
    }

    /// Waits for an element of a list; `None` when the time is over.
    pub(crate) async fn element(
        &self,
        key: Bytes,
        wait: Wait,
    ) -> Result<Ruled<Option<Handed<Element>>>, StoreError> {
        let (give, get) = oneshot::channel();
        self.elements.send(elements::Ticket { key, give }).map_err(|_| gone())?;
        Ok(await_turn(get, wait).await.transpose()?.transpose())
    }
}

/// An element that was taken from a list.
#[derive(Debug)]
pub(crate) struct Element {
    pub(crate) key: Bytes,
    pub(crate) value: Bytes,
}

fn gone() -> StoreError {
    StoreError("agq is stopping".into())
}

async fn await_turn<T>(
    mut get: oneshot::Receiver<Result<T, StoreError>>,
    wait: Wait,
) -> Option<Result<T, StoreError>> {
    let lost = |_| Err(gone());
    match wait {
        Wait::Forever => Some(get.await.unwrap_or_else(lost)),
        Wait::Ms(ms) => match tokio::time::timeout(std::time::Duration::from_millis(ms), &mut get).await {
            Ok(given) => Some(given.unwrap_or_else(lost)),
            Err(_elapsed) => {
                // It may have been handed over in this very instant.
                get.close();
                get.try_recv().ok()
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use agenix_protocol::request::Wait;
    use bytes::Bytes;

    use super::{Handed, Matchmaker};
    use crate::store::{Store, redb::RedbStore};

    fn house() -> (Arc<dyn Store>, Matchmaker) {
        let store: Arc<dyn Store> = Arc::new(RedbStore::in_memory().unwrap());
        let matchmaker = Matchmaker::start(&store);
        (store, matchmaker)
    }

    fn key() -> Bytes {
        Bytes::from_static(b"list")
    }

    async fn pop(matchmaker: &Matchmaker, wait: Wait) -> Option<Bytes> {
        matchmaker.element(key(), wait).await.unwrap().unwrap().map(|handed| handed.take().value)
    }

    #[tokio::test]
    async fn waiters_are_served_first_come_first_served() {
        let (store, matchmaker) = house();
        let mut waiters = Vec::new();
        for _ in 0..5 {
            let mut waiter = Box::pin(matchmaker.element(key(), Wait::Forever));
            assert!(futures_util::poll!(&mut waiter).is_pending());
            waiters.push(waiter);
        }
        let values = (0..5).map(|n| Bytes::from(n.to_string())).collect();
        store.push_head(key(), values).await.unwrap().unwrap();
        for (n, waiter) in waiters.into_iter().enumerate() {
            let value = waiter.await.unwrap().unwrap().unwrap().take().value;
            assert_eq!(value, n.to_string());
        }
    }

    #[tokio::test]
    async fn a_wait_ends_without_anything_after_its_time() {
        let (_store, matchmaker) = house();
        assert_eq!(pop(&matchmaker, Wait::Ms(1)).await, None);
    }

    #[tokio::test]
    async fn what_nobody_takes_goes_back() {
        let (store, matchmaker) = house();
        store.push_head(key(), vec![Bytes::from_static(b"v")]).await.unwrap().unwrap();
        let handed: Handed<_> = matchmaker.element(key(), Wait::Forever).await.unwrap().unwrap().unwrap();
        drop(handed);
        assert_eq!(pop(&matchmaker, Wait::Forever).await.unwrap(), "v");
    }
}
