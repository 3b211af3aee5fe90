//! A copy of everything, as it is at one moment, in a file of its own.

use std::path::Path;

use redb::{
    Database, Error, Key, ReadTransaction, ReadableDatabase, ReadableTable, TableDefinition, Value,
    WriteTransaction,
};

use super::{
    recovery::{JOURNAL_ID, JOURNAL_NEXT},
    tables::{
        ACTION_JOBS, ACTIONS, BY_SCORE, ENDED, EXPIRIES, HELD, INPUTS, JOBS, KEY_NUMBERS, KEYS, LANE_LENGTHS,
        LANES, LEASES, LIST_ITEMS, META, PAUSED, PLAN_LOADS, PLANS, READY, REGISTRATIONS, RESULTS, SCORES,
        TALLIES, TOTALS, WAITING, WORKERS,
    },
};

/// Memory that a copy may take, beside what the store itself has.
pub(super) const CACHE_BYTES: usize = 64 << 20;

/// Writes a new database that holds what is there now; how many bytes it has.
pub(super) fn copy(from: &Database, file: &Path) -> Result<u64, Error> {
    let mut to = Database::builder().set_cache_size(CACHE_BYTES).create(file)?;
    let write = to.begin_write()?;
    // A read that is kept open makes the file grow: it ends before the copy is packed.
    copy_all(&from.begin_read()?, &write)?;
    write.commit()?;
    to.compact()?;
    to.close()?;
    Ok(std::fs::metadata(file)?.len())
}

fn copy_all(from: &ReadTransaction, to: &WriteTransaction) -> Result<(), Error> {
    copy_table(from, to, META)?;
    // What is copied is complete: it needs no journal.
    for mark in [JOURNAL_ID, JOURNAL_NEXT] {
        to.open_table(META)?.remove(mark)?;
    }
    copy_table(from, to, PLANS)?;
    copy_table(from, to, ACTIONS)?;
    copy_table(from, to, TALLIES)?;
    copy_table(from, to, ACTION_JOBS)?;
    copy_table(from, to, PLAN_LOADS)?;
    copy_table(from, to, JOBS)?;
    copy_table(from, to, INPUTS)?;
    copy_table(from, to, RESULTS)?;
    copy_table(from, to, LANES)?;
    copy_table(from, to, LANE_LENGTHS)?;
    copy_table(from, to, PAUSED)?;
    copy_table(from, to, READY)?;
    copy_table(from, to, WAITING)?;
    copy_table(from, to, LEASES)?;
    copy_table(from, to, HELD)?;
    copy_table(from, to, ENDED)?;
    copy_table(from, to, TOTALS)?;
    copy_table(from, to, WORKERS)?;
    copy_table(from, to, REGISTRATIONS)?;
    copy_table(from, to, KEYS)?;
    copy_table(from, to, KEY_NUMBERS)?;
    copy_table(from, to, EXPIRIES)?;
    copy_table(from, to, LIST_ITEMS)?;
    copy_table(from, to, SCORES)?;
    copy_table(from, to, BY_SCORE)
}

/// Entries are written in their order, which is what a tree takes fastest.
fn copy_table<K: Key + 'static, V: Value + 'static>(
    from: &ReadTransaction,
    to: &WriteTransaction,
    table: TableDefinition<'_, K, V>,
) -> Result<(), Error> {
    let mut copy = to.open_table(table)?;
    for entry in from.open_table(table)?.iter()? {
        let (key, value) = entry?;
        copy.insert(key.value(), value.value())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use agenix_protocol::time::Timestamp;
    use redb::{ReadableDatabase, TableHandle};

    use crate::store::{
        Content, Durability, Entry, Keyspace, Records, StoredPlan, look,
        redb::{RedbStore, file},
    };

    fn plan(name: &str) -> StoredPlan {
        StoredPlan { plan_id: name.parse().unwrap(), json: "{}".into(), created_at: Timestamp(1) }
    }

    #[tokio::test]
    async fn a_copy_has_every_table_and_what_was_there_when_it_was_made() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("copy.redb");
        let store = RedbStore::in_memory().unwrap();
        assert!(store.add_plan(plan("before")).await.unwrap());
        let entry = Entry { content: Content::Text("value".into()), expires_at: Some(Timestamp(9)) };
        store.change(Box::new(move |keys| keys.put_entry(b"key", &entry))).await.unwrap();
        let bytes = store.backup(path.clone()).await.unwrap();
        assert!(store.add_plan(plan("after")).await.unwrap());

        assert_eq!(bytes, std::fs::metadata(&path).unwrap().len());
        let found = file::examine(&path).unwrap();
        assert_eq!((found.plans, found.inconsistencies), (1, Vec::new()));
        let copy = RedbStore::open(&path, Durability::default()).unwrap();
        let [tables, copied] = [&store, &copy].map(|store| {
            let read = store.database.begin_read().unwrap();
            let names = read.list_tables().unwrap().map(|table| table.name().to_owned());
            names.collect::<BTreeSet<String>>()
        });
        assert_eq!(copied, tables);
        assert!(copy.plan(&plan("before").plan_id).await.unwrap().is_some());
        let expires_at = look(&copy, |keys| Ok(keys.entry(b"key")?.and_then(|entry| entry.expires_at)));
        assert_eq!(expires_at.await.unwrap(), Some(Timestamp(9)));
    }
}
