//! What is there at one moment: the database as it was last brought up to date, and over it what was written since.

mod table;

use std::{
    any::Any,
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use redb::{Database, Error, Key, ReadOnlyTable, ReadTransaction, ReadableDatabase, Value, WriteTransaction};

use crate::store::redb::{
    engine::{any_table::ALL, memtable::Memtable, sorted_runs::SortedRuns},
    schema::{key_order::Ordered, tables::Definition},
};

pub(crate) use self::table::Table;

/// More layers than this are not kept where they can be made one.
const MOST_LAYERS: usize = 8;

/// Everything that is visible. The writer alone changes it; whoever reads sees it before or after a change, never in between.
pub(crate) struct Versions {
    // Before the database: it is closed when nobody reads any more.
    now: RwLock<Version>,
    database: Database,
}

#[derive(Clone)]
struct Version {
    /// The database as it was last brought up to date. It is kept open: what the writer brings into the database meanwhile is not
    /// seen before what was over it is gone.
    stored: Arc<OpenDatabase>,
    /// What was written since, the newest first. A layer that a read has kept does not change any more.
    recent: Vec<Arc<Memtable>>,
}

impl Version {
    fn of(database: &Database) -> Result<Self, Error> {
        Ok(Self { stored: Arc::new(OpenDatabase::of(database.begin_read()?)?), recent: Vec::new() })
    }

    fn absorb(&mut self, changes: Memtable) {
        match self.recent.first_mut().and_then(Arc::get_mut) {
            Some(newest) => newest.absorb(changes),
            None => self.recent.insert(0, Arc::new(changes)),
        }
        self.merge();
    }

    /// Makes the newest layers one while that is little work, or there are many.
    fn merge(&mut self) {
        while let [newest, older, ..] = self.recent.as_mut_slice()
            && (newest.len() >= older.len() / 4 || self.recent.len() > MOST_LAYERS)
        {
            let [newest, older, ..] = self.recent.as_mut_slice() else { return };
            let (Some(newest), Some(older)) = (Arc::get_mut(newest), Arc::get_mut(older)) else { return };
            older.absorb(std::mem::take(newest));
            self.recent.remove(0);
        }
    }
}

/// The database at one moment, with its tables open: to open one takes longer than to look for something in it.
struct OpenDatabase {
    transaction: ReadTransaction,
    /// By their numbers.
    tables: Vec<Box<dyn Any + Send + Sync>>,
}

impl OpenDatabase {
    fn of(transaction: ReadTransaction) -> Result<Self, Error> {
        let tables = ALL.iter().map(|table| table.open(&transaction)).collect::<Result<_, _>>()?;
        Ok(Self { transaction, tables })
    }
}

impl Versions {
    pub(crate) fn of(database: Database) -> Result<Self, Error> {
        Ok(Self { now: RwLock::new(Version::of(&database)?), database })
    }

    /// A look at it. The writer waits until it is dropped: keep it for a few microseconds.
    pub(crate) fn snapshot(&self) -> Snapshot<'_> {
        Snapshot(SnapshotSource::Shared(self.locked()))
    }

    /// It as it is now, whatever becomes of it: nobody waits for whoever looks at that.
    pub(crate) fn pin(&self) -> PinnedSnapshot {
        PinnedSnapshot(self.locked().clone())
    }

    /// Brings what was kept into the database: `commit` ends the transaction, and whatever it adds is there with it.
    pub(crate) fn flush(
        &self,
        kept: &PinnedSnapshot,
        commit: impl FnOnce(WriteTransaction) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let transaction = self.begin_write()?;
        kept.view().write_recent(&transaction)?;
        commit(transaction)?;
        self.refresh(kept)
    }

    pub(crate) fn begin_write(&self) -> Result<WriteTransaction, Error> {
        Ok(self.database.begin_write()?)
    }

    /// Makes changes visible.
    pub(crate) fn absorb(&self, changes: Memtable) {
        if !changes.is_empty() {
            self.locked_to_write().absorb(changes);
        }
    }

    /// A transaction was committed that has all of what was kept: that need not be over the database any more.
    pub(crate) fn refresh(&self, kept: &PinnedSnapshot) -> Result<(), Error> {
        let stored = Arc::new(OpenDatabase::of(self.database.begin_read()?)?);
        let mut now = self.locked_to_write();
        // While it is kept it does not become one with what is newer.
        let newer = now.recent.len() - kept.0.recent.len();
        let before = (std::mem::replace(&mut now.stored, stored), now.recent.split_off(newer));
        // What was there is dropped when nobody waits for the lock.
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

/// What was there at a moment.
pub(crate) struct PinnedSnapshot(Version);

impl PinnedSnapshot {
    /// What is in a database that nobody writes.
    pub(crate) fn of(database: &Database) -> Result<Self, Error> {
        Ok(Self(Version::of(database)?))
    }

    pub(crate) fn view(&self) -> Snapshot<'_> {
        Snapshot(SnapshotSource::Kept(&self.0))
    }
}

/// A look at what is there.
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

    /// A table of the database as it was last brought up to date.
    pub(crate) fn stored_table<K: Key + 'static, V: Value + 'static>(
        &self,
        definition: &Definition<K, V>,
    ) -> &ReadOnlyTable<K, V> {
        let table = self.now().stored.tables[definition.number].downcast_ref();
        table.expect("a table is opened as what its definition says, at the place of its number")
    }

    /// The database as it was last brought up to date.
    pub(crate) fn stored(&self) -> &ReadTransaction {
        &self.now().stored.transaction
    }

    /// What is over it in a table, the newest first.
    pub(crate) fn layers(&self, table: usize) -> impl Iterator<Item = &SortedRuns> {
        self.now().recent.iter().filter_map(move |layer| layer.rows(table))
    }

    /// Writes what is over the database into it.
    pub(crate) fn write_recent(&self, to: &WriteTransaction) -> Result<(), Error> {
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
    use redb::{Database, backends::InMemoryBackend};

    use super::{MOST_LAYERS, Snapshot, Versions};
    use crate::store::redb::{
        engine::{memtable::Memtable, raw_key::RawKey},
        file::migrations,
        schema::tables::REGISTRATIONS,
    };

    fn put(contents: &Versions, number: usize) {
        let row = (RawKey::of::<&str>(&format!("w{number:03}").as_str()), Some(Box::from(&b""[..])));
        let mut changes = Memtable::default();
        changes.put(REGISTRATIONS.number, [row].into_iter().collect());
        contents.absorb(changes);
    }

    fn count(view: &Snapshot<'_>) -> usize {
        view.table(&REGISTRATIONS).iter().unwrap().count()
    }

    #[test]
    fn what_is_kept_stays_as_it_was_and_layers_that_nobody_keeps_become_one() {
        let database = Database::builder().create_with_backend(InMemoryBackend::new()).unwrap();
        migrations::prepare(&database).unwrap();
        let contents = Versions::of(database).unwrap();
        let mut kept = Vec::new();
        for number in 0..100 {
            kept.push(contents.pin());
            put(&contents, number);
        }
        assert!(kept.iter().map(|kept| count(&kept.view())).eq(0..100));
        assert_eq!(count(&contents.snapshot()), 100);
        assert_eq!(contents.locked().recent.len(), 100, "each is kept by somebody");
        drop(kept);
        for number in 100..200 {
            put(&contents, number);
        }
        assert_eq!(count(&contents.snapshot()), 200);
        assert!(contents.locked().recent.len() <= MOST_LAYERS);
        let kept = contents.pin();
        put(&contents, 200);
        contents.refresh(&kept).unwrap();
        assert_eq!(count(&contents.snapshot()), 1, "the others were said to be in the database");
        contents.refresh(&contents.pin()).unwrap();
        assert_eq!(count(&contents.snapshot()), 0);
    }
}
