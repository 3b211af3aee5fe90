//! What a store tells those who wait: that there is something to take. Never what it is: they come and look.

use std::{
    collections::HashSet,
    mem,
    sync::{Mutex, PoisonError},
};

use bytes::Bytes;
use tokio::sync::Notify;

/// What a batch of writes made available.
#[derive(Debug, Default)]
pub(crate) struct Arrived {
    /// Jobs became ready.
    pub(crate) jobs: bool,
    /// Lists that got elements.
    pub(crate) lists: HashSet<Bytes>,
}

/// Collects arrivals until the matchmakers look. What came before they look is not missed.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    jobs: Notify,
    lists: Notify,
    pushed: Mutex<HashSet<Bytes>>,
}

impl Arrivals {
    /// Something can be taken from now on.
    pub(crate) fn announce(&self, news: Arrived) {
        if news.jobs {
            self.jobs.notify_one();
        }
        if !news.lists.is_empty() {
            self.pushed.lock().unwrap_or_else(PoisonError::into_inner).extend(news.lists);
            self.lists.notify_one();
        }
    }

    /// Waits until jobs became ready.
    pub(crate) async fn jobs(&self) {
        self.jobs.notified().await;
    }

    /// Waits until lists got elements, and names them.
    pub(crate) async fn lists(&self) -> HashSet<Bytes> {
        self.lists.notified().await;
        mem::take(&mut *self.pushed.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
