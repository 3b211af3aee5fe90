//! The table of users' keys in a write transaction, with a cache of one record.

use std::cell::RefCell;

use crate::store::redb::{
    engine::{Memtable, Table},
    schema::{KeyRecord, Result},
};

/// The table, and the record that was used last. A command reads its key more than once, and
/// concurrent commands often use the same key.
pub(crate) struct KeyTable<'v> {
    table: Table<'v, &'static [u8], KeyRecord>,
    last: RefCell<Option<CachedKey>>,
}

struct CachedKey {
    key: Box<[u8]>,
    record: Option<KeyRecord>,
}

impl<'v> From<Table<'v, &'static [u8], KeyRecord>> for KeyTable<'v> {
    fn from(table: Table<'v, &'static [u8], KeyRecord>) -> Self {
        Self { table, last: RefCell::default() }
    }
}

impl<'v> KeyTable<'v> {
    pub(crate) fn take_changes(&mut self, into: &mut Memtable) {
        self.table.take_changes(into);
    }

    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<KeyRecord>> {
        if let Some(last) = &*self.last.borrow()
            && *last.key == *key
        {
            return Ok(last.record.clone());
        }
        let record = self.table.get(key)?.map(|record| record.value());
        self.last.replace(Some(CachedKey { key: key.into(), record: record.clone() }));
        Ok(record)
    }

    pub(crate) fn insert(&mut self, key: &[u8], record: KeyRecord) {
        self.table.insert(key, &record);
        self.remember(key, Some(record));
    }

    pub(crate) fn remove(&mut self, key: &[u8]) {
        self.table.remove(key);
        self.remember(key, None);
    }

    fn remember(&mut self, key: &[u8], record: Option<KeyRecord>) {
        match self.last.get_mut() {
            Some(last) if *last.key == *key => last.record = record,
            last => *last = Some(CachedKey { key: key.into(), record }),
        }
    }

    pub(crate) fn table(&self) -> &Table<'v, &'static [u8], KeyRecord> {
        &self.table
    }
}

#[cfg(test)]
mod tests {
    use agenix_protocol::time::Timestamp;

    use super::{KeyRecord, KeyTable};
    use crate::store::{
        KeyEntry, StoredValue,
        redb::{file::migrations, schema::KEYS},
    };

    fn record(number: u64) -> KeyRecord {
        let content = StoredValue::List { head: 0, tail: 1 };
        KeyRecord { number, entry: KeyEntry { content, expires_at: Some(Timestamp(1)) } }
    }

    #[test]
    fn key_cache_agrees_with_the_table() {
        let versions = migrations::in_memory();
        let snapshot = versions.snapshot();
        let mut keys = KeyTable::from(snapshot.table(&KEYS));
        let get = |keys: &KeyTable<'_>, key: &[u8]| keys.get(key).unwrap().map(|record| record.number);
        assert_eq!([get(&keys, b"a"), get(&keys, b"a")], [None, None]);
        keys.insert(b"a", record(1));
        keys.insert(b"b", record(2));
        assert_eq!([get(&keys, b"a"), get(&keys, b"a"), get(&keys, b"b")], [Some(1), Some(1), Some(2)]);
        keys.insert(b"b", record(3));
        assert_eq!([get(&keys, b"b"), get(&keys, b"a")], [Some(3), Some(1)]);
        keys.remove(b"a");
        assert_eq!([get(&keys, b"a"), get(&keys, b"b")], [None, Some(3)]);
        keys.remove(b"a");
        assert_eq!(keys.table().len().unwrap(), 1);
    }
}
