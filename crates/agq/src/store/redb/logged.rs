//! A table inside a batch, opened when it is first touched. What is written to it is noted, so that the journal can have it:
//! played again in the same order, any number of times, the notes lead to the same tables.

use std::{
    borrow::Borrow,
    cell::{OnceCell, RefCell},
    ops::RangeBounds,
};

use redb::{
    AccessGuard, Error, Key, Range, ReadableTable, ReadableTableMetadata, Table, TableDefinition,
    TableHandle, Value, WriteTransaction,
};

/// In the place of a value's length: the key was removed.
const REMOVED: u32 = u32::MAX;

/// What was written in a batch, up to a bound: a batch with more is not for the journal.
#[derive(Debug)]
pub(super) struct Redo {
    bytes: RefCell<Vec<u8>>,
    most: usize,
}

impl Redo {
    pub(super) fn up_to(most: usize) -> Self {
        Self { bytes: RefCell::default(), most }
    }

    /// Everything that was written; `None` where that is more than the bound.
    pub(super) fn into_bytes(self) -> Option<Vec<u8>> {
        let bytes = self.bytes.into_inner();
        (bytes.len() <= self.most).then_some(bytes)
    }

    /// Notes that a key has this value now, or none.
    fn note(&self, table: &str, key: &[u8], value: Option<&[u8]>) {
        let mut bytes = self.bytes.borrow_mut();
        if bytes.len() > self.most {
            return;
        }
        let length = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap_or(REMOVED - 1);
        bytes.push(u8::try_from(table.len()).expect("the names of tables are short"));
        bytes.extend_from_slice(table.as_bytes());
        bytes.extend_from_slice(&length(key).to_le_bytes());
        bytes.extend_from_slice(key);
        bytes.extend_from_slice(&value.map_or(REMOVED, length).to_le_bytes());
        bytes.extend_from_slice(value.unwrap_or_default());
    }
}

/// One note, as it stands in the journal.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Note<'n> {
    pub(super) table: &'n str,
    pub(super) key: &'n [u8],
    /// `None` where the key was removed.
    pub(super) value: Option<&'n [u8]>,
}

/// The next of the notes, which it is taken from; `None` where they end or cannot be read.
pub(super) fn take_note<'n>(notes: &mut &'n [u8]) -> Option<Note<'n>> {
    let (&name, rest) = notes.split_first()?;
    let (table, rest) = rest.split_at_checked(name.into())?;
    let (key, rest) = take_sized(rest)?;
    let (length, rest_of_value) = rest.split_first_chunk()?;
    let (value, rest) = if u32::from_le_bytes(*length) == REMOVED {
        (None, rest_of_value)
    } else {
        let (value, rest) = take_sized(rest)?;
        (Some(value), rest)
    };
    *notes = rest;
    Some(Note { table: std::str::from_utf8(table).ok()?, key, value })
}

fn take_sized(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    rest.split_at_checked(usize::try_from(u32::from_le_bytes(*length)).ok()?)
}

/// A table of one transaction.
pub(super) struct Logged<'t, K: Key + 'static, V: Value + 'static> {
    definition: TableDefinition<'static, K, V>,
    transaction: &'t WriteTransaction,
    redo: &'t Redo,
    table: OnceCell<Table<'t, K, V>>,
}

impl<'t, K: Key + 'static, V: Value + 'static> Logged<'t, K, V> {
    pub(super) fn new(
        definition: TableDefinition<'static, K, V>,
        transaction: &'t WriteTransaction,
        redo: &'t Redo,
    ) -> Self {
        Self { definition, transaction, redo, table: OnceCell::new() }
    }

    /// The table, to be read.
    pub(super) fn table(&self) -> Result<&Table<'t, K, V>, Error> {
        if let Some(table) = self.table.get() {
            return Ok(table);
        }
        let opened = self.transaction.open_table(self.definition)?;
        Ok(self.table.get_or_init(|| opened))
    }

    fn table_mut(&mut self) -> Result<&mut Table<'t, K, V>, Error> {
        self.table()?;
        Ok(self.table.get_mut().expect("it has just been opened"))
    }

    pub(super) fn get<'k>(
        &self,
        key: impl Borrow<K::SelfType<'k>>,
    ) -> Result<Option<AccessGuard<'_, V>>, Error> {
        Ok(self.table()?.get(key)?)
    }

    pub(super) fn range<'k, KR: Borrow<K::SelfType<'k>> + 'k>(
        &self,
        range: impl RangeBounds<KR> + 'k,
    ) -> Result<Range<'_, K, V>, Error> {
        Ok(self.table()?.range::<KR>(range)?)
    }

    /// How many keys it has.
    pub(super) fn len(&self) -> Result<u64, Error> {
        Ok(self.table()?.len()?)
    }

    /// Gives a key a value; the value that it had.
    pub(super) fn insert<'k, 'v>(
        &mut self,
        key: impl Borrow<K::SelfType<'k>>,
        value: impl Borrow<V::SelfType<'v>>,
    ) -> Result<Option<AccessGuard<'_, V>>, Error> {
        let bytes = V::as_bytes(value.borrow());
        self.redo.note(self.definition.name(), K::as_bytes(key.borrow()).as_ref(), Some(bytes.as_ref()));
        Ok(self.table_mut()?.insert(key.borrow(), value.borrow())?)
    }

    /// Removes a key; the value that it had.
    pub(super) fn remove<'k>(
        &mut self,
        key: impl Borrow<K::SelfType<'k>>,
    ) -> Result<Option<AccessGuard<'_, V>>, Error> {
        self.redo.note(self.definition.name(), K::as_bytes(key.borrow()).as_ref(), None);
        Ok(self.table_mut()?.remove(key.borrow())?)
    }

    /// Removes every key of a range.
    pub(super) fn remove_in<'k, KR: Borrow<K::SelfType<'k>> + 'k>(
        &mut self,
        range: impl RangeBounds<KR> + 'k,
    ) -> Result<(), Error> {
        let (redo, name) = (self.redo, self.definition.name().to_owned());
        let note_each = |key: K::SelfType<'_>, _: V::SelfType<'_>| {
            redo.note(&name, K::as_bytes(&key).as_ref(), None);
            false
        };
        Ok(self.table_mut()?.retain_in::<KR, _>(range, note_each)?)
    }
}

/// A table that notes can be played on, whatever is in it.
pub(super) trait Replayed {
    fn name(&self) -> &str;
    /// Makes sure that there is such a table.
    fn create(&mut self) -> Result<(), Error>;
    fn replay(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<(), Error>;
}

impl<K: Key + 'static, V: Value + 'static> Replayed for Logged<'_, K, V> {
    fn name(&self) -> &str {
        self.definition.name()
    }

    fn create(&mut self) -> Result<(), Error> {
        self.table_mut().map(drop)
    }

    fn replay(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<(), Error> {
        let key = K::from_bytes(key);
        match value {
            Some(value) => drop(self.table_mut()?.insert(key, V::from_bytes(value))?),
            None => drop(self.table_mut()?.remove(key)?),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Note, Redo, take_note};

    #[test]
    fn notes_come_back_in_their_order_and_a_cut_one_does_not() {
        let redo = Redo::up_to(1000);
        redo.note("jobs", b"key", Some(b"value"));
        redo.note("held", b"", None);
        redo.note("paused", b"night", Some(b""));
        let bytes = redo.into_bytes().unwrap();
        let mut notes = bytes.as_slice();
        let taken: Vec<_> = std::iter::from_fn(|| take_note(&mut notes)).collect();
        let note = |table, key, value| Note { table, key, value };
        assert_eq!(
            taken,
            [
                note("jobs", b"key".as_slice(), Some(b"value".as_slice())),
                note("held", b"", None),
                note("paused", b"night", Some(b"")),
            ]
        );
        assert!(notes.is_empty());
        let mut cut = &bytes[..10];
        assert_eq!(take_note(&mut cut), None);
        assert_eq!(cut.len(), 10);
    }

    #[test]
    fn a_batch_at_the_bound_is_kept_and_one_beyond_it_is_not() {
        let bytes_of = |most| {
            let redo = Redo::up_to(most);
            redo.note("t", b"k", None);
            redo.into_bytes().map(|bytes| bytes.len())
        };
        assert_eq!(bytes_of(11), Some(11));
        assert_eq!(bytes_of(10), None);
    }
}
