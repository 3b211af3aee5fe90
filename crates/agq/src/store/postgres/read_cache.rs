//! Cache of workers and plans with a short time to live. Every command of a worker reads its
//! record, and every submission reads its plan.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use futures_util::future::ready;

use crate::store::StoreFuture;

/// Time to live of an entry. A stale entry is harmless, because the transaction that claims a job
/// or adds an action reads the record again.
const TIME_TO_LIVE: Duration = Duration::from_millis(100);
const MAX_ENTRIES: usize = 1_000;

pub(super) struct TtlCache<K, V>(Mutex<TtlEntries<K, V>>);

struct TtlEntries<K, V> {
    entries: HashMap<K, (V, Instant)>,
    /// Number of times that this node has begun or ended to change a record.
    changes: u64,
}

impl<K, V> Default for TtlCache<K, V> {
    fn default() -> Self {
        Self(Mutex::new(TtlEntries { entries: HashMap::new(), changes: 0 }))
    }
}

impl<K, V> TtlCache<K, V>
where
    K: Clone + Eq + Hash + Send + 'static,
    V: Clone + Send + 'static,
{
    /// Returns the cached entry if it is fresh. Otherwise calls `read`, and caches its result.
    pub(super) fn get_or_read(
        self: &Arc<Self>,
        id: &K,
        read: impl FnOnce() -> StoreFuture<Option<V>>,
    ) -> StoreFuture<Option<V>> {
        let begun = {
            let inner = self.lock();
            let fresh = inner.entries.get(id).filter(|(_, at)| at.elapsed() < TIME_TO_LIVE);
            if let Some((value, _)) = fresh {
                return Box::pin(ready(Ok(Some(value.clone()))));
            }
            inner.changes
        };
        let (cache, id, found) = (Arc::clone(self), id.clone(), read());
        Box::pin(async move {
            let found = found.await?;
            found.iter().for_each(|value| cache.put(id.clone(), value.clone(), begun));
            Ok(found)
        })
    }

    /// Caches a record, unless this node has begun or ended a change since the read began.
    fn put(&self, id: K, value: V, begun: u64) {
        let mut inner = self.lock();
        if inner.entries.len() >= MAX_ENTRIES {
            inner.entries.clear();
        }
        if inner.changes == begun {
            inner.entries.insert(id, (value, Instant::now()));
        }
    }

    /// Removes an entry before a change, and again when `answer` completes.
    pub(super) fn invalidate<T: Send + 'static>(
        self: &Arc<Self>,
        id: &K,
        answer: StoreFuture<T>,
    ) -> StoreFuture<T> {
        self.forget(id);
        let (cache, id) = (Arc::clone(self), id.clone());
        Box::pin(async move {
            let answer = answer.await;
            cache.forget(&id);
            answer
        })
    }

    fn forget(&self, id: &K) {
        let mut inner = self.lock();
        inner.changes += 1;
        inner.entries.remove(id);
    }

    fn lock(&self) -> MutexGuard<'_, TtlEntries<K, V>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
