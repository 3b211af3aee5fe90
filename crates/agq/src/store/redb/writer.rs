//! The one writer: a thread that drains its inbox, applies every waiting write in one transaction, makes the batch
//! durable once, then answers all (design, decision 3). Only this file knows how a batch becomes durable.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
};

use redb::{Database, Durability, Error};
use tokio::sync::{oneshot, watch};
use tracing::error;

use super::{batch::Batch, lanes::Lanes};
use crate::store::{Answer, Arrivals, Promise, StoreError};

/// Most writes that one transaction takes: what came later waits for the next.
const MAX_BATCH: usize = 1024;
/// Most jobs that they add; one write may pass it, for it is done whole.
const MAX_NEW_JOBS: usize = 2000;

/// How much a write is, and whether others may pass it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Size {
    /// A few records.
    Small,
    /// So many new jobs, in its turn: what comes behind it on its connection may need them.
    Jobs(usize),
    /// So many new jobs of someone who sends nothing else until they are there: they have a transaction of their own, and what
    /// comes behind passes them once.
    Bulk(usize),
}

impl Size {
    fn new_jobs(self) -> usize {
        match self {
            Self::Small => 0,
            Self::Jobs(count) | Self::Bulk(count) => count,
        }
    }
}

/// A disk that fails while it writes may have written: nobody knows before the file is opened again.
const IN_DOUBT: &str = "whether it was written is known when agq has started again";

/// A write on its way through the writer.
trait Waiting: Send {
    fn promise(&self) -> Promise;
    fn size(&self) -> Size;
    fn apply(&mut self, batch: &mut Batch<'_>) -> Result<(), Error>;
    fn answer(self: Box<Self>, fate: Result<(), StoreError>);
}

struct Write<T, F> {
    promise: Promise,
    size: Size,
    /// Taken when it is applied.
    work: Option<F>,
    done: Option<T>,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

impl<T, F> Waiting for Write<T, F>
where
    T: Send,
    F: FnOnce(&mut Batch<'_>) -> Result<T, Error> + Send,
{
    fn promise(&self) -> Promise {
        self.promise
    }

    fn size(&self) -> Size {
        self.size
    }

    fn apply(&mut self, batch: &mut Batch<'_>) -> Result<(), Error> {
        if let Some(work) = self.work.take() {
            self.done = Some(work(batch)?);
        }
        Ok(())
    }

    fn answer(self: Box<Self>, fate: Result<(), StoreError>) {
        let Self { done, reply, .. } = *self;
        let never = || StoreError("the write was never applied".into());
        // Whoever asked may have gone.
        let _gone = reply.send(fate.and_then(|()| done.ok_or_else(never)));
    }
}

/// The way to the writer. When the last of them is dropped the writer makes everything durable and ends.
#[derive(Clone)]
pub(super) struct Inbox {
    writes: mpsc::Sender<Box<dyn Waiting>>,
}

impl Inbox {
    /// Hands a write to the writer; its place in the order is taken before this returns.
    pub(super) fn write<T, F>(&self, promise: Promise, size: Size, work: F) -> Answer<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut Batch<'_>) -> Result<T, Error> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let write = Write { promise, size, work: Some(work), done: None, reply };
        let sent = self.writes.send(Box::new(write));
        Box::pin(async move {
            let gone = || StoreError("the store has stopped".into());
            sent.map_err(|_| gone())?;
            answer.await.map_err(|_| gone())?
        })
    }
}

/// The writer, the way in, and the reason why it cannot go on, once there is one.
type Employed = (Writer, Inbox, watch::Receiver<Option<String>>);

/// A writer that has yet to be set to work.
pub(super) fn employ(
    database: Arc<Database>,
    arrivals: Arc<Arrivals>,
    owes_sync: Arc<AtomicBool>,
) -> Result<Employed, Error> {
    let (writes, inbox) = mpsc::channel();
    let (failed, failure) = watch::channel(None);
    let lanes = Lanes::load(&database)?;
    let (turn, bulk) = (VecDeque::new(), VecDeque::new());
    let writer =
        Writer { inbox, turn, bulk, is_bulks_turn: false, database, arrivals, lanes, owes_sync, failed };
    Ok((writer, Inbox { writes }, failure))
}

/// After an error of the disk redb refuses everything until the file is opened again.
fn is_fatal(error: &Error) -> bool {
    matches!(error, Error::Io(_) | Error::PreviousIo | Error::LockPoisoned(_))
}

pub(crate) struct Writer {
    inbox: mpsc::Receiver<Box<dyn Waiting>>,
    /// What came in and waits for its turn.
    turn: VecDeque<Box<dyn Waiting>>,
    /// Submissions in bulk: one of them, then all others, and so on.
    bulk: VecDeque<Box<dyn Waiting>>,
    is_bulks_turn: bool,
    database: Arc<Database>,
    arrivals: Arc<Arrivals>,
    lanes: Lanes,
    /// Whether something visible is not on disk yet.
    owes_sync: Arc<AtomicBool>,
    failed: watch::Sender<Option<String>>,
}

impl Writer {
    /// Sets it to work on a thread of its own, which ends when the last way in is dropped.
    pub(super) fn work(mut self) -> std::io::Result<thread::JoinHandle<()>> {
        thread::Builder::new().name("writer".into()).spawn(move || {
            loop {
                if self.turn.is_empty() && self.bulk.is_empty() {
                    let Ok(first) = self.inbox.recv() else { break };
                    self.sort(first);
                }
                self.write_batch(MAX_BATCH);
            }
            if self.owes_sync.load(Ordering::Relaxed) {
                self.commit(Vec::new());
            }
        })
    }

    /// Writes one batch of at most so many waiting writes, on the spot; whether any waited.
    #[cfg(feature = "simulation")]
    pub(crate) fn step(&mut self, most: usize) -> bool {
        self.write_batch(most)
    }

    fn sort(&mut self, write: Box<dyn Waiting>) {
        match write.size() {
            Size::Bulk(_) => self.bulk.push_back(write),
            _ => self.turn.push_back(write),
        }
    }

    /// Writes the next batch of at most so many writes; whether any waited.
    fn write_batch(&mut self, most: usize) -> bool {
        while let Ok(write) = self.inbox.try_recv() {
            self.sort(write);
        }
        let is_bulk = !self.bulk.is_empty() && (self.is_bulks_turn || self.turn.is_empty());
        self.is_bulks_turn = !is_bulk;
        let waiting = next_of(if is_bulk { &mut self.bulk } else { &mut self.turn }, most);
        let is_any = !waiting.is_empty();
        if is_any {
            self.commit(waiting);
        }
        is_any
    }

    fn commit(&mut self, mut waiting: Vec<Box<dyn Waiting>>) {
        let fate = self.transact(&mut waiting).map_err(|error| {
            error!(%error, writes = waiting.len(), "a batch could not be written");
            if is_fatal(&error) {
                self.failed.send_replace(Some(error.to_string()));
            }
            let known = if is_fatal(&error) { IN_DOUBT } else { "it was not written" };
            StoreError(format!("{error}; {known}"))
        });
        if fate.is_err() {
            match Lanes::load(&self.database) {
                Ok(lanes) => self.lanes = lanes,
                Err(error) => {
                    error!(%error, "the lanes could not be read again");
                    self.failed.send_replace(Some(error.to_string()));
                }
            }
        }
        for write in waiting {
            write.answer(fate.clone());
        }
    }

    fn transact(&mut self, waiting: &mut [Box<dyn Waiting>]) -> Result<(), Error> {
        let must_sync = waiting.is_empty() || waiting.iter().any(|write| write.promise() == Promise::Durable);
        let mut transaction = self.database.begin_write()?;
        transaction.set_durability(if must_sync { Durability::Immediate } else { Durability::None })?;
        let mut batch = Batch::open(&transaction, &mut self.lanes, self.arrivals.is_heard())?;
        for write in waiting.iter_mut() {
            write.apply(&mut batch)?;
        }
        let arrived = batch.close()?;
        transaction.commit()?;
        self.owes_sync.store(!must_sync, Ordering::Relaxed);
        self.arrivals.announce(arrived);
        Ok(())
    }
}

/// What is next of those that wait, until it is many writes or many jobs.
fn next_of(waiting: &mut VecDeque<Box<dyn Waiting>>, most: usize) -> Vec<Box<dyn Waiting>> {
    let mut batch = Vec::with_capacity(64);
    let mut new_jobs = 0;
    while batch.len() < most && new_jobs < MAX_NEW_JOBS {
        let Some(write) = waiting.pop_front() else { break };
        new_jobs += write.size().new_jobs();
        batch.push(write);
    }
    batch
}

#[cfg(test)]
mod tests {
    use std::{
        io,
        sync::{
            Arc,
            atomic::{AtomicBool, AtomicU64, Ordering},
            mpsc,
        },
    };

    use bytes::Bytes;
    use redb::{Database, StorageBackend, backends::InMemoryBackend};

    use super::Size;
    use crate::store::{Answer, Content, Entry, Keyspace, Promise, Records, look, redb::RedbStore};

    /// Memory that counts how often it is synced, and can be full.
    #[derive(Debug, Default)]
    struct Counting {
        memory: InMemoryBackend,
        syncs: Arc<AtomicU64>,
        is_full: Arc<AtomicBool>,
    }

    impl StorageBackend for Counting {
        fn len(&self) -> io::Result<u64> {
            self.memory.len()
        }
        fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
            self.memory.read(offset, out)
        }
        fn set_len(&self, len: u64) -> io::Result<()> {
            self.memory.set_len(len)
        }
        fn sync_data(&self) -> io::Result<()> {
            self.syncs.fetch_add(1, Ordering::Relaxed);
            self.memory.sync_data()
        }
        fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
            if self.is_full.load(Ordering::Relaxed) {
                return Err(io::Error::from(io::ErrorKind::StorageFull));
            }
            self.memory.write(offset, data)
        }
    }

    /// Sets a string.
    fn set(store: &RedbStore, key: String, value: &'static str) -> Answer<()> {
        let entry = Entry { content: Content::Text(Bytes::from(value)), expires_at: None };
        store.change(Box::new(move |keys| keys.put_entry(key.as_bytes(), &entry)))
    }

    #[tokio::test]
    async fn a_hundred_writes_that_wait_share_one_sync() {
        let backend = Counting::default();
        let syncs = Arc::clone(&backend.syncs);
        let store = RedbStore::start(Database::builder().create_with_backend(backend).unwrap()).unwrap();
        let ((go, gone), (begin, begun)) = (mpsc::channel(), mpsc::channel());
        // The writer is kept at work while a hundred writes come in.
        let first = store.write(Promise::Visible, move |_| Ok(begin.send(()).is_ok() && gone.recv().is_ok()));
        begun.recv().unwrap();
        let waiting: Vec<_> = (0..100).map(|n| set(&store, format!("k{n}"), "")).collect();
        let before = syncs.load(Ordering::Relaxed);
        go.send(()).unwrap();
        assert!(first.await.unwrap());
        for write in waiting {
            write.await.unwrap();
        }
        assert_eq!(syncs.load(Ordering::Relaxed) - before, 1);
        let is_there = look(&store, |keys| Ok(keys.entry(b"k0")?.is_some() && keys.entry(b"k99")?.is_some()));
        assert!(is_there.await.unwrap());
        store.sync().await.unwrap();
        assert_eq!(syncs.load(Ordering::Relaxed) - before, 1, "there was nothing left to sync");
    }

    #[tokio::test]
    async fn of_submissions_in_bulk_one_comes_first_and_the_next_is_passed() {
        let store = RedbStore::in_memory().unwrap();
        let ((go, gone), (begin, begun)) = (mpsc::channel(), mpsc::channel());
        let first = store.write(Promise::Visible, move |_| Ok(begin.send(()).is_ok() && gone.recv().is_ok()));
        begun.recv().unwrap();
        let ((note, order), bulk) = (mpsc::channel(), Size::Bulk(10_000));
        let writes = [("a", bulk), ("b", Size::Small), ("c", bulk), ("d", Size::Jobs(1))];
        let waiting = writes.map(|(name, size)| {
            let note = note.clone();
            store.write_sized(Promise::Visible, size, move |_| Ok(note.send(name).is_ok()))
        });
        go.send(()).unwrap();
        assert!(first.await.unwrap());
        for write in waiting {
            assert!(write.await.unwrap());
        }
        assert_eq!(order.try_iter().collect::<Vec<_>>(), ["a", "b", "d", "c"]);
    }

    #[tokio::test]
    async fn a_full_disk_is_no_ok_and_the_store_says_that_it_cannot_go_on() {
        let backend = Counting::default();
        let is_full = Arc::clone(&backend.is_full);
        let store = RedbStore::start(Database::builder().create_with_backend(backend).unwrap()).unwrap();
        set(&store, "k".into(), "v").await.unwrap();
        is_full.store(true, Ordering::Relaxed);
        assert!(set(&store, "k".into(), "w").await.is_err());
        let reason = store.failure().await;
        assert!(!reason.is_empty());
    }
}
