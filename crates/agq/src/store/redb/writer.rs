//! The one writer: a thread that drains its inbox, applies every waiting write in one transaction, makes the batch durable
//! once, then answers all (ADR 3). How it becomes durable `commit` knows.

use std::{
    collections::VecDeque,
    sync::{Arc, mpsc},
    thread,
};

use redb::Error;
use tokio::sync::{oneshot, watch};
use tracing::error;

use super::{batch::Batch, commit::Committer, lanes::Lanes};
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
pub(super) fn employ(committer: Committer, arrivals: Arc<Arrivals>) -> Result<Employed, Error> {
    let (writes, inbox) = mpsc::channel();
    let (failed, failure) = watch::channel(None);
    let lanes = Lanes::load(committer.database())?;
    let (turn, bulk) = (VecDeque::new(), VecDeque::new());
    let writer = Writer { inbox, turn, bulk, is_bulks_turn: false, committer, arrivals, lanes, failed };
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
    committer: Committer,
    arrivals: Arc<Arrivals>,
    lanes: Lanes,
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
            match Lanes::load(self.committer.database()) {
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
        let transaction = self.committer.begin()?;
        let redo = self.committer.redo();
        let mut batch = Batch::open(&transaction, &mut self.lanes, &redo, self.arrivals.is_heard());
        let mut promise = Promise::Visible;
        for write in waiting.iter_mut() {
            promise = promise.max(write.promise());
            write.apply(&mut batch)?;
        }
        let arrived = batch.close()?;
        self.committer.commit(transaction, redo, promise)?;
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
mod tests;
