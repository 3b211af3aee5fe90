//! What a store tells those who wait: that there is something to take. Never what it is: they come and look.

use std::{
    collections::HashSet,
    mem,
    sync::{Mutex, PoisonError},
};

use bytes::Bytes;
use tokio::sync::Notify;

/// What arrived since the last look.
#[derive(Debug, Default)]
pub(crate) struct Arrived {
    /// Jobs became ready.
    pub(crate) jobs: bool,
    /// Lists that got elements.
    pub(crate) lists: HashSet<Bytes>,
}

/// Collects arrivals until the matchmaker looks.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    arrived: Mutex<Arrived>,
    notify: Notify,
}

impl Arrivals {
    /// Something can be taken from now on.
    pub(crate) fn announce(&self, news: Arrived) {
        if !news.jobs && news.lists.is_empty() {
            return;
        }
        let mut arrived = self.arrived.lock().unwrap_or_else(PoisonError::into_inner);
        arrived.jobs |= news.jobs;
        arrived.lists.extend(news.lists);
        drop(arrived);
        self.notify.notify_one();
    }

    /// Waits for the next announcement; one that came before the call is not missed.
    pub(crate) async fn next(&self) -> Arrived {
        self.notify.notified().await;
        mem::take(&mut *self.arrived.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
