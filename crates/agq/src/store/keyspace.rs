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

/// Entry of a key: its value and its expiry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyEntry {
    pub(crate) content: StoredValue,
    /// Time from which on the key counts as absent. An expired key stays in the store until it is
    /// removed.
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

/// Slice of an ordered sequence: skips `skip` entries and takes at most `take`, from the end if
/// `is_reversed`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RangeSlice {
    pub(crate) is_reversed: bool,
    pub(crate) skip: usize,
    pub(crate) take: usize,
}

type StoreResult<T> = Result<T, StoreError>;

/// Users' keys inside one transaction. Reads see the changes of the transaction so far. Expired
/// keys are still present.
pub(crate) trait Keys {
    /// Returns the entry of a key.
    fn entry(&self, key: &[u8]) -> StoreResult<Option<KeyEntry>>;
    /// Announces the keys that are read next, so that a remote store can read them together.
    fn read_ahead(&self, _keys: &[&[u8]]) -> StoreResult<()> {
        Ok(())
    }
    /// Sets the entry of a key. If the key held a value of another type, its elements or members
    /// are removed.
    fn put_entry(&mut self, key: &[u8], entry: &KeyEntry) -> StoreResult<()>;
    /// Removes a key with its elements and members, and returns true if the key existed.
    fn remove(&mut self, key: &[u8]) -> StoreResult<bool>;
    /// Returns the number of keys that have not expired at `now`.
    fn count(&self, now: Timestamp) -> StoreResult<u64>;
    /// Returns at most `limit` keys with their numbers, which are above 0 and below `below`, in
    /// descending order. A key keeps its number as long as it exists, and a new key gets a number
    /// above all others. A scan in descending order therefore sees every key that exists throughout
    /// the scan.
    fn newest(&self, below: u64, limit: usize) -> StoreResult<Vec<(u64, Bytes)>>;

    /// Returns the elements at `places`.
    fn items(&self, key: &[u8], places: Range<i64>) -> StoreResult<Vec<Bytes>>;
    /// Sets the element at a place.
    fn put_item(&mut self, key: &[u8], place: i64, item: &[u8]) -> StoreResult<()>;
    /// Removes and returns the element at a place.
    fn take_item(&mut self, key: &[u8], place: i64) -> StoreResult<Option<Bytes>>;
    /// Removes and returns the elements at `places`, in their order.
    fn take_items(&mut self, key: &[u8], places: Range<i64>) -> StoreResult<Vec<Bytes>> {
        places.filter_map(|place| self.take_item(key, place).transpose()).collect()
    }
    /// Wakes waiters for elements of the list after the commit.
    fn announce_list(&mut self, key: &Bytes);

    /// Returns the score of a member.
    fn score(&self, key: &[u8], member: &[u8]) -> StoreResult<Option<f64>>;
    /// Announces the members whose scores are read next; see [`Keys::read_ahead`].
    fn read_scores_ahead(&self, _key: &[u8], _members: &[&[u8]]) -> StoreResult<()> {
        Ok(())
    }
    /// Sets the score of a member, and with it the place of the member in the order.
    fn put_score(&mut self, key: &[u8], member: &[u8], score: f64) -> StoreResult<()>;
    /// Removes a member, and returns true if it existed.
    fn remove_score(&mut self, key: &[u8], member: &[u8]) -> StoreResult<bool>;
    /// Returns the members with scores in the bounds `scores`, ordered by score, then by name.
    fn members(
        &self,
        key: &[u8],
        scores: (Bound<f64>, Bound<f64>),
        part: RangeSlice,
    ) -> StoreResult<Vec<(Bytes, f64)>>;
}

/// Work on keys in one transaction. A store may call it more than once, and discards all its
/// changes if it returns an error.
pub(crate) type KeyWork = Box<dyn Fn(&mut dyn Keys) -> StoreResult<()> + Send + Sync>;

/// Users' keys. [`store`](super) has the rules for order, atomicity and durability.
pub(crate) trait Keyspace: Send + Sync + 'static {
    /// Runs `work`, which may write. Durable when it is answered.
    fn update(&self, work: KeyWork) -> StoreFuture<()>;
    /// Runs `work`, which only reads and is short.
    fn read(&self, work: KeyWork) -> StoreFuture<()>;
    /// Runs `work`, which only reads, before the method returns, and returns true. Returns false
    /// without running `work` if the store cannot read at once, because it is remote.
    fn read_at_once(&self, work: &mut dyn FnMut(&mut dyn Keys)) -> bool;
    /// Runs `work`, which only reads and may be long, where it delays no other call.
    fn scan(&self, work: KeyWork) -> StoreFuture<()>;
    /// Returns at most `limit` keys that have expired at `now`, the earliest first.
    fn overdue_keys(&self, now: Timestamp, limit: usize) -> StoreFuture<Vec<Bytes>>;
}

/// Slot that carries the result of a closure out of the store.
struct ResultSlot<T>(Arc<Mutex<Option<T>>>);

impl<T: Send + 'static> ResultSlot<T> {
    fn new() -> Self {
        Self(Arc::new(Mutex::new(None)))
    }

    fn filled_by(&self, work: impl Fn(&mut dyn Keys) -> StoreResult<T> + Send + Sync + 'static) -> KeyWork {
        let slot = Arc::clone(&self.0);
        Box::new(move |keys: &mut dyn Keys| {
            let outcome = work(keys)?;
            *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
            Ok(())
        })
    }

    async fn emptied_after(self, done: StoreFuture<()>) -> StoreResult<T> {
        done.await?;
        let outcome = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        outcome.ok_or_else(|| StoreError("the work on keys was never done".into()))
    }
}

/// Runs [`Keyspace::update`], and returns the result of `work`. The write takes its place in the
/// order when this function is called.
pub(crate) fn change<S, T, W>(
    store: &S,
    work: W,
) -> impl Future<Output = StoreResult<T>> + Send + use<S, T, W>
where
    S: Keyspace + ?Sized,
    T: Send + 'static,
    W: Fn(&mut dyn Keys) -> StoreResult<T> + Send + Sync + 'static,
{
    let slot = ResultSlot::new();
    let done = store.update(slot.filled_by(work));
    slot.emptied_after(done)
}

/// Runs [`Keyspace::read`], and returns the result of `work`.
pub(crate) fn look<S, T, W>(store: &S, work: W) -> impl Future<Output = StoreResult<T>> + Send + use<S, T, W>
where
    S: Keyspace + ?Sized,
    T: Send + 'static,
    W: Fn(&mut dyn Keys) -> StoreResult<T> + Send + Sync + 'static,
{
    let slot = ResultSlot::new();
    let done = store.read(slot.filled_by(work));
    slot.emptied_after(done)
}

/// Runs [`Keyspace::scan`], and returns the result of `work`.
pub(crate) fn scan<S, T, W>(store: &S, work: W) -> impl Future<Output = StoreResult<T>> + Send + use<S, T, W>
where
    S: Keyspace + ?Sized,
    T: Send + 'static,
    W: Fn(&mut dyn Keys) -> StoreResult<T> + Send + Sync + 'static,
{
    let slot = ResultSlot::new();
    let done = store.scan(slot.filled_by(work));
    slot.emptied_after(done)
}
