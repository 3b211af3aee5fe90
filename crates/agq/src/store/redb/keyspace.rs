//! Users' keys in write transactions and in snapshots.

use std::{cell::RefCell, mem::discriminant, ops::Range};

use agenix_protocol::time::Timestamp;
use bytes::Bytes;
use futures_util::future::ready;
use redb::Error;

use crate::store::{
    AckLevel, KeyEntry, KeyRead, KeyReader, KeyUpdate, KeyWriter, Keyspace, RangeSlice, StoreError,
    StoreFuture, StoredValue,
    keyspace::{ScoreRange, StoreResult},
    redb::{
        RedbStore,
        engine::Snapshot,
        queries::keys::{self, FIRST},
        schema::{BY_SCORE, EXPIRIES, KEY_NUMBERS, KEYS, KeyRecord, LIST_ITEMS, Result, SCORES, ordered},
        shown,
        txn::WriteTxn,
    },
};

impl Keyspace for RedbStore {
    fn update(&self, _bytes: usize, work: KeyUpdate) -> StoreFuture<()> {
        self.write(AckLevel::Durable, move |txn| {
            let mut keys = TxnKeys { txn, fault: RefCell::default() };
            let outcome = work(&mut keys);
            let fault = keys.fault.into_inner();
            outcome.map_err(|error| fault.unwrap_or_else(|| Error::Corrupted(error.0)))
        })
    }

    fn read(&self, work: KeyRead) -> StoreFuture<()> {
        Box::pin(ready(work(&SnapshotKeys(&self.versions.snapshot()))))
    }

    fn read_at_once(&self, work: &mut dyn FnMut(&dyn KeyReader)) -> bool {
        work(&SnapshotKeys(&self.versions.snapshot()));
        true
    }

    fn scan(&self, work: KeyRead) -> StoreFuture<()> {
        let kept = self.versions.pin();
        self.long_work.run(move || work(&SnapshotKeys(&kept.snapshot())))
    }

    fn overdue_keys(&self, now: Timestamp, limit: usize) -> StoreFuture<Vec<Bytes>> {
        self.query(|snapshot| keys::overdue(&snapshot.table(&EXPIRIES), now, limit))
    }
}

/// Keys in a write transaction. `fault` keeps the original error of redb, which the writer needs.
struct TxnKeys<'b, 't> {
    txn: &'b mut WriteTxn<'t>,
    fault: RefCell<Option<Error>>,
}

/// Keeps an error, and returns it for the caller.
fn noted<T>(fault: &RefCell<Option<Error>>, outcome: Result<T>) -> StoreResult<T> {
    outcome.map_err(|error| {
        let shown = StoreError(error.to_string());
        fault.replace(Some(error));
        shown
    })
}

impl KeyReader for TxnKeys<'_, '_> {
    fn entry(&self, key: &[u8]) -> StoreResult<Option<KeyEntry>> {
        noted(&self.fault, self.txn.tables.keys.get(key).map(|record| record.map(|record| record.entry)))
    }

    fn count(&self, now: Timestamp) -> StoreResult<u64> {
        noted(&self.fault, keys::count(self.txn.tables.keys.table(), &self.txn.tables.expiries, now))
    }

    fn newest(&self, below: u64, limit: usize) -> StoreResult<Vec<(u64, Bytes)>> {
        noted(&self.fault, keys::newest(&self.txn.tables.key_numbers, below, limit))
    }

    fn items(&self, key: &[u8], places: Range<i64>) -> StoreResult<Vec<Bytes>> {
        noted(&self.fault, keys::items(self.txn.tables.list_items.table(), key, places))
    }

    fn score(&self, key: &[u8], member: &[u8]) -> StoreResult<Option<f64>> {
        noted(&self.fault, keys::score(&self.txn.tables.scores, key, member))
    }

    fn members(&self, key: &[u8], scores: ScoreRange, part: RangeSlice) -> StoreResult<Vec<(Bytes, f64)>> {
        noted(&self.fault, keys::members(&self.txn.tables.by_score, key, scores, part))
    }
}

impl KeyWriter for TxnKeys<'_, '_> {
    fn put_entry(&mut self, key: &[u8], entry: &KeyEntry) -> StoreResult<()> {
        noted(&self.fault, self.txn.put_key(key, entry))
    }

    fn remove(&mut self, key: &[u8]) -> StoreResult<bool> {
        noted(&self.fault, self.txn.remove_key(key))
    }

    fn put_item(&mut self, key: &[u8], place: i64, item: &[u8]) -> StoreResult<()> {
        self.txn.tables.list_items.insert((key, place), item);
        Ok(())
    }

    fn take_item(&mut self, key: &[u8], place: i64) -> StoreResult<Option<Bytes>> {
        noted(&self.fault, self.txn.tables.list_items.take(key, place))
    }

    fn announce_list(&mut self, key: &Bytes) {
        self.txn.arrived.lists.insert(key.clone());
    }

    fn put_score(&mut self, key: &[u8], member: &[u8], score: f64) -> StoreResult<()> {
        noted(&self.fault, self.txn.put_score(key, member, ordered(score)))
    }

    fn remove_score(&mut self, key: &[u8], member: &[u8]) -> StoreResult<bool> {
        noted(&self.fault, self.txn.remove_score(key, member))
    }
}

impl WriteTxn<'_> {
    fn put_key(&mut self, key: &[u8], entry: &KeyEntry) -> Result<()> {
        let before = self.tables.keys.get(key)?;
        let number = before.as_ref().map_or_else(|| self.number_key(key), |before| before.number);
        let before = before.map(|record| record.entry);
        if let Some(before) = &before
            && discriminant(&before.content) != discriminant(&entry.content)
        {
            self.clear_key(key, &before.content)?;
        }
        let was = before.and_then(|before| before.expires_at);
        if was != entry.expires_at {
            if let Some(at) = was {
                self.tables.expiries.remove((at.0, key));
            }
            if let Some(at) = entry.expires_at {
                self.tables.expiries.insert((at.0, key), ());
            }
        }
        self.tables.keys.insert(key, KeyRecord { number, entry: entry.clone() });
        Ok(())
    }

    /// Inserts a new key with the number that it had in another store.
    pub(super) fn put_numbered(&mut self, key: &[u8], number: u64, entry: KeyEntry) {
        self.cache.last_key = self.cache.last_key.max(number);
        self.tables.key_numbers.insert(number, key);
        if let Some(at) = entry.expires_at {
            self.tables.expiries.insert((at.0, key), ());
        }
        self.tables.keys.insert(key, KeyRecord { number, entry });
    }

    /// Returns a number above those of all other keys.
    fn number_key(&mut self, key: &[u8]) -> u64 {
        self.cache.last_key += 1;
        self.tables.key_numbers.insert(self.cache.last_key, key);
        self.cache.last_key
    }

    fn remove_key(&mut self, key: &[u8]) -> Result<bool> {
        let Some(record) = self.tables.keys.get(key)? else { return Ok(false) };
        self.tables.keys.remove(key);
        self.tables.key_numbers.remove(record.number);
        if let Some(at) = record.entry.expires_at {
            self.tables.expiries.remove((at.0, key));
        }
        self.clear_key(key, &record.entry.content)?;
        Ok(true)
    }

    /// Removes the elements or members of a key.
    fn clear_key(&mut self, key: &[u8], content: &StoredValue) -> Result<()> {
        match content {
            StoredValue::Text(_) => {}
            StoredValue::List { head, tail } => {
                self.tables.list_items.remove_in(key, *head..*tail)?;
            }
            StoredValue::Sorted { .. } => {
                self.tables.by_score.remove_in((key, 0, FIRST)..(key, u64::MAX, FIRST))?;
                // No key sorts between a key and the same key with a NUL appended.
                let next = [key, &b"\0"[..]].concat();
                self.tables.scores.remove_in((key, FIRST)..(next.as_slice(), FIRST))?;
            }
        }
        Ok(())
    }

    pub(super) fn put_score(&mut self, key: &[u8], member: &[u8], score: u64) -> Result<()> {
        self.remove_score(key, member)?;
        self.tables.scores.insert((key, member), score);
        self.tables.by_score.insert((key, score, member), ());
        Ok(())
    }

    fn remove_score(&mut self, key: &[u8], member: &[u8]) -> Result<bool> {
        let score = self.tables.scores.get((key, member))?.map(|score| score.value());
        if let Some(score) = score {
            self.tables.scores.remove((key, member));
            self.tables.by_score.remove((key, score, member));
        }
        Ok(score.is_some())
    }
}

struct SnapshotKeys<'r>(&'r Snapshot<'r>);

impl KeyReader for SnapshotKeys<'_> {
    fn entry(&self, key: &[u8]) -> StoreResult<Option<KeyEntry>> {
        shown(self.0.table(&KEYS).get(key).map(|record| record.map(|record| record.value().entry)))
    }

    fn count(&self, now: Timestamp) -> StoreResult<u64> {
        shown(keys::count(&self.0.table(&KEYS), &self.0.table(&EXPIRIES), now))
    }

    fn newest(&self, below: u64, limit: usize) -> StoreResult<Vec<(u64, Bytes)>> {
        shown(keys::newest(&self.0.table(&KEY_NUMBERS), below, limit))
    }

    fn items(&self, key: &[u8], places: Range<i64>) -> StoreResult<Vec<Bytes>> {
        shown(keys::items(&self.0.table(&LIST_ITEMS), key, places))
    }

    fn score(&self, key: &[u8], member: &[u8]) -> StoreResult<Option<f64>> {
        shown(keys::score(&self.0.table(&SCORES), key, member))
    }

    fn members(&self, key: &[u8], scores: ScoreRange, part: RangeSlice) -> StoreResult<Vec<(Bytes, f64)>> {
        shown(keys::members(&self.0.table(&BY_SCORE), key, scores, part))
    }
}
