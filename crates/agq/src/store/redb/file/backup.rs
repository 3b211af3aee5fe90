//! Backup: copies a snapshot into a database file of its own.

use std::path::Path;

use redb::{Database, WriteTransaction};

use crate::store::redb::{
    engine::{ALL, Snapshot, WAL_ID, WAL_NEXT},
    schema::{META, Result},
};

/// Size of redb's page cache for a copy, in bytes.
pub(crate) const CACHE_BYTES: usize = 64 << 20;

/// Writes a snapshot into a new database, and returns its number of bytes.
pub(crate) fn copy(from: &Snapshot<'_>, file: &Path) -> Result<u64> {
    let mut to = Database::builder().set_cache_size(CACHE_BYTES).create(file)?;
    let write = to.begin_write()?;
    copy_all(from, &write)?;
    write.commit()?;
    to.compact()?;
    to.close()?;
    Ok(std::fs::metadata(file)?.len())
}

fn copy_all(from: &Snapshot<'_>, to: &WriteTransaction) -> Result<()> {
    ALL.iter().try_for_each(|table| table.copy(from.stored(), to))?;
    from.write_recent(to)?;
    // The copy is complete without a WAL.
    for mark in [WAL_ID, WAL_NEXT] {
        to.open_table(META.table)?.remove(mark)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use agenix_protocol::time::Timestamp;
    use redb::TableHandle;

    use crate::store::{
        JobStore, KeyEntry, Keyspace, OpenOptions, StoreAdmin, StoredPlan, StoredValue, look,
        redb::{RedbStore, file},
    };

    fn plan(name: &str) -> StoredPlan {
        StoredPlan::unsigned(name.parse().unwrap(), "{}".into(), Timestamp(1))
    }

    #[tokio::test]
    async fn backup_copies_every_table_as_of_its_start() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("copy.redb");
        let store = RedbStore::in_memory().unwrap();
        assert!(store.add_plan(plan("before").into()).await.unwrap().unwrap());
        let entry = KeyEntry { content: StoredValue::Text("value".into()), expires_at: Some(Timestamp(9)) };
        store.update(0, Box::new(move |keys| keys.put_entry(b"key", &entry))).await.unwrap();
        let bytes = store.backup(path.clone()).await.unwrap();
        assert!(store.add_plan(plan("after").into()).await.unwrap().unwrap());

        assert_eq!(bytes, std::fs::metadata(&path).unwrap().len());
        let found = file::examine(&path).unwrap();
        assert_eq!((found.plans, found.inconsistencies), (1, Vec::new()));
        let copy = RedbStore::open(&path, OpenOptions::default()).unwrap();
        let [tables, copied] = [&store, &copy].map(|store| {
            let kept = store.versions.pin();
            let snapshot = kept.snapshot();
            let names = snapshot.stored().list_tables().unwrap().map(|table| table.name().to_owned());
            names.collect::<BTreeSet<String>>()
        });
        assert_eq!(copied, tables);
        assert!(copy.plan(&plan("before").plan_id).await.unwrap().is_some());
        let expires_at = look(&copy, |keys| Ok(keys.entry(b"key")?.and_then(|entry| entry.expires_at)));
        assert_eq!(expires_at.await.unwrap(), Some(Timestamp(9)));
    }
}
