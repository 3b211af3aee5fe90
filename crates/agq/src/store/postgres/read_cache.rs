//! Workers and plans as they were read a moment ago: every command of a worker asks who it is, every submission what its plan says.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use futures_util::future::ready;

use crate::store::StoreFuture;

/// For so long a thing may be taken for what it was. What other nodes make of it meanwhile is seen where it matters: in the
/// transaction that gives a worker a job, or makes an action of a plan.
const FRESH: Duration = Duration::from_millis(100);
/// Most things that are kept.
const MOST: usize = 1_000;

/// Things that were read lately, by their ids.
pub(super) struct TtlCache<K, V>(Mutex<TtlEntries<K, V>>);

struct TtlEntries<K, V> {
    things: HashMap<K, (V, Instant)>,
    /// How often this node has begun or ended to change one.
    changes: u64,
}

impl<K, V> Default for TtlCache<K, V> {
    fn default() -> Self {
        Self(Mutex::new(TtlEntries { things: HashMap::new(), changes: 0 }))
    }
}

impl<K, V> TtlCache<K, V>
where
    K: Clone + Eq + Hash + Send + 'static,
    V: Clone + Send + 'static,
{
    /// The thing, where it was read just now, or as `read` reads it, with what is answered then.
    pub(super) fn or_read(
        self: &Arc<Self>,
        id: &K,
        read: impl FnOnce() -> StoreFuture<Option<V>>,
    ) -> StoreFuture<Option<V>> {
        let begun = {
            let inner = self.lock();
            let fresh = inner.things.get(id).filter(|(_, at)| at.elapsed() < FRESH);
            if let Some((thing, _)) = fresh {
                return Box::pin(ready(Ok(Some(thing.clone()))));
            }
            inner.changes
        };
        let (seen, id, found) = (Arc::clone(self), id.clone(), read());
        Box::pin(async move {
            let found = found.await?;
            found.iter().for_each(|thing| seen.put(id.clone(), thing.clone(), begun));
            Ok(found)
        })
    }

    /// Keeps what was read, where this node has changed nothing since that began.
    fn put(&self, id: K, thing: V, begun: u64) {
        let mut inner = self.lock();
        if inner.things.len() >= MOST {
            inner.things.clear();
        }
        if inner.changes == begun {
            inner.things.insert(id, (thing, Instant::now()));
        }
    }

    /// A thing is about to be changed: it is forgotten, and again when that is done.
    pub(super) fn changing<T: Send + 'static>(
        self: &Arc<Self>,
        id: &K,
        answer: StoreFuture<T>,
    ) -> StoreFuture<T> {
        self.forget(id);
        let (seen, id) = (Arc::clone(self), id.clone());
        Box::pin(async move {
            let answer = answer.await;
            seen.forget(&id);
            answer
        })
    }

    fn forget(&self, id: &K) {
        let mut inner = self.lock();
        inner.changes += 1;
        inner.things.remove(id);
    }

    fn lock(&self) -> MutexGuard<'_, TtlEntries<K, V>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
