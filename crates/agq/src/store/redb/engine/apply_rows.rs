//! Writes the rows of a memtable into a table of the database.
//!
//! The rows are sorted, and rows that were written one after the other are often adjacent in the
//! table. Such a run is inserted or removed in one operation, because an operation per row would
//! search the tree and rebuild the page for each row.

use std::{iter::Peekable, ops::Bound};

use redb::{CursorError, Key, ReadableTable, Table, Value};

use crate::store::redb::{
    engine::{
        raw_key::RawKey,
        sorted_runs::{SortedRuns, Versioned},
    },
    schema::{AreAdjacent, Result},
};

/// Minimum number of rows of a run that is worth the cost of a cursor.
const MIN_RUN_ROWS: usize = 3;
/// Maximum number of bytes of a run. redb holds a whole run in memory, and allocating a larger
/// buffer costs more than starting another run.
const MAX_RUN_BYTES: usize = 32 * 1024;
/// Number of consecutive short runs after which no more runs are started.
const MAX_MISSES: usize = 4;

type RowRef<'r> = (&'r RawKey, &'r Versioned);

pub(crate) fn write<K: Key + 'static, V: Value + 'static>(
    table: &mut Table<'_, K, V>,
    rows: &SortedRuns,
    adjoins: AreAdjacent,
) -> Result<()> {
    let mut rows = rows.iter().peekable();
    let mut misses = 0;
    while let Some((key, value)) = rows.next() {
        let Some(value) = value else {
            remove_run(table, key, &mut rows, adjoins)?;
            continue;
        };
        let is_new = table.insert(K::from_bytes(key.bytes()), V::from_bytes(value))?.is_none();
        if is_new && misses < MAX_MISSES && rows.peek().is_some_and(|(_, value)| value.is_some()) {
            let run = insert_run(table, key, &mut rows)?;
            misses = if run < MIN_RUN_ROWS { misses + 1 } else { 0 };
        }
    }
    Ok(())
}

/// Inserts rows behind `behind` until a row exists already, a row is not adjacent, or the run has
/// [`MAX_RUN_BYTES`] bytes. Returns the number of inserted rows.
fn insert_run<'r, K: Key + 'static, V: Value + 'static>(
    table: &mut Table<'_, K, V>,
    behind: &RawKey,
    rows: &mut Peekable<impl Iterator<Item = RowRef<'r>>>,
) -> Result<usize> {
    let mut cursor = table.upper_bound_mut(Bound::Included(K::from_bytes(behind.bytes())))?;
    let (mut count, mut len) = (0, 0);
    while len < MAX_RUN_BYTES
        && let Some((key, Some(value))) = rows.peek()
    {
        match cursor.insert_before(K::from_bytes(key.bytes()), V::from_bytes(value)) {
            Ok(()) => (count, len) = (count + 1, len + key.bytes().len() + value.len()),
            Err(CursorError::UnorderedKey) => break,
            Err(error) => return Err(error.into()),
        }
        rows.next();
    }
    cursor.close()?;
    Ok(count)
}

/// Removes a key together with the removals behind it that adjoin it.
fn remove_run<'r, K: Key + 'static, V: Value + 'static>(
    table: &mut Table<'_, K, V>,
    first: &'r RawKey,
    rows: &mut Peekable<impl Iterator<Item = RowRef<'r>>>,
    adjoins: AreAdjacent,
) -> Result<()> {
    let mut last = first;
    while let Some((next, _)) =
        rows.next_if(|(key, value)| value.is_none() && adjoins(last.bytes(), key.bytes()))
    {
        last = next;
    }
    if !std::ptr::eq(first, last) {
        table.retain_in(K::from_bytes(first.bytes())..=K::from_bytes(last.bytes()), |_, _| false)?;
    } else if table.remove(K::from_bytes(first.bytes()))?.is_none() {
        skip_absent(table, first, rows)?;
    }
    Ok(())
}

/// Skips the removals behind `behind` that are not in the table, because a row that was inserted
/// and removed between two flushes was never there.
fn skip_absent<'r, K: Key + 'static, V: Value + 'static>(
    table: &Table<'_, K, V>,
    behind: &RawKey,
    rows: &mut Peekable<impl Iterator<Item = RowRef<'r>>>,
) -> Result<()> {
    let is_removal = |(_, value): &RowRef<'r>| value.is_none();
    if !rows.peek().is_some_and(is_removal) {
        return Ok(());
    }
    let next = table.range(K::from_bytes(behind.bytes())..)?.next().transpose()?;
    let is_absent = |key: &RawKey| {
        next.as_ref()
            .is_none_or(|(next, _)| K::compare(key.bytes(), K::as_bytes(&next.value()).as_ref()).is_lt())
    };
    while rows.next_if(|row| is_removal(row) && is_absent(row.0)).is_some() {}
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use redb::{Database, ReadableDatabase, ReadableTable, backends::InMemoryBackend};

    use crate::store::redb::{
        engine::{memtable::Memtable, raw_key::RawKey, sorted_runs::SortedRuns},
        schema::LIST_ITEMS,
    };

    /// First place, number of rows, distance between them, and true if they are inserted.
    type Run = (i64, i64, i64, bool);

    fn run() -> impl Strategy<Value = Run> {
        (0_i64..400, 1_i64..60, 1_i64..4, any::<bool>())
    }

    fn rows(runs: &[Run], model: &mut BTreeMap<i64, String>, round: usize) -> SortedRuns {
        let mut rows = SortedRuns::default();
        for (from, count, apart, is_in) in runs {
            for place in (0..*count).map(|n| from + n * apart) {
                // The value is so large that a run can be longer than `MAX_RUN_BYTES`.
                let value = format!("{place} of round {round}{:1000}", "");
                let key = RawKey::of::<(&[u8], i64)>(&(&b"list"[..], place));
                rows.insert(key, is_in.then(|| value.as_bytes().into()));
                if *is_in {
                    model.insert(place, value)
                } else {
                    model.remove(&place)
                };
            }
        }
        rows
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn apply_rows_in_runs_equals_row_by_row(
            rounds in proptest::collection::vec(proptest::collection::vec(run(), 1..12), 1..6),
        ) {
            let database = Database::builder().create_with_backend(InMemoryBackend::new()).unwrap();
            let mut model = BTreeMap::new();
            for (round, runs) in rounds.iter().enumerate() {
                let mut changes = Memtable::default();
                changes.put(LIST_ITEMS.number, rows(runs, &mut model, round));
                let transaction = database.begin_write().unwrap();
                changes.write(&transaction).unwrap();
                transaction.commit().unwrap();
                let table = database.begin_read().unwrap().open_table(LIST_ITEMS.table).unwrap();
                let found: Vec<_> = table.iter().unwrap().map(|row| {
                    let (key, value) = row.unwrap();
                    (key.value().1, String::from_utf8(value.value().to_vec()).unwrap())
                }).collect();
                prop_assert_eq!(found, model.clone().into_iter().collect::<Vec<_>>());
            }
        }
    }
}
