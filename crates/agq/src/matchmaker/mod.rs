//! Who waits for what. Only this lives in memory alone: everything else is in the store (design, decision 1).
//!
//! Callers leave a ticket and wait for their turn; first come, first served. Whatever is handed over to someone who
//! has gone meanwhile goes back at once.

mod elements;
mod handed;
mod jobs;

use std::sync::Arc;

use agenix_protocol::request::{BlockingPop, End, Wait};
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
    pub(crate) fn start(store: &Arc<dyn Store>, start_timeout_ms: u64) -> Self {
        let (jobs, job_tickets) = mpsc::unbounded_channel();
        let (elements, element_tickets) = mpsc::unbounded_channel();
        tokio::spawn(jobs::run(Arc::clone(store), Clock::default(), start_timeout_ms, job_tickets));
        tokio::spawn(elements::run(Arc::clone(store), Clock::default(), element_tickets));
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

    /// Waits for an element of a list, and moves it where it is to be moved; `None` when the time is over.
    pub(crate) async fn element(
        &self,
        pop: BlockingPop,
    ) -> Result<Ruled<Option<Handed<Element>>>, StoreError> {
        let (wait, (give, get)) = (pop.timeout, oneshot::channel());
        self.elements.send(elements::Ticket { pop, give }).map_err(|_| gone())?;
        Ok(await_turn(get, wait).await.transpose()?.transpose())
    }
}

/// An element that was taken from a list.
#[derive(Debug)]
pub(crate) struct Element {
    pub(crate) key: Bytes,
    pub(crate) value: Bytes,
    /// The end of the list that it goes back to when nobody receives it; none where it was moved to another list.
    pub(crate) back_to: Option<End>,
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
    use agenix_protocol::request::Wait;
    use tokio::sync::oneshot;

    use super::await_turn;
    use crate::store::StoreError;

    #[tokio::test]
    async fn a_wait_ends_without_anything_after_its_time() {
        let (_give, get) = oneshot::channel::<Result<(), StoreError>>();
        assert!(await_turn(get, Wait::Ms(1)).await.is_none());
    }

    #[tokio::test]
    async fn what_is_handed_over_in_time_is_received() {
        let (give, get) = oneshot::channel::<Result<u8, StoreError>>();
        assert!(give.send(Ok(7)).is_ok());
        assert_eq!(await_turn(get, Wait::Ms(1000)).await.unwrap().unwrap(), 7);
    }
}
