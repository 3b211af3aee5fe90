//! The table of list elements in a write transaction, with read-ahead.

use std::{collections::VecDeque, ops::Range};

use bytes::Bytes;

use crate::store::redb::{
    engine::{Memtable, Table},
    schema::Result,
};

const MAX_AHEAD: i64 = 64;
/// Number of bytes at which read-ahead stops.
const MAX_BYTES_AHEAD: usize = 64 * 1024;

type ListItemKey = (&'static [u8], i64);

/// The table, and the elements that are likely to be taken next. Read-ahead starts when two
/// adjacent elements are taken, because advancing an iterator is cheaper than a lookup.
pub(crate) struct ListTable<'v> {
    table: Table<'v, ListItemKey, &'static [u8]>,
    ahead: ListReadAhead,
}

/// State of the read-ahead, for one list at a time.
#[derive(Default)]
struct ListReadAhead {
    key: Vec<u8>,
    last: Option<i64>,
    /// Elements with their places, the next one first.
    items: VecDeque<(i64, Bytes)>,
}

impl ListReadAhead {
    fn turn_to(&mut self, key: &[u8]) {
        if *self.key != *key {
            self.forget();
            key.clone_into(&mut self.key);
        }
    }

    fn forget(&mut self) {
        (self.last, self.items) = (None, VecDeque::new());
    }
}

impl<'v> From<Table<'v, ListItemKey, &'static [u8]>> for ListTable<'v> {
    fn from(table: Table<'v, ListItemKey, &'static [u8]>) -> Self {
        Self { table, ahead: ListReadAhead::default() }
    }
}

impl<'v> ListTable<'v> {
    pub(crate) fn take_changes(&mut self, into: &mut Memtable) {
        self.table.take_changes(into);
    }

    pub(crate) fn insert(&mut self, (key, place): (&[u8], i64), item: &[u8]) {
        if *self.ahead.key == *key && self.ahead.items.iter().any(|(ahead, _)| *ahead == place) {
            self.ahead.forget();
        }
        self.table.insert((key, place), item);
    }

    pub(crate) fn take(&mut self, key: &[u8], place: i64) -> Result<Option<Bytes>> {
        self.ahead.turn_to(key);
        let item = match self.ahead.items.pop_front() {
            Some((first, item)) if first == place => Some(item),
            _ => self.read(key, place)?,
        };
        self.ahead.last = Some(place);
        if item.is_some() {
            self.table.remove((key, place));
        }
        Ok(item)
    }

    /// Returns the element at a place. Reads ahead if the last element was an adjacent one.
    fn read(&mut self, key: &[u8], place: i64) -> Result<Option<Bytes>> {
        self.ahead.items.clear();
        let (back, on) = (place.checked_add(1), place.checked_sub(1));
        let rows = if self.ahead.last.is_none() {
            None
        } else if self.ahead.last == on {
            Some(self.table.range((key, place)..(key, place.saturating_add(MAX_AHEAD)))?)
        } else if self.ahead.last == back {
            Some(self.table.range_back((key, place.saturating_sub(MAX_AHEAD - 1))..=(key, place))?)
        } else {
            None
        };
        let Some(rows) = rows else {
            return Ok(self.table.get((key, place))?.map(|item| Bytes::copy_from_slice(item.value())));
        };
        let mut bytes = 0;
        for row in rows {
            let (at, item) = row?;
            self.ahead.items.push_back((at.value().1, Bytes::copy_from_slice(item.value())));
            bytes += item.value().len();
            if bytes > MAX_BYTES_AHEAD {
                break;
            }
        }
        Ok(self.ahead.items.pop_front_if(|(first, _)| *first == place).map(|(_, item)| item))
    }

    pub(crate) fn remove_in(&mut self, key: &[u8], places: Range<i64>) -> Result<()> {
        self.ahead.forget();
        self.table.remove_in((key, places.start)..(key, places.end))
    }

    pub(crate) fn table(&self) -> &Table<'v, ListItemKey, &'static [u8]> {
        &self.table
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::{ListTable, Memtable};
    use crate::store::redb::{file::migrations, schema::LIST_ITEMS};

    /// Step of a test: puts an element, takes elements upwards or downwards, clears a range, or
    /// commits.
    #[derive(Debug, Clone)]
    enum ReadDirection {
        Put(i64),
        Take(i64, i64, bool),
        Clear(i64, i64),
        Commit,
    }

    fn step() -> impl Strategy<Value = ReadDirection> {
        prop_oneof![
            4 => (0_i64..200).prop_map(ReadDirection::Put),
            4 => (0_i64..200, 1_i64..100, any::<bool>()).prop_map(|(from, count, is_up)| ReadDirection::Take(from, count, is_up)),
            1 => (0_i64..200, 1_i64..50).prop_map(|(from, count)| ReadDirection::Clear(from, from + count)),
            1 => Just(ReadDirection::Commit),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn list_readahead_agrees_with_the_table(steps in proptest::collection::vec(step(), 1..60)) {
            let versions = migrations::in_memory();
            let lists: [&[u8]; 2] = [b"a", b"b"];
            let mut model: BTreeMap<(&[u8], i64), String> = BTreeMap::new();
            for batch in steps.split(|step| matches!(step, ReadDirection::Commit)) {
                let mut changes = Memtable::default();
                {
                    let snapshot = versions.snapshot();
                    let mut table = ListTable::from(snapshot.table(&LIST_ITEMS));
                    for (number, step) in batch.iter().enumerate() {
                        let list = lists[number % 3 / 2];
                        match *step {
                            ReadDirection::Put(place) => {
                                let item = format!("{place} of step {number}");
                                table.insert((list, place), item.as_bytes());
                                model.insert((list, place), item);
                            }
                            ReadDirection::Take(from, count, is_up) => for n in 0..count {
                                let place = if is_up { from + n } else { from - n };
                                let taken = table.take(list, place).unwrap();
                                let should_be = model.remove(&(list, place));
                                prop_assert_eq!(taken, should_be.map(Into::into));
                            },
                            ReadDirection::Clear(from, to) => {
                                table.remove_in(list, from..to).unwrap();
                                model.retain(|(of, place), _| *of != list || !(from..to).contains(place));
                            }
                            ReadDirection::Commit => {}
                        }
                    }
                    table.take_changes(&mut changes);
                }
                versions.absorb(changes);
            }
        }
    }
}
