//! The users' keys that a batch has to do with: the entry of each is read once, and written once at its end. A hundred pushes to
//! one list are one new entry.

use std::{cell::RefCell, collections::BTreeMap};

use redb::{Error, WriteTransaction};

use super::{
    logged::{Logged, Redo},
    tables::{KEYS, KeyRecord},
};

type Bytes = &'static [u8];

/// The table of keys, and what is known of it.
pub(super) struct KnownKeys<'t> {
    table: Logged<'t, Bytes, KeyRecord>,
    known: RefCell<BTreeMap<Box<[u8]>, Known>>,
}

/// A key as it is now.
struct Known {
    record: Option<KeyRecord>,
    /// Whether the table has the key.
    is_stored: bool,
    /// Whether the table has something else.
    is_changed: bool,
}

impl<'t> KnownKeys<'t> {
    pub(super) fn new(transaction: &'t WriteTransaction, redo: &'t Redo) -> Self {
        Self { table: Logged::new(KEYS, transaction, redo), known: RefCell::default() }
    }

    /// The table, for those who play notes on it.
    pub(super) fn table_mut(&mut self) -> &mut Logged<'t, Bytes, KeyRecord> {
        &mut self.table
    }

    pub(super) fn get(&self, key: &[u8]) -> Result<Option<KeyRecord>, Error> {
        if let Some(known) = self.known.borrow().get(key) {
            return Ok(known.record.clone());
        }
        let record = self.table.get(key)?.map(|record| record.value());
        let known = Known { record: record.clone(), is_stored: record.is_some(), is_changed: false };
        self.known.borrow_mut().insert(key.into(), known);
        Ok(record)
    }

    /// Gives a key that was asked for another record, or none.
    pub(super) fn put(&mut self, key: &[u8], record: Option<KeyRecord>) {
        if let Some(known) = self.known.get_mut().get_mut(key) {
            (known.record, known.is_changed) = (record, true);
        }
    }

    /// How many keys there are.
    pub(super) fn count(&self) -> Result<u64, Error> {
        let known = self.known.borrow();
        let new = known.values().filter(|known| known.record.is_some() && !known.is_stored).count() as u64;
        let gone = known.values().filter(|known| known.record.is_none() && known.is_stored).count() as u64;
        Ok(self.table.len()? + new - gone)
    }

    /// Writes what has changed.
    pub(super) fn save(&mut self) -> Result<(), Error> {
        for (key, known) in std::mem::take(self.known.get_mut()) {
            match known {
                Known { is_changed: false, .. } => {}
                Known { record: Some(record), .. } => drop(self.table.insert(&*key, record)?),
                Known { is_stored: true, .. } => drop(self.table.remove(&*key)?),
                Known { .. } => {}
            }
        }
        Ok(())
    }
}
