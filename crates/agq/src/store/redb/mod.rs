//! The store on redb: a database file with a write-ahead log (WAL), one writer, and many readers.
//!
//! | Module | Responsibility |
//! |---|---|
//! | [`schema`] | tables, order of keys, encoding of records |
//! | [`engine`] | WAL, memtable, snapshots, flush, recovery |
//! | `txn` | write transactions: changes of records, indexes and counts |
//! | `writer` | group commit of write transactions |
//! | [`queries`] | reads of a snapshot |
//! | `records`, `keyspace` | the traits of the store, on `txn` and `queries` |
//! | `file` | opening, migrating, backup, export and import of the file |
//! | `check` | finds inconsistencies of a database |
//! | `manual` | the store for simulations |

mod check;
pub(crate) mod engine;
mod file;
mod keyspace;
#[cfg(feature = "simulation")]
mod manual;
pub(crate) mod queries;
mod records;
pub(crate) mod schema;
mod txn;
mod writer;

use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError, atomic::AtomicBool},
    thread::JoinHandle,
};

use anyhow::Context;
use futures_util::future::ready;
use redb::{Database, StorageBackend, backends::InMemoryBackend};
use tokio::sync::watch;

pub(crate) use self::{
    file::{DatabaseReport, examine, lock_dir},
    writer::{Writer, group_commit::GroupCommit},
};
pub(crate) use crate::store::redb::{
    file::export::{export, import},
    schema::{Result, tables::FORMAT},
};

use super::{AckLevel, ChangeNotifier, Durability, OpenOptions, StoreError, StoreFuture};
use crate::store::redb::{
    engine::{Committer, Flusher, Snapshot, Versions, begin_wal, replay_wal},
    file::migrations,
    txn::WriteTxn,
    writer::queue::{WriteHandle, WriteSize},
};

/// A store in a redb database with a WAL, one writer, and any number of readers of snapshots.
pub(crate) struct RedbStore {
    /// `None` while the store closes.
    write_handle: Option<WriteHandle>,
    /// `None` if the simulation runs the writer.
    pub(crate) group_commit: Option<Arc<GroupCommit>>,
    writer: Mutex<Option<JoinHandle<()>>>,
    versions: Arc<Versions>,
    notifier: Arc<ChangeNotifier>,
    /// True while a visible write is not on disk.
    owes_sync: Arc<AtomicBool>,
    /// Reason why the writer has stopped, once there is one.
    failed: watch::Receiver<Option<String>>,
    long_work: LongReads,
}

/// Size of a WAL, in bytes. A flush starts whenever half of it is full.
const WAL_BYTES: u64 = 8 << 20;

struct WalFile {
    file: Box<dyn StorageBackend>,
    /// Id of the WAL, unique among all WALs.
    id: u64,
    bytes: u64,
}

/// Execution of long reads and flushes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LongReads {
    /// On separate threads.
    Aside,
    /// On the calling thread, because the simulation needs a deterministic order.
    #[cfg(feature = "simulation")]
    InPlace,
}

impl RedbStore {
    pub(crate) fn open(path: &Path, opening: OpenOptions) -> anyhow::Result<Self> {
        let opened = || {
            let (database, wal) = (file::open(path, opening.max_checked_bytes)?, file::open_wal_file(path)?);
            let id = uuid::Uuid::new_v4().as_u64_pair().0;
            let with = WalFile { file: Box::new(wal), id, bytes: WAL_BYTES };
            Self::start(database, with, opening.durability)
        };
        opened().with_context(|| format!("cannot use the database {}", path.display()))
    }

    #[cfg_attr(not(test), expect(dead_code, reason = "tests need no file"))]
    pub(crate) fn in_memory() -> anyhow::Result<Self> {
        Self::with_wal(InMemoryBackend::new())
    }

    /// Returns a store in memory with its WAL in `wal`.
    fn with_wal(wal: impl StorageBackend) -> anyhow::Result<Self> {
        let database = Database::builder().create_with_backend(InMemoryBackend::new())?;
        let with = WalFile { file: Box::new(wal), id: 1, bytes: 1 << 16 };
        Self::start(database, with, Durability::default())
    }

    fn start(database: Database, with: WalFile, durability: Durability) -> anyhow::Result<Self> {
        let (mut store, writer) = Self::start_writer(database, with, durability, LongReads::Aside)?;
        let queue =
            store.write_handle.as_ref().map(|write_handle| Arc::clone(&write_handle.0)).unwrap_or_default();
        let group_commit = GroupCommit::new(writer, queue);
        *store.writer.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(Arc::clone(&group_commit).work()?);
        store.group_commit = Some(group_commit);
        Ok(store)
    }

    fn start_writer(
        database: Database,
        with: WalFile,
        durability: Durability,
        long_work: LongReads,
    ) -> anyhow::Result<(Self, Writer)> {
        migrations::check(&database)?;
        replay_wal(&database, &*with.file)?;
        migrations::prepare(&database)?;
        let wal = begin_wal(&database, with.file, with.id, with.bytes)?;
        let (versions, notifier) = (Arc::new(Versions::of(database)?), Arc::new(ChangeNotifier::default()));
        let owes_sync = Arc::new(AtomicBool::new(false));
        let flusher = long_work.flusher(Arc::clone(&versions))?;
        let owed = Arc::clone(&owes_sync);
        let committer = Committer::new(Arc::clone(&versions), wal, flusher, durability, owed);
        let (writer, write_handle, failed) = writer::start(committer, Arc::clone(&notifier))?;
        let store = Self {
            write_handle: Some(write_handle),
            group_commit: None,
            writer: Mutex::default(),
            versions,
            notifier,
            owes_sync,
            failed,
            long_work,
        };
        Ok((store, writer))
    }

    fn write<T, F>(&self, ack_level: AckLevel, work: F) -> StoreFuture<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut WriteTxn<'_>) -> Result<T> + Send + 'static,
    {
        self.write_sized(ack_level, WriteSize::Small, work)
    }

    fn write_sized<T, F>(&self, ack_level: AckLevel, size: WriteSize, work: F) -> StoreFuture<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut WriteTxn<'_>) -> Result<T> + Send + 'static,
    {
        match &self.write_handle {
            Some(write_handle) => write_handle.write(ack_level, size, work),
            None => Box::pin(ready(Err(StoreError("the store has stopped".into())))),
        }
    }

    /// Runs a short read on the calling thread.
    fn query<T, F>(&self, work: F) -> StoreFuture<T>
    where
        T: Send + 'static,
        F: FnOnce(&Snapshot<'_>) -> Result<T>,
    {
        Box::pin(ready(shown(work(&self.versions.snapshot()))))
    }

    /// Runs a read that may be long, on a thread on which no other work waits for the read.
    fn scan<T, F>(&self, work: F) -> StoreFuture<T>
    where
        T: Send + 'static,
        F: FnOnce(&Snapshot<'_>) -> Result<T> + Send + 'static,
    {
        let kept = self.versions.pin();
        self.long_work.run(move || shown(work(&kept.snapshot())))
    }
}

fn shown<T>(outcome: Result<T>) -> Result<T, StoreError> {
    outcome.map_err(|error| StoreError(error.to_string()))
}

impl LongReads {
    fn flusher(self, versions: Arc<Versions>) -> std::io::Result<Flusher> {
        match self {
            Self::Aside => Flusher::threaded(versions),
            #[cfg(feature = "simulation")]
            Self::InPlace => Ok(Flusher::deferred(versions)),
        }
    }

    fn run<T: Send + 'static>(
        self,
        read: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
    ) -> StoreFuture<T> {
        match self {
            Self::Aside => {
                let scan = tokio::task::spawn_blocking(read);
                Box::pin(async move { scan.await.map_err(|error| StoreError(error.to_string()))? })
            }
            #[cfg(feature = "simulation")]
            Self::InPlace => Box::pin(ready(read())),
        }
    }
}

impl Drop for RedbStore {
    /// Waits until the writer has done everything that was submitted.
    fn drop(&mut self) {
        self.write_handle = None;
        self.group_commit = None;
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(writer) = writer
            && writer.join().is_err()
        {
            tracing::error!("the writer thread panicked");
        }
    }
}
