//! The memtable: changes in memory that the database does not have yet. The memtable has the rows
//! of each table in the order of their keys. A WAL record is a serialised memtable.

use redb::WriteTransaction;

use crate::store::redb::{
    engine::{
        any_table::{ALL, AnyTable},
        raw_key::RawKey,
        sorted_runs::{SortedRuns, Versioned},
    },
    schema::Result,
};

/// Length of a value that stands for a removed key (tombstone).
const REMOVED: u32 = u32::MAX;

/// Rows of the tables that have any, by number of the table. A batch changes only a few tables.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Memtable(Vec<(usize, SortedRuns)>);

impl Memtable {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.iter().map(|(_, rows)| rows.len()).sum()
    }

    pub(crate) fn rows(&self, table: usize) -> Option<&SortedRuns> {
        self.place(table).ok().map(|place| &self.0[place].1)
    }

    /// Returns the index of a table, or the index at which the table has to be inserted.
    fn place(&self, table: usize) -> Result<usize, usize> {
        self.0.binary_search_by_key(&table, |(number, _)| *number)
    }

    /// Adds newer rows of a table.
    pub(crate) fn put(&mut self, table: usize, rows: SortedRuns) {
        if rows.is_empty() {
            return;
        }
        match self.place(table) {
            Ok(place) => self.0[place].1.absorb(rows),
            Err(place) => self.0.insert(place, (table, rows)),
        }
    }

    pub(crate) fn absorb(&mut self, newer: Self) {
        for (table, rows) in newer.0 {
            self.put(table, rows);
        }
    }

    fn tables(&self) -> impl Iterator<Item = (&'static dyn AnyTable, &SortedRuns)> {
        self.0.iter().map(|(number, rows)| (ALL[*number], rows))
    }

    pub(crate) fn write(&self, to: &WriteTransaction) -> Result<()> {
        self.tables().try_for_each(|(table, rows)| table.write(to, rows))
    }

    /// Returns the exact number of bytes of the WAL record.
    pub(crate) fn record_len(&self) -> usize {
        let of_row = |(key, value): (&RawKey, &Versioned)| {
            key.bytes().len() + value.as_ref().map_or(0, |value| value.len()) + 2 * size_of::<u32>()
        };
        let of_table = |(table, rows): (&'static dyn AnyTable, &SortedRuns)| {
            rows.iter().map(of_row).sum::<usize>() + rows.len() * (1 + table.name().len())
        };
        self.tables().map(of_table).sum()
    }

    /// Appends the content of the WAL record: for each row `name length, name, key length, key,
    /// value length, value`.
    pub(crate) fn record(&self, into: &mut Vec<u8>) {
        let length = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap_or(REMOVED - 1);
        for (table, rows) in self.tables() {
            let name = table.name();
            let short = u8::try_from(name.len()).expect("the names of tables are short");
            for (key, value) in rows.iter() {
                let value = value.as_deref();
                into.push(short);
                into.extend_from_slice(name.as_bytes());
                into.extend_from_slice(&length(key.bytes()).to_le_bytes());
                into.extend_from_slice(key.bytes());
                into.extend_from_slice(&value.map_or(REMOVED, length).to_le_bytes());
                into.extend_from_slice(value.unwrap_or_default());
            }
        }
    }

    /// Adds the rows of a WAL record. Returns false if a part of it cannot be read.
    pub(crate) fn replay(&mut self, mut record: &[u8]) -> bool {
        while let Some(RecordRow { table, key, value }) = take_row(&mut record) {
            let Some(table) = ALL.iter().find(|known| known.name() == table) else { return false };
            let key = RawKey::from_bytes(key, table.order());
            self.put(table.number(), [(key, value.map(Into::into))].into_iter().collect());
        }
        record.is_empty()
    }
}

struct RecordRow<'r> {
    table: &'r str,
    key: &'r [u8],
    value: Option<&'r [u8]>,
}

/// Takes the next row from a record. Returns `None` at the end of the record, or if the row cannot
/// be read.
fn take_row<'r>(record: &mut &'r [u8]) -> Option<RecordRow<'r>> {
    let (&name, rest) = record.split_first()?;
    let (table, rest) = rest.split_at_checked(name.into())?;
    let (key, rest) = take_sized(rest)?;
    let (length, rest_of_value) = rest.split_first_chunk()?;
    let (value, rest) = if u32::from_le_bytes(*length) == REMOVED {
        (None, rest_of_value)
    } else {
        let (value, rest) = take_sized(rest)?;
        (Some(value), rest)
    };
    *record = rest;
    Some(RecordRow { table: std::str::from_utf8(table).ok()?, key, value })
}

fn take_sized(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    rest.split_at_checked(usize::try_from(u32::from_le_bytes(*length)).ok()?)
}

#[cfg(test)]
mod tests {

    use super::{Memtable, RawKey, SortedRuns};
    use crate::store::redb::schema::{JOBS, LANE_LENGTHS};

    fn rows(of: &[(&str, Option<&[u8]>)]) -> SortedRuns {
        of.iter().map(|(key, value)| (RawKey::of::<&str>(key), value.map(Into::into))).collect()
    }

    #[test]
    fn memtable_record_round_trips_and_a_truncated_one_is_refused() {
        let mut written = Memtable::default();
        written.put(JOBS.number, rows(&[("a", Some(b"1")), ("b", None), ("", Some(b""))]));
        written
            .put(LANE_LENGTHS.number, [(RawKey::of::<u32>(&7), Some([1; 16].into()))].into_iter().collect());
        let mut record = Vec::new();
        written.record(&mut record);
        assert_eq!(record.len(), written.record_len());
        let mut read = Memtable::default();
        assert!(read.replay(&record));
        assert_eq!(read, written);
        assert!(!Memtable::default().replay(&record[..record.len() - 1]));
        assert!(!Memtable::default().replay(&[4, b'n', b'o', b'n', b'e', 0, 0, 0, 0, 0, 0, 0, 0]));
    }

    #[test]
    fn absorb_keeps_the_newer_value() {
        let mut table = Memtable::default();
        table.put(JOBS.number, rows(&[("a", Some(b"1")), ("b", Some(b"1"))]));
        let mut newer = Memtable::default();
        newer.put(JOBS.number, rows(&[("b", None), ("c", Some(b"2"))]));
        table.absorb(newer);
        let whole = rows(&[("a", Some(b"1")), ("b", None), ("c", Some(b"2"))]);
        assert_eq!(table.rows(JOBS.number), Some(&whole));
    }
}
