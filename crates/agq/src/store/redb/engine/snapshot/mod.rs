//! Snapshots: consistent views of database and memtable at one moment.

mod table;

use std::{
    any::Any,
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use redb::{Database, Key, ReadOnlyTable, ReadTransaction, ReadableDatabase, Value, WriteTransaction};

use crate::store::redb::{
    engine::{any_table::ALL, memtable::Memtable, sorted_runs::SortedRuns},
    schema::{Definition, Ordered, Result},
};

pub(crate) use self::table::Table;

/// Maximum number of memtable layers that are kept although they could be merged.
const MAX_LAYERS: usize = 8;

/// The current version of all data. Only the writer replaces it, so a reader sees it before or
/// after a change, never in between.
pub(crate) struct Versions {
    // Dropped before the database, which closes when no read transaction is left.
    now: RwLock<Version>,
    database: Database,
}

#[derive(Clone)]
struct Version {
    /// Read transaction on the database, replaced only together with the memtable layers that it
    /// supersedes, so that a flush in progress is not visible.
    stored: Arc<OpenDatabase>,
    /// Layers of the memtable, newest first. A layer that a snapshot shares is immutable.
    recent: Vec<Arc<Memtable>>,
}

impl Version {
    fn of(database: &Database) -> Result<Self> {
        Ok(Self { stored: Arc::new(OpenDatabase::of(database.begin_read()?)?), recent: Vec::new() })
    }

    fn absorb(&mut self, changes: Memtable) {
        match self.recent.first_mut().and_then(Arc::get_mut) {
            Some(newest) => newest.absorb(changes),
            None => self.recent.insert(0, Arc::new(changes)),
        }
        self.merge();
    }

    /// Merges the newest layers while that is cheap, or while there are too many.
    fn merge(&mut self) {
        while let [newest, older, ..] = self.recent.as_mut_slice()
            && (newest.len() >= older.len() / 4 || self.recent.len() > MAX_LAYERS)
        {
            let [newest, older, ..] = self.recent.as_mut_slice() else { return };
            let (Some(newest), Some(older)) = (Arc::get_mut(newest), Arc::get_mut(older)) else { return };
            older.absorb(std::mem::take(newest));
            self.recent.remove(0);
        }
    }
}

/// A read transaction with opened tables, because opening a table costs more than a lookup.
struct OpenDatabase {
    transaction: ReadTransaction,
    /// Opened tables, by number.
    tables: Vec<Box<dyn Any + Send + Sync>>,
}

impl OpenDatabase {
    fn of(transaction: ReadTransaction) -> Result<Self> {
        let tables = ALL.iter().map(|table| table.open(&transaction)).collect::<Result<_, _>>()?;
        Ok(Self { transaction, tables })
    }
}

impl Versions {
    pub(crate) fn of(database: Database) -> Result<Self> {
        Ok(Self { now: RwLock::new(Version::of(&database)?), database })
    }

    /// Returns a snapshot that locks out the writer. Hold the snapshot for microseconds only.
    pub(crate) fn snapshot(&self) -> Snapshot<'_> {
        Snapshot(SnapshotSource::Shared(self.locked()))
    }

    /// Returns a snapshot that no caller waits for, and that may exist for long.
    pub(crate) fn pin(&self) -> PinnedSnapshot {
        PinnedSnapshot(self.locked().clone())
    }

    /// Writes the memtable of `kept`, then calls `commit`, which may add rows before it commits.
    pub(crate) fn flush(
        &self,
        kept: &PinnedSnapshot,
        commit: impl FnOnce(WriteTransaction) -> Result<()>,
    ) -> Result<()> {
        let transaction = self.begin_write()?;
        kept.snapshot().write_recent(&transaction)?;
        commit(transaction)?;
        self.refresh(kept)
    }

    pub(crate) fn begin_write(&self) -> Result<WriteTransaction> {
        Ok(self.database.begin_write()?)
    }

    /// Makes the changes of a batch visible.
    pub(crate) fn absorb(&self, changes: Memtable) {
        if !changes.is_empty() {
            self.locked_to_write().absorb(changes);
        }
    }

    /// Removes the layers of `kept`, which the caller has committed, from the memtable.
    pub(crate) fn refresh(&self, kept: &PinnedSnapshot) -> Result<()> {
        let stored = Arc::new(OpenDatabase::of(self.database.begin_read()?)?);
        let mut now = self.locked_to_write();
        // No newer change was merged into the layers of `kept`, because `kept` shares them.
        let newer = now.recent.len() - kept.0.recent.len();
        let before = (std::mem::replace(&mut now.stored, stored), now.recent.split_off(newer));
        // The old version is dropped after the lock is released, because dropping it takes long.
        drop(now);
        drop(before);
        Ok(())
    }

    fn locked(&self) -> RwLockReadGuard<'_, Version> {
        self.now.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn locked_to_write(&self) -> RwLockWriteGuard<'_, Version> {
        self.now.write().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) struct PinnedSnapshot(Version);

impl PinnedSnapshot {
    /// Returns a snapshot of a database that has no writer.
    pub(crate) fn of(database: &Database) -> Result<Self> {
        Ok(Self(Version::of(database)?))
    }

    pub(crate) fn snapshot(&self) -> Snapshot<'_> {
        Snapshot(SnapshotSource::Kept(&self.0))
    }
}

pub(crate) struct Snapshot<'c>(SnapshotSource<'c>);

enum SnapshotSource<'c> {
    Shared(RwLockReadGuard<'c, Version>),
    Kept(&'c Version),
}

impl Snapshot<'_> {
    pub(crate) fn table<K: Ordered, V: Value + 'static>(
        &self,
        definition: &'static Definition<K, V>,
    ) -> Table<'_, K, V> {
        Table::new(definition, self)
    }

    /// Returns a table of the database without the memtable.
    pub(crate) fn stored_table<K: Key + 'static, V: Value + 'static>(
        &self,
        definition: &Definition<K, V>,
    ) -> &ReadOnlyTable<K, V> {
        let table = self.now().stored.tables[definition.number].downcast_ref();
        table.expect("a table is opened as what its definition says, at the place of its number")
    }

    /// Returns the read transaction on the database, without the memtable.
    pub(crate) fn stored(&self) -> &ReadTransaction {
        &self.now().stored.transaction
    }

    /// Returns the memtable layers of a table, newest first.
    pub(crate) fn layers(&self, table: usize) -> impl Iterator<Item = &SortedRuns> {
        self.now().recent.iter().filter_map(move |layer| layer.rows(table))
    }

    /// Writes the memtable layers into the database, oldest first.
    pub(crate) fn write_recent(&self, to: &WriteTransaction) -> Result<()> {
        self.now().recent.iter().rev().try_for_each(|layer| layer.write(to))
    }

    fn now(&self) -> &Version {
        match &self.0 {
            SnapshotSource::Shared(now) => now,
            SnapshotSource::Kept(now) => now,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_LAYERS, Snapshot, Versions};
    use crate::store::redb::{
        engine::{memtable::Memtable, raw_key::RawKey},
        file::migrations,
        schema::REGISTRATIONS,
    };

    fn put(versions: &Versions, number: usize) {
        let row = (RawKey::of::<&str>(&format!("w{number:03}").as_str()), Some(Box::from(&b""[..])));
        let mut changes = Memtable::default();
        changes.put(REGISTRATIONS.number, [row].into_iter().collect());
        versions.absorb(changes);
    }

    fn count(snapshot: &Snapshot<'_>) -> usize {
        snapshot.table(&REGISTRATIONS).iter().unwrap().count()
    }

    #[test]
    fn snapshot_stays_as_it_was_and_unshared_layers_are_merged() {
        let versions = migrations::in_memory();
        let mut kept = Vec::new();
        for number in 0..100 {
            kept.push(versions.pin());
            put(&versions, number);
        }
        assert!(kept.iter().map(|kept| count(&kept.snapshot())).eq(0..100));
        assert_eq!(count(&versions.snapshot()), 100);
        assert_eq!(versions.locked().recent.len(), 100, "each is kept by a snapshot");
        drop(kept);
        for number in 100..200 {
            put(&versions, number);
        }
        assert_eq!(count(&versions.snapshot()), 200);
        assert!(versions.locked().recent.len() <= MAX_LAYERS);
        let kept = versions.pin();
        put(&versions, 200);
        versions.refresh(&kept).unwrap();
        assert_eq!(count(&versions.snapshot()), 1, "the others were said to be in the database");
        versions.refresh(&versions.pin()).unwrap();
        assert_eq!(count(&versions.snapshot()), 0);
    }
}
