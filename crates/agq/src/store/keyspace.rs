//! Users' keys: operations of a store inside one transaction. The commands of Redis are built from
//! these operations elsewhere.

use std::{
    ops::{Bound, Range},
    sync::{Arc, Mutex, PoisonError},
};

use agenix_protocol::time::Timestamp;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::store::{StoreError, StoreFuture, export::text};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyEntry {
    pub(crate) content: StoredValue,
    /// Time from which on the key counts as absent. The key stays in the store until it is removed.
    pub(crate) expires_at: Option<Timestamp>,
}

/// Value of a key. Elements of lists and members of sorted sets are stored apart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum StoredValue {
    /// String, stored in the entry.
    Text(#[serde(with = "text")] Bytes),
    /// List with its elements at the places `head..tail`; has at least one element.
    List { head: i64, tail: i64 },
    /// Sorted set with the number of its members, which is at least 1.
    Sorted { members: u64 },
}

/// Slice of a sequence: skips `skip`, and takes at most `take`, from the end if `is_reversed`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RangeSlice {
    pub(crate) is_reversed: bool,
    pub(crate) skip: usize,
    pub(crate) take: usize,
}

pub(super) type StoreResult<T> = Result<T, StoreError>;
/// Bounds of scores: the least and the greatest.
pub(super) type ScoreRange = (Bound<f64>, Bound<f64>);

/// Reads of keys inside one transaction, as it has left them so far. Expired keys are still there.
pub(crate) trait KeyReader {
    fn entry(&self, key: &[u8]) -> StoreResult<Option<KeyEntry>>;
    /// Announces the keys that are read next, so that a remote store can read them together.
    fn read_ahead(&self, _keys: &[&[u8]]) -> StoreResult<()> {
        Ok(())
    }
    /// Returns the number of keys that have not expired.
    fn count(&self, now: Timestamp) -> StoreResult<u64>;
    /// Returns keys with their numbers, which are above 0 and below `below`, in descending order.
    ///
    /// A key keeps its number as long as it exists, and a new key gets a number above all others. A
    /// scan in descending order therefore sees every key that stays.
    fn newest(&self, below: u64, limit: usize) -> StoreResult<Vec<(u64, Bytes)>>;

    fn items(&self, key: &[u8], places: Range<i64>) -> StoreResult<Vec<Bytes>>;

    fn score(&self, key: &[u8], member: &[u8]) -> StoreResult<Option<f64>>;
    /// Announces the members whose scores are read next; see [`KeyReader::read_ahead`].
    fn read_scores_ahead(&self, _key: &[u8], _members: &[&[u8]]) -> StoreResult<()> {
        Ok(())
    }
    /// Returns members whose scores are within `scores`, ordered by score, then by name.
    fn members(&self, key: &[u8], scores: ScoreRange, part: RangeSlice) -> StoreResult<Vec<(Bytes, f64)>>;
}

pub(crate) trait KeyWriter: KeyReader {
    /// Sets the entry of a key. A previous value of another type loses its elements or members.
    fn put_entry(&mut self, key: &[u8], entry: &KeyEntry) -> StoreResult<()>;
    /// Removes a key with its elements or members. Returns true if the key existed.
    fn remove(&mut self, key: &[u8]) -> StoreResult<bool>;

    fn put_item(&mut self, key: &[u8], place: i64, item: &[u8]) -> StoreResult<()>;
    fn take_item(&mut self, key: &[u8], place: i64) -> StoreResult<Option<Bytes>>;
    /// Removes the elements at `places`, and returns them in order.
    fn take_items(&mut self, key: &[u8], places: Range<i64>) -> StoreResult<Vec<Bytes>> {
        places.filter_map(|place| self.take_item(key, place).transpose()).collect()
    }
    /// Notifies clients that wait for elements of this list, after the commit.
    fn announce_list(&mut self, key: &Bytes);

    fn put_score(&mut self, key: &[u8], member: &[u8], score: f64) -> StoreResult<()>;
    fn remove_score(&mut self, key: &[u8], member: &[u8]) -> StoreResult<bool>;
}

/// Work that reads keys on one snapshot. A store may run it more than once.
pub(crate) type KeyRead = Box<dyn Fn(&dyn KeyReader) -> StoreResult<()> + Send + Sync>;

/// Work that changes keys in one transaction. A store may run the work more than once. An error
/// undoes the work.
pub(crate) type KeyUpdate = Box<dyn Fn(&mut dyn KeyWriter) -> StoreResult<()> + Send + Sync>;

pub(crate) trait Keyspace: Send + Sync + 'static {
    /// Runs `work` in a transaction, which is durable when the future resolves. `bytes` is the
    /// approximate size of what the work writes.
    fn update(&self, bytes: usize, work: KeyUpdate) -> StoreFuture<()>;
    fn read(&self, work: KeyRead) -> StoreFuture<()>;
    /// Runs a short read before the call returns. Returns false if the store is remote, and cannot.
    fn read_at_once(&self, work: &mut dyn FnMut(&dyn KeyReader)) -> bool;
    /// Runs a read that may be long, on a thread on which no other work waits for the read.
    fn scan(&self, work: KeyRead) -> StoreFuture<()>;
    /// Returns at most `limit` expired keys, in order of expiry.
    fn overdue_keys(&self, now: Timestamp, limit: usize) -> StoreFuture<Vec<Bytes>>;
}

/// Slot that carries the result of a closure out of the store.
struct ResultSlot<T>(Arc<Mutex<Option<T>>>);

impl<T> ResultSlot<T> {
    fn fill(&self, outcome: T) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
    }

    async fn emptied_after(self, done: StoreFuture<()>) -> StoreResult<T> {
        done.await?;
        let outcome = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        outcome.ok_or_else(|| StoreError("the work on keys was never done".into()))
    }
}

/// Runs [`Keyspace::update`], and returns the outcome of `work`. The write gets its place in the
/// order of all writes when the method is called, not when the future is polled.
pub(crate) fn change<S, T, W>(
    store: &S,
    bytes: usize,
    work: W,
) -> impl Future<Output = StoreResult<T>> + Send + use<S, T, W>
where
    S: Keyspace + ?Sized,
    T: Send + 'static,
    W: Fn(&mut dyn KeyWriter) -> StoreResult<T> + Send + Sync + 'static,
{
    let slot = ResultSlot(Arc::default());
    let filled = ResultSlot(Arc::clone(&slot.0));
    let done = store.update(bytes, Box::new(move |keys| work(keys).map(|outcome| filled.fill(outcome))));
    slot.emptied_after(done)
}

pub(crate) fn look<S, T, W>(store: &S, work: W) -> impl Future<Output = StoreResult<T>> + Send + use<S, T, W>
where
    S: Keyspace + ?Sized,
    T: Send + 'static,
    W: Fn(&dyn KeyReader) -> StoreResult<T> + Send + Sync + 'static,
{
    let slot = ResultSlot(Arc::default());
    let filled = ResultSlot(Arc::clone(&slot.0));
    let done = store.read(Box::new(move |keys| work(keys).map(|outcome| filled.fill(outcome))));
    slot.emptied_after(done)
}

pub(crate) fn scan<S, T, W>(store: &S, work: W) -> impl Future<Output = StoreResult<T>> + Send + use<S, T, W>
where
    S: Keyspace + ?Sized,
    T: Send + 'static,
    W: Fn(&dyn KeyReader) -> StoreResult<T> + Send + Sync + 'static,
{
    let slot = ResultSlot(Arc::default());
    let filled = ResultSlot(Arc::clone(&slot.0));
    let done = store.scan(Box::new(move |keys| work(keys).map(|outcome| filled.fill(outcome))));
    slot.emptied_after(done)
}
