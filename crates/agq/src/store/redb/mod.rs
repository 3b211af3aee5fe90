//! The store on redb: a database and its journal, one writer, many readers.
//!
//! Everything there is has three layers: the database, over it the `memtable` with what was written since the database was
//! brought up to date, and over that what a `batch` changes; the last two are `rows` for each table. A `view` is a look at the
//! first two, a `table` shows all three as one.
//!
//! Writes come in by the `inbox`; the `writer` alone applies them, `duty` says on which thread; `actions`, `claims`,
//! `workers`, `pruning` and `keyspace` are what can be done in a batch, `lanes` is what the writer has `known` by heart,
//! `key_table` and `list_table` are tables with what a batch has at hand of them. `commit` makes a batch durable by the
//! `journal` and visible in the memtable, `merge` brings it from there into the tables of the database, and `recovery` puts
//! together again what the files hold. `records` hands all of it out, `reads` and `key_reads` look. `file` opens the
//! database, `format` brings it to the format of today, `check` says what in it contradicts itself, `backup` copies it,
//! `portable` makes of it what any store can read.

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
use redb::{Database, Error, StorageBackend, backends::InMemoryBackend};
use tokio::sync::watch;

pub(crate) use self::{
    file::{DatabaseReport, examine, lock_dir, parent},
    writer::Writer,
};
pub(crate) use crate::store::redb::{
    file::export::{export, import},
    schema::tables::FORMAT,
};

use super::{AckLevel, ChangeNotifier, Durability, OpenOptions, StoreError, StoreFuture};
use crate::store::redb::{
    engine::{Committer, Flusher, Snapshot, Versions, begin_wal, replay_wal},
    file::migrations,
    txn::WriteTxn,
    writer::{
        group_commit::GroupCommit,
        queue::{WriteHandle, WriteSize},
    },
};

/// A redb database with its writer.
pub(crate) struct RedbStore {
    /// `None` once the store is closing.
    inbox: Option<WriteHandle>,
    /// `None` where the writer is worked by hand.
    duty: Option<Arc<GroupCommit>>,
    writer: Mutex<Option<JoinHandle<()>>>,
    contents: Arc<Versions>,
    notifier: Arc<ChangeNotifier>,
    /// Whether something visible is not on disk yet.
    owes_sync: Arc<AtomicBool>,
    /// Why the writer cannot go on.
    failed: watch::Receiver<Option<String>>,
    long_work: LongReads,
}

/// The size of a journal: when half of it is full, the database is brought up to date.
const JOURNAL_BYTES: u64 = 8 << 20;

/// Where the journal is kept, and what a new one is like.
struct WalFile {
    file: Box<dyn StorageBackend>,
    /// Not that of any other journal.
    id: u64,
    bytes: u64,
}

fn new_journal_id() -> u64 {
    uuid::Uuid::new_v4().as_u64_pair().0
}

/// Where is done what may be long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LongReads {
    /// Where they keep nobody waiting.
    Aside,
    /// On the spot: whoever runs the writer by hand wants everything in one order.
    #[cfg(feature = "simulation")]
    InPlace,
}

impl RedbStore {
    /// Opens the database file and its journal, or creates them.
    pub(crate) fn open(path: &Path, opening: OpenOptions) -> anyhow::Result<Self> {
        let opened = || {
            let (database, journal) =
                (file::open(path, opening.max_checked_bytes)?, file::open_journal(path)?);
            let with = WalFile { file: Box::new(journal), id: new_journal_id(), bytes: JOURNAL_BYTES };
            Self::start(database, with, opening.durability)
        };
        opened().with_context(|| format!("cannot use the database {}", path.display()))
    }

    /// A store that forgets everything when it is dropped.
    #[cfg_attr(not(test), expect(dead_code, reason = "tests need no file"))]
    pub(crate) fn in_memory() -> anyhow::Result<Self> {
        Self::with_journal(InMemoryBackend::new())
    }

    /// The same, with its journal in a place of its own.
    fn with_journal(journal: impl StorageBackend) -> anyhow::Result<Self> {
        let database = Database::builder().create_with_backend(InMemoryBackend::new())?;
        let with = WalFile { file: Box::new(journal), id: 1, bytes: 1 << 16 };
        Self::start(database, with, Durability::default())
    }

    fn start(database: Database, with: WalFile, durability: Durability) -> anyhow::Result<Self> {
        let (mut store, writer) = Self::start_writer(database, with, durability, LongReads::Aside)?;
        let queue = store.inbox.as_ref().map(|inbox| Arc::clone(&inbox.0)).unwrap_or_default();
        let duty = GroupCommit::new(writer, queue);
        *store.writer.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&duty).work()?);
        store.duty = Some(duty);
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
        let journal = begin_wal(&database, with.file, with.id, with.bytes)?;
        let (contents, notifier) = (Arc::new(Versions::of(database)?), Arc::new(ChangeNotifier::default()));
        let owes_sync = Arc::new(AtomicBool::new(false));
        let flusher = long_work.flusher(Arc::clone(&contents))?;
        let owed = Arc::clone(&owes_sync);
        let committer = Committer::new(Arc::clone(&contents), journal, flusher, durability, owed);
        let (writer, inbox, failed) = writer::start(committer, Arc::clone(&notifier))?;
        let (inbox, thread) = (Some(inbox), Mutex::new(None));
        Ok((
            Self { inbox, duty: None, writer: thread, contents, notifier, owes_sync, failed, long_work },
            writer,
        ))
    }

    fn write<T, F>(&self, promise: AckLevel, work: F) -> StoreFuture<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut WriteTxn<'_>) -> Result<T, Error> + Send + 'static,
    {
        self.write_sized(promise, WriteSize::Small, work)
    }

    fn write_sized<T, F>(&self, promise: AckLevel, size: WriteSize, work: F) -> StoreFuture<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut WriteTxn<'_>) -> Result<T, Error> + Send + 'static,
    {
        match &self.inbox {
            Some(inbox) => inbox.write(promise, size, work),
            None => Box::pin(ready(Err(StoreError("the store has stopped".into())))),
        }
    }

    /// A short read, done on the spot: a few microseconds.
    fn query<T, F>(&self, work: F) -> StoreFuture<T>
    where
        T: Send + 'static,
        F: FnOnce(&Snapshot<'_>) -> Result<T, Error>,
    {
        Box::pin(ready(shown(work(&self.contents.snapshot()))))
    }

    /// A read that may be long, done where it keeps nobody waiting.
    fn scan<T, F>(&self, work: F) -> StoreFuture<T>
    where
        T: Send + 'static,
        F: FnOnce(&Snapshot<'_>) -> Result<T, Error> + Send + 'static,
    {
        let kept = self.contents.pin();
        self.long_work.run(move || shown(work(&kept.view())))
    }
}

fn shown<T>(outcome: Result<T, Error>) -> Result<T, StoreError> {
    outcome.map_err(|error| StoreError(error.to_string()))
}

impl LongReads {
    fn flusher(self, contents: Arc<Versions>) -> std::io::Result<Flusher> {
        match self {
            Self::Aside => Flusher::threaded(contents),
            #[cfg(feature = "simulation")]
            Self::InPlace => Ok(Flusher::deferred(contents)),
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
    /// Lets the writer finish what it was given.
    fn drop(&mut self) {
        self.inbox = None;
        self.duty = None;
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(writer) = writer
            && writer.join().is_err()
        {
            tracing::error!("the writer thread panicked");
        }
    }
}
