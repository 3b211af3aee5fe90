//! How a batch becomes durable; nobody else knows. What a batch wrote goes into the journal, with one sync for all of it, and
//! becomes visible without any. Now and then the database itself is made durable, and the journal begins anew (ADR 7).

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use redb::{Database, Durability as Sync, Error, WriteTransaction};

use super::{
    journal::Journal,
    logged::Redo,
    recovery::{make_durable, mark, no_journal},
};
use crate::store::{Durability, Promise};

/// A batch that wrote more is not for the journal: it makes the database durable itself, so that nothing large is written twice.
const MOST_JOURNALED: usize = 256 * 1024;
/// What nobody waits for is written when it is so much.
const MOST_PENDING: usize = 256 * 1024;

/// A disk whose syncs take longer is slow.
const SLOW_SYNC_US: u64 = 600;

pub(super) struct Committer {
    database: Arc<Database>,
    journal: Journal,
    durability: Durability,
    /// Whether something visible is not on disk yet.
    owes_sync: Arc<AtomicBool>,
    /// The record that the database names as the first one that may hold more.
    marked: u64,
    /// How long a sync takes, in microseconds, on average and lately.
    sync_us: u64,
    /// After that the journal and the database may differ: only starting again brings them together.
    has_failed: bool,
}

impl Committer {
    pub(super) fn new(
        database: Arc<Database>,
        journal: Journal,
        durability: Durability,
        owes_sync: Arc<AtomicBool>,
    ) -> Self {
        let marked = journal.next();
        Self { database, journal, durability, owes_sync, marked, sync_us: 0, has_failed: false }
    }

    pub(super) fn database(&self) -> &Database {
        &self.database
    }

    pub(super) fn begin(&self) -> Result<WriteTransaction, Error> {
        if self.has_failed {
            return Err(Error::PreviousIo);
        }
        Ok(self.database.begin_write()?)
    }

    /// Nothing is written any more.
    pub(super) fn give_up(&mut self) {
        self.has_failed = true;
    }

    /// Whether a batch is soon on disk, so that a thread that has other work may wait for it.
    pub(super) fn is_quick(&self) -> bool {
        self.durability == Durability::Interval || self.sync_us < SLOW_SYNC_US
    }

    /// How long a batch may wait for others to come: where the disk is slow, a quarter of a sync.
    pub(super) fn worth_waiting(&self) -> Duration {
        if self.is_quick() { Duration::ZERO } else { Duration::from_micros(self.sync_us / 4) }
    }

    /// Where the next batch notes what it writes.
    pub(super) fn redo(&self) -> Redo {
        Redo::up_to(self.journal.room().min(MOST_JOURNALED))
    }

    /// Makes a batch visible, and durable where that was promised to anybody in it. An error is final.
    pub(super) fn commit(
        &mut self,
        transaction: WriteTransaction,
        redo: Redo,
        promise: Promise,
    ) -> Result<(), Error> {
        let done = match redo.into_bytes() {
            Some(notes) => self.commit_by_journal(transaction, &notes, promise),
            None => self.commit_at_once(transaction),
        };
        self.has_failed |= done.is_err();
        self.owes_sync.store(self.journal.owes_sync(), Ordering::Relaxed);
        done
    }

    fn commit_by_journal(
        &mut self,
        mut transaction: WriteTransaction,
        notes: &[u8],
        promise: Promise,
    ) -> Result<(), Error> {
        self.journal.note(notes);
        // redb makes everything durable when it is closed, also after an error that kept it out of the journal. What it holds may
        // be newer than a record then, and must not be made older by it.
        let record = self.journal.next();
        if self.must_sync(promise) && self.journal.owes_sync() {
            let begun = Instant::now();
            self.journal.sync()?;
            self.sync_us = smoothed(self.sync_us, begun.elapsed());
        } else if self.durability == Durability::Interval || self.journal.pending() > MOST_PENDING {
            self.journal.write()?;
        }
        if notes.is_empty() {
            return Ok(transaction.abort()?);
        }
        if record != self.marked {
            mark(&transaction, self.journal.id(), record)?;
            self.marked = record;
        }
        transaction.set_durability(Sync::None)?;
        Ok(transaction.commit()?)
    }

    fn must_sync(&self, promise: Promise) -> bool {
        match self.durability {
            Durability::Always => true,
            Durability::Promised => promise >= Promise::Durable,
            Durability::Interval => promise == Promise::OnDisk,
        }
    }

    fn commit_at_once(&mut self, transaction: WriteTransaction) -> Result<(), Error> {
        make_durable(transaction, self.journal.id(), self.journal.next())?;
        self.marked = self.journal.next();
        self.journal.begin_anew();
        Ok(())
    }
}

/// A moving average: the newest counts for an eighth.
fn smoothed(average_us: u64, newest: Duration) -> u64 {
    let newest = u64::try_from(newest.as_micros()).unwrap_or(u64::MAX);
    average_us - average_us / 8 + newest / 8
}

impl Drop for Committer {
    /// The database is complete without its journal.
    fn drop(&mut self) {
        if self.has_failed {
            return;
        }
        if let Err(error) = self.begin().and_then(no_journal) {
            tracing::warn!(%error, "the database is not complete without its journal; the next start reads it");
        }
    }
}
