//! Users' keys: what a transaction of the writer can do with them, and what a reading one can.

use std::{
    cell::RefCell,
    mem::discriminant,
    ops::{Bound, Range},
    sync::Arc,
};

use agenix_protocol::time::Timestamp;
use bytes::Bytes;
use futures_util::future::ready;
use redb::{
    Database, Error, Key, ReadOnlyTable, ReadTransaction, ReadableDatabase, ReadableTable,
    ReadableTableMetadata, TableDefinition, Value,
};

use super::{
    RedbStore,
    batch::Batch,
    key_reads::{self, FIRST},
    tables::{BY_SCORE, EXPIRIES, KEY_NUMBERS, KEYS, KeyRecord, LIST_ITEMS, SCORES, ordered},
};
use crate::store::{Answer, Content, Entry, KeyWork, Keys, Keyspace, Part, Promise, StoreError};

impl Keyspace for RedbStore {
    fn change(&self, work: KeyWork) -> Answer<()> {
        self.write(Promise::Durable, move |batch| {
            let mut keys = Writing { batch, fault: RefCell::default() };
            let outcome = work(&mut keys);
            let fault = keys.fault.into_inner();
            outcome.map_err(|error| fault.unwrap_or_else(|| Error::Corrupted(error.0)))
        })
    }

    fn look(&self, work: KeyWork) -> Answer<()> {
        Box::pin(ready(read(&self.database, &work)))
    }

    fn scan(&self, work: KeyWork) -> Answer<()> {
        let database = Arc::clone(&self.database);
        self.scans.run(move || read(&database, &work))
    }

    fn overdue_keys(&self, now: Timestamp, limit: usize) -> Answer<Vec<Bytes>> {
        self.read(|read| key_reads::overdue(&read.open_table(EXPIRIES)?, now, limit))
    }
}

fn read(database: &Database, work: &KeyWork) -> Result<(), StoreError> {
    let transaction = database.begin_read().map_err(|error| StoreError(error.to_string()))?;
    work(&mut Reading(&transaction))
}

/// A batch. The writer has to know an error of redb as it was: `fault` keeps it.
struct Writing<'b, 't> {
    batch: &'b mut Batch<'t>,
    fault: RefCell<Option<Error>>,
}

impl Writing<'_, '_> {
    fn noted<T>(&self, outcome: Result<T, Error>) -> Result<T, StoreError> {
        outcome.map_err(|error| {
            let shown = StoreError(error.to_string());
            self.fault.replace(Some(error));
            shown
        })
    }
}

impl Keys for Writing<'_, '_> {
    fn entry(&self, key: &[u8]) -> Result<Option<Entry>, StoreError> {
        self.noted(self.batch.keys.get(key).map(|record| record.map(|record| record.entry)))
    }

    fn put_entry(&mut self, key: &[u8], entry: &Entry) -> Result<(), StoreError> {
        let done = self.batch.put_key(key, entry);
        self.noted(done)
    }

    fn remove(&mut self, key: &[u8]) -> Result<bool, StoreError> {
        let done = self.batch.remove_key(key);
        self.noted(done)
    }

    fn count(&self, now: Timestamp) -> Result<u64, StoreError> {
        self.noted((|| key_reads::count(self.batch.keys.count()?, self.batch.expiries.table()?, now))())
    }

    fn newest(&self, below: u64, limit: usize) -> Result<Vec<(u64, Bytes)>, StoreError> {
        self.noted((|| key_reads::newest(self.batch.key_numbers.table()?, below, limit))())
    }

    fn items(&self, key: &[u8], places: Range<i64>) -> Result<Vec<Bytes>, StoreError> {
        self.noted((|| key_reads::items(self.batch.list_items.table()?, key, places))())
    }

    fn put_item(&mut self, key: &[u8], place: i64, item: &[u8]) -> Result<(), StoreError> {
        let done = self.batch.put_item(key, place, item);
        self.noted(done)
    }

    fn take_item(&mut self, key: &[u8], place: i64) -> Result<Option<Bytes>, StoreError> {
        let done = self.batch.take_item(key, place);
        self.noted(done)
    }

    fn announce_list(&mut self, key: &Bytes) {
        self.batch.arrived.lists.insert(key.clone());
    }

    fn score(&self, key: &[u8], member: &[u8]) -> Result<Option<f64>, StoreError> {
        self.noted((|| key_reads::score(self.batch.scores.table()?, key, member))())
    }

    fn put_score(&mut self, key: &[u8], member: &[u8], score: f64) -> Result<(), StoreError> {
        let done = self.batch.put_score(key, member, ordered(score));
        self.noted(done)
    }

    fn remove_score(&mut self, key: &[u8], member: &[u8]) -> Result<bool, StoreError> {
        let done = self.batch.remove_score(key, member);
        self.noted(done)
    }

    fn members(
        &self,
        key: &[u8],
        scores: (Bound<f64>, Bound<f64>),
        part: Part,
    ) -> Result<Vec<(Bytes, f64)>, StoreError> {
        self.noted((|| key_reads::members(self.batch.by_score.table()?, key, scores, part))())
    }
}

impl Batch<'_> {
    fn put_key(&mut self, key: &[u8], entry: &Entry) -> Result<(), Error> {
        let before = self.keys.get(key)?;
        let number = match &before {
            Some(before) => before.number,
            None => self.number_key(key)?,
        };
        let before = before.map(|record| record.entry);
        if let Some(before) = &before
            && discriminant(&before.content) != discriminant(&entry.content)
        {
            self.clear_key(key, &before.content)?;
        }
        let was = before.and_then(|before| before.expires_at);
        if was != entry.expires_at {
            if let Some(at) = was {
                self.expiries.remove((at.0, key))?;
            }
            if let Some(at) = entry.expires_at {
                self.expiries.insert((at.0, key), ())?;
            }
        }
        self.keys.put(key, Some(KeyRecord { number, entry: entry.clone() }));
        Ok(())
    }

    /// Gives a new key a number above all others.
    fn number_key(&mut self, key: &[u8]) -> Result<u64, Error> {
        let number = self.key_numbers.table()?.last()?.map_or(1, |(last, _)| last.value() + 1);
        self.key_numbers.insert(number, key)?;
        Ok(number)
    }

    fn remove_key(&mut self, key: &[u8]) -> Result<bool, Error> {
        let Some(record) = self.keys.get(key)? else { return Ok(false) };
        self.keys.put(key, None);
        self.key_numbers.remove(record.number)?;
        if let Some(at) = record.entry.expires_at {
            self.expiries.remove((at.0, key))?;
        }
        self.clear_key(key, &record.entry.content)?;
        Ok(true)
    }

    /// Removes what a key holds outside of its entry.
    fn clear_key(&mut self, key: &[u8], content: &Content) -> Result<(), Error> {
        match content {
            Content::Text(_) => {}
            Content::List { head, tail } => {
                self.list_items.remove_in((key, *head)..(key, *tail))?;
            }
            Content::Sorted { .. } => {
                self.by_score.remove_in((key, 0, FIRST)..(key, u64::MAX, FIRST))?;
                // No key sorts between a key and itself with a NUL.
                let next = [key, &b"\0"[..]].concat();
                self.scores.remove_in((key, FIRST)..(next.as_slice(), FIRST))?;
            }
        }
        Ok(())
    }

    fn put_item(&mut self, key: &[u8], place: i64, item: &[u8]) -> Result<(), Error> {
        self.list_items.insert((key, place), item)?;
        Ok(())
    }

    fn take_item(&mut self, key: &[u8], place: i64) -> Result<Option<Bytes>, Error> {
        Ok(self.list_items.remove((key, place))?.map(|item| Bytes::copy_from_slice(item.value())))
    }

    fn put_score(&mut self, key: &[u8], member: &[u8], score: u64) -> Result<(), Error> {
        let before = self.scores.insert((key, member), score)?.map(|before| before.value());
        if let Some(before) = before {
            self.by_score.remove((key, before, member))?;
        }
        self.by_score.insert((key, score, member), ())?;
        Ok(())
    }

    fn remove_score(&mut self, key: &[u8], member: &[u8]) -> Result<bool, Error> {
        let score = self.scores.remove((key, member))?.map(|score| score.value());
        if let Some(score) = score {
            self.by_score.remove((key, score, member))?;
        }
        Ok(score.is_some())
    }
}

/// A transaction that only reads.
struct Reading<'r>(&'r ReadTransaction);

impl Reading<'_> {
    fn of<K: Key + 'static, V: Value + 'static, T>(
        &self,
        table: TableDefinition<'_, K, V>,
        read: impl FnOnce(&ReadOnlyTable<K, V>) -> Result<T, Error>,
    ) -> Result<T, StoreError> {
        let table = self.0.open_table(table).map_err(|error| StoreError(error.to_string()))?;
        read(&table).map_err(|error| StoreError(error.to_string()))
    }
}

fn read_only() -> StoreError {
    StoreError("a command that only reads was about to write".into())
}

impl Keys for Reading<'_> {
    fn entry(&self, key: &[u8]) -> Result<Option<Entry>, StoreError> {
        self.of(KEYS, |keys| key_reads::entry(keys, key))
    }

    fn put_entry(&mut self, _key: &[u8], _entry: &Entry) -> Result<(), StoreError> {
        Err(read_only())
    }

    fn remove(&mut self, _key: &[u8]) -> Result<bool, StoreError> {
        Err(read_only())
    }

    fn count(&self, now: Timestamp) -> Result<u64, StoreError> {
        self.of(EXPIRIES, |expiries| key_reads::count(self.0.open_table(KEYS)?.len()?, expiries, now))
    }

    fn newest(&self, below: u64, limit: usize) -> Result<Vec<(u64, Bytes)>, StoreError> {
        self.of(KEY_NUMBERS, |numbers| key_reads::newest(numbers, below, limit))
    }

    fn items(&self, key: &[u8], places: Range<i64>) -> Result<Vec<Bytes>, StoreError> {
        self.of(LIST_ITEMS, |items| key_reads::items(items, key, places))
    }

    fn put_item(&mut self, _key: &[u8], _place: i64, _item: &[u8]) -> Result<(), StoreError> {
        Err(read_only())
    }

    fn take_item(&mut self, _key: &[u8], _place: i64) -> Result<Option<Bytes>, StoreError> {
        Err(read_only())
    }

    fn announce_list(&mut self, _key: &Bytes) {}

    fn score(&self, key: &[u8], member: &[u8]) -> Result<Option<f64>, StoreError> {
        self.of(SCORES, |scores| key_reads::score(scores, key, member))
    }

    fn put_score(&mut self, _key: &[u8], _member: &[u8], _score: f64) -> Result<(), StoreError> {
        Err(read_only())
    }

    fn remove_score(&mut self, _key: &[u8], _member: &[u8]) -> Result<bool, StoreError> {
        Err(read_only())
    }

    fn members(
        &self,
        key: &[u8],
        scores: (Bound<f64>, Bound<f64>),
        part: Part,
    ) -> Result<Vec<(Bytes, f64)>, StoreError> {
        self.of(BY_SCORE, |members| key_reads::members(members, key, scores, part))
    }
}
