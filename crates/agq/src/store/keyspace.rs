//! The keys of users, as a store has them: what can be done with them in one transaction. What a command of Redis makes
//! of that is no concern of a store.

use std::{
    ops::{Bound, Range},
    sync::{Arc, Mutex, PoisonError},
};

use agenix_protocol::time::Timestamp;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::store::{StoreError, StoreFuture, export::text};

/// What a key holds, and until when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyEntry {
    pub(crate) content: StoredValue,
    /// From when on the key counts as absent. It stays in the store until it is removed.
    pub(crate) expires_at: Option<Timestamp>,
}

/// What a key holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum StoredValue {
    /// A string, in place.
    Text(#[serde(with = "text")] Bytes),
    /// A list: its elements are at the places `head..tail`, of which there is at least one.
    List { head: i64, tail: i64 },
    /// A sorted set: how many members it has, at least one.
    Sorted { members: u64 },
}

/// A part of what is in order: from which end, how many are left out there, how many there are at most.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RangeSlice {
    pub(crate) is_reversed: bool,
    pub(crate) skip: usize,
    pub(crate) take: usize,
}

type StoreResult<T> = Result<T, StoreError>;

/// The keys inside one transaction. They are as the transaction has left them so far; expired ones are still there.
pub(crate) trait Keys {
    /// What a key holds.
    fn entry(&self, key: &[u8]) -> StoreResult<Option<KeyEntry>>;
    /// Announces the keys that are read next, so that a remote store can read them together.
    fn read_ahead(&self, _keys: &[&[u8]]) -> StoreResult<()> {
        Ok(())
    }
    /// Sets what a key holds. Elements or members of another type that it held are gone by that.
    fn put_entry(&mut self, key: &[u8], entry: &KeyEntry) -> StoreResult<()>;
    /// Removes a key with everything it holds; whether there was one.
    fn remove(&mut self, key: &[u8]) -> StoreResult<bool>;
    /// How many keys there are that have not expired.
    fn count(&self, now: Timestamp) -> StoreResult<u64>;
    /// Keys with their numbers, which are above 0 and below `below`, the greatest first. A key keeps its number as long
    /// as it is there, and a new one gets a number above all others: who goes down sees every key that stays.
    fn newest(&self, below: u64, limit: usize) -> StoreResult<Vec<(u64, Bytes)>>;

    /// The elements at these places.
    fn items(&self, key: &[u8], places: Range<i64>) -> StoreResult<Vec<Bytes>>;
    /// Puts an element at a place.
    fn put_item(&mut self, key: &[u8], place: i64, item: &[u8]) -> StoreResult<()>;
    /// Takes the element at a place.
    fn take_item(&mut self, key: &[u8], place: i64) -> StoreResult<Option<Bytes>>;
    /// Takes the elements at `places`, in their order.
    fn take_items(&mut self, key: &[u8], places: Range<i64>) -> StoreResult<Vec<Bytes>> {
        places.filter_map(|place| self.take_item(key, place).transpose()).collect()
    }
    /// Those who wait for elements of this list may come and look, once this is committed.
    fn announce_list(&mut self, key: &Bytes);

    /// The score of a member.
    fn score(&self, key: &[u8], member: &[u8]) -> StoreResult<Option<f64>>;
    /// Announces the members whose scores are read next; see [`Keys::read_ahead`].
    fn read_scores_ahead(&self, _key: &[u8], _members: &[&[u8]]) -> StoreResult<()> {
        Ok(())
    }
    /// Gives a member its score, and its place in the order.
    fn put_score(&mut self, key: &[u8], member: &[u8], score: f64) -> StoreResult<()>;
    /// Removes a member; whether there was one.
    fn remove_score(&mut self, key: &[u8], member: &[u8]) -> StoreResult<bool>;
    /// Members with scores in these bounds, by score, then by name.
    fn members(
        &self,
        key: &[u8],
        scores: (Bound<f64>, Bound<f64>),
        part: RangeSlice,
    ) -> StoreResult<Vec<(Bytes, f64)>>;
}

/// What is done in one transaction; it may be done more than once. An error leaves nothing of it.
pub(crate) type KeyWork = Box<dyn Fn(&mut dyn Keys) -> StoreResult<()> + Send + Sync>;

/// The keys of users. See the module above for what a call promises.
pub(crate) trait Keyspace: Send + Sync + 'static {
    /// Does work that may write; durable when it is answered.
    fn update(&self, work: KeyWork) -> StoreFuture<()>;
    /// Does work that only reads, on the spot.
    fn read(&self, work: KeyWork) -> StoreFuture<()>;
    /// Does work that only reads, before this returns; whether the store can: one that is elsewhere has done nothing.
    fn read_at_once(&self, work: &mut dyn FnMut(&mut dyn Keys)) -> bool;
    /// Does work that only reads and may be long, where it keeps nobody waiting.
    fn scan(&self, work: KeyWork) -> StoreFuture<()>;
    /// Keys that have expired, the earliest first.
    fn overdue_keys(&self, now: Timestamp, limit: usize) -> StoreFuture<Vec<Bytes>>;
}

/// Carries the outcome of work out of the store.
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

/// [`Keyspace::change`] with an outcome. The write takes its place in the order when this is called.
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

/// [`Keyspace::look`] with an outcome.
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

/// [`Keyspace::scan`] with an outcome.
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
