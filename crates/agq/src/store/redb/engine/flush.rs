//! Flushes the memtable into the database while the writer continues (ADR 15).

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver, Sender},
    },
    thread::{self, JoinHandle},
};

use redb::Error;

use crate::store::redb::{
    engine::{
        recovery::make_durable,
        snapshot::{PinnedSnapshot, Versions},
    },
    schema::Result,
};

/// A snapshot to flush, the WAL, and the number of the first record that is not in the snapshot.
pub(crate) struct Flush {
    pub(crate) kept: PinnedSnapshot,
    pub(crate) wal: u64,
    pub(crate) next: u64,
}

impl Flush {
    fn run(self, versions: &Versions) -> Result<()> {
        versions.flush(&self.kept, |transaction| make_durable(transaction, self.wal, self.next))
    }
}

/// Runs flushes, one after the other.
pub(crate) enum Flusher {
    Threaded(Thread),
    /// For the simulation: the writer runs the flush after a determined number of batches.
    #[cfg(feature = "simulation")]
    Deferred {
        versions: Arc<Versions>,
        waiting: Option<(Flush, u64)>,
    },
}

pub(crate) struct Thread {
    /// `None` when the thread has to end.
    orders: Option<Sender<Flush>>,
    outcomes: Receiver<Result<()>>,
    /// True while the outcome of the last flush has not been received.
    is_owed: bool,
    is_busy: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Flusher {
    pub(crate) fn threaded(versions: Arc<Versions>) -> io::Result<Self> {
        let ((orders, ordered), (tell, outcomes)) = (mpsc::channel::<Flush>(), mpsc::channel());
        let is_busy = Arc::new(AtomicBool::new(false));
        let busy = Arc::clone(&is_busy);
        let work = move || {
            for flush in ordered {
                let outcome = flush.run(&versions);
                busy.store(false, Ordering::Release);
                // The caller receives the outcome when it starts the next flush.
                let _gone = tell.send(outcome);
            }
        };
        let thread = Some(thread::Builder::new().name("flush".into()).spawn(work)?);
        Ok(Self::Threaded(Thread { orders: Some(orders), outcomes, is_owed: false, is_busy, thread }))
    }

    #[cfg(feature = "simulation")]
    pub(crate) fn deferred(versions: Arc<Versions>) -> Self {
        Self::Deferred { versions, waiting: None }
    }

    /// Returns true while a flush runs. The next flush has to wait.
    pub(crate) fn is_busy(&self) -> bool {
        match self {
            Self::Threaded(thread) => thread.is_busy.load(Ordering::Acquire),
            #[cfg(feature = "simulation")]
            Self::Deferred { waiting, .. } => waiting.is_some(),
        }
    }

    /// Starts a flush. The caller has waited for the previous one.
    pub(crate) fn begin(&mut self, flush: Flush) -> Result<()> {
        match self {
            Self::Threaded(thread) => {
                thread.is_busy.store(true, Ordering::Release);
                thread.is_owed = true;
                let sent = thread.orders.as_ref().map(|orders| orders.send(flush));
                sent.and_then(Result::ok).ok_or_else(thread_ended)
            }
            #[cfg(feature = "simulation")]
            Self::Deferred { waiting, .. } => {
                // The flush runs soon, and sometimes so late that the other half of the WAL is full
                // before.
                let batches = if flush.next.is_multiple_of(5) { 15 } else { flush.next % 4 };
                *waiting = Some((flush, batches));
                Ok(())
            }
        }
    }

    /// Returns the outcome of the last flush if it has ended. The writer calls the method for every
    /// batch.
    pub(crate) fn poll(&mut self) -> Result<()> {
        match self {
            Self::Threaded(thread) if thread.is_owed && !thread.is_busy.load(Ordering::Acquire) => {
                self.wait()
            }
            Self::Threaded(_) => Ok(()),
            #[cfg(feature = "simulation")]
            Self::Deferred { waiting: Some((_, batches)), .. } if *batches > 0 => {
                *batches -= 1;
                Ok(())
            }
            #[cfg(feature = "simulation")]
            Self::Deferred { .. } => self.wait(),
        }
    }

    /// Waits until the last flush is durable.
    pub(crate) fn wait(&mut self) -> Result<()> {
        match self {
            Self::Threaded(thread) if thread.is_owed => {
                thread.is_owed = false;
                thread.outcomes.recv().map_err(|_| thread_ended())?
            }
            Self::Threaded(_) => Ok(()),
            #[cfg(feature = "simulation")]
            Self::Deferred { versions, waiting } => {
                waiting.take().map_or(Ok(()), |(flush, _)| flush.run(versions))
            }
        }
    }
}

fn thread_ended() -> Error {
    Error::Io(io::Error::other("the flush thread panicked"))
}

impl Drop for Thread {
    fn drop(&mut self) {
        self.orders = None;
        let thread = self.thread.take().map(JoinHandle::join);
        if let Some(Err(_panic)) = thread {
            tracing::error!("the flush thread panicked");
        }
    }
}
