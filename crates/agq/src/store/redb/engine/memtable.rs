//! What was written since the database was last brought up to date, in memory: rows for each table, in the order of its keys. A
//! journal's record is one of these, written down.

use redb::{Error, WriteTransaction};

use crate::store::redb::engine::{
    any_table::{ALL, AnyTable},
    raw_key::RawKey,
    sorted_runs::{SortedRuns, Versioned},
};

/// In the place of a value's length: the key was removed.
const REMOVED: u32 = u32::MAX;

/// Rows of any number of tables: of those alone that have any, in the order of their numbers. A batch changes a few of all, and
/// whatever is done for each table would be done for those that it does not touch.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Memtable(Vec<(usize, SortedRuns)>);

impl Memtable {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many rows it has.
    pub(crate) fn len(&self) -> usize {
        self.0.iter().map(|(_, rows)| rows.len()).sum()
    }

    /// What it has of a table.
    pub(crate) fn rows(&self, table: usize) -> Option<&SortedRuns> {
        self.place(table).ok().map(|place| &self.0[place].1)
    }

    /// Where a table is, or where it would come.
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

    /// Adds what is newer.
    pub(crate) fn absorb(&mut self, newer: Self) {
        for (table, rows) in newer.0 {
            self.put(table, rows);
        }
    }

    /// Every table of which it has rows, with these.
    fn tables(&self) -> impl Iterator<Item = (&'static dyn AnyTable, &SortedRuns)> {
        self.0.iter().map(|(number, rows)| (ALL[*number], rows))
    }

    /// Writes everything into the tables of a database.
    pub(crate) fn write(&self, to: &WriteTransaction) -> Result<(), Error> {
        self.tables().try_for_each(|(table, rows)| table.write(to, rows))
    }

    /// How many bytes a record of it has.
    pub(crate) fn record_len(&self) -> usize {
        let of_row = |(key, value): (&RawKey, &Versioned)| {
            key.bytes().len() + value.as_ref().map_or(0, |value| value.len()) + 2 * size_of::<u32>()
        };
        let of_table = |(table, rows): (&'static dyn AnyTable, &SortedRuns)| {
            rows.iter().map(of_row).sum::<usize>() + rows.len() * (1 + table.name().len())
        };
        self.tables().map(of_table).sum()
    }

    /// Writes it down as a record: for each row `name's length, name, key's length, key, value's length, value`.
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

    /// Adds what a record holds; whether all of it could be read.
    pub(crate) fn replay(&mut self, mut record: &[u8]) -> bool {
        while let Some(RecordRow { table, key, value }) = take_row(&mut record) {
            let Some(table) = ALL.iter().find(|known| known.name() == table) else { return false };
            let key = RawKey::from_bytes(key, table.order());
            self.put(table.number(), [(key, value.map(Into::into))].into_iter().collect());
        }
        record.is_empty()
    }
}

/// One row, as it stands in a record.
struct RecordRow<'r> {
    table: &'r str,
    key: &'r [u8],
    value: Option<&'r [u8]>,
}

/// The next row of a record, which it is taken from; `None` where it ends or cannot be read.
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
    use crate::store::redb::schema::tables::{JOBS, LANE_LENGTHS};

    fn rows(of: &[(&str, Option<&[u8]>)]) -> SortedRuns {
        of.iter().map(|(key, value)| (RawKey::of::<&str>(key), value.map(Into::into))).collect()
    }

    #[test]
    fn a_record_brings_back_what_was_written_down_and_a_cut_one_does_not() {
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
    fn what_is_newer_stays() {
        let mut table = Memtable::default();
        table.put(JOBS.number, rows(&[("a", Some(b"1")), ("b", Some(b"1"))]));
        let mut newer = Memtable::default();
        newer.put(JOBS.number, rows(&[("b", None), ("c", Some(b"2"))]));
        table.absorb(newer);
        let whole = rows(&[("a", Some(b"1")), ("b", None), ("c", Some(b"2"))]);
        assert_eq!(table.rows(JOBS.number), Some(&whole));
    }
}
