//! How a batch becomes durable and visible; nobody else knows. What it wrote goes into the journal, with one sync for all of it, and
//! into memory. When a half of the journal is full the database is brought up to date, while the other half is filled (ADR 7, ADR 9,
//! ADR 15).

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use redb::Error;

use crate::store::{
    AckLevel, Durability,
    redb::engine::{
        flush::{Flush, Flusher},
        memtable::Memtable,
        recovery::{make_durable, remove_wal_position},
        snapshot::{Snapshot, Versions},
        wal::Wal,
    },
};

/// A batch that wrote more is not for the journal: it goes into the database itself, so that nothing large is written twice.
const MOST_JOURNALED: usize = 256 * 1024;
/// What nobody waits for is written when it is so much.
const MOST_PENDING: usize = 256 * 1024;

/// A disk whose syncs take longer is slow.
const SLOW_SYNC_US: u64 = 600;

pub(crate) struct Committer {
    contents: Arc<Versions>,
    journal: Wal,
    flusher: Flusher,
    durability: Durability,
    /// Whether something visible is not on disk yet.
    owes_sync: Arc<AtomicBool>,
    /// How long a sync takes, in microseconds, on average and lately.
    sync_us: u64,
    /// After that the journal and the database may differ: only starting again brings them together.
    has_failed: bool,
}

impl Committer {
    pub(crate) fn new(
        contents: Arc<Versions>,
        journal: Wal,
        flusher: Flusher,
        durability: Durability,
        owes_sync: Arc<AtomicBool>,
    ) -> Self {
        Self { contents, journal, flusher, durability, owes_sync, sync_us: 0, has_failed: false }
    }

    /// What a batch begins with.
    pub(crate) fn view(&self) -> Result<Snapshot<'_>, Error> {
        if self.has_failed {
            return Err(Error::PreviousIo);
        }
        Ok(self.contents.snapshot())
    }

    /// Nothing is written any more.
    pub(crate) fn poison(&mut self) {
        self.has_failed = true;
    }

    /// Whether a sync is soon over, so that a thread that has other work may wait for it.
    pub(crate) fn sync_is_fast(&self) -> bool {
        self.durability == Durability::Interval || self.sync_us < SLOW_SYNC_US
    }

    /// Whether the journal has room for any batch that goes there: else what is in its other half has to be in the database first,
    /// and that takes its time.
    pub(crate) fn has_room(&self) -> bool {
        self.journal.room() >= MOST_JOURNALED || !self.flusher.is_busy()
    }

    /// How long a sync takes, where anybody waits for one.
    pub(crate) fn sync_time(&self) -> Duration {
        if self.durability == Durability::Interval {
            Duration::ZERO
        } else {
            Duration::from_micros(self.sync_us)
        }
    }

    /// Makes a batch visible, and durable where that was promised to anybody in it. An error is final.
    pub(crate) fn commit(&mut self, changes: Memtable, promise: AckLevel) -> Result<(), Error> {
        let len = changes.record_len();
        let done = if len > self.journal.room_of_half().min(MOST_JOURNALED) {
            self.commit_to_database(&changes)
        } else {
            self.commit_to_wal(changes, len, promise)
        };
        self.has_failed |= done.is_err();
        self.owes_sync.store(self.journal.owes_sync(), Ordering::Relaxed);
        done
    }

    fn commit_to_wal(&mut self, changes: Memtable, len: usize, promise: AckLevel) -> Result<(), Error> {
        self.flusher.poll()?;
        if len > self.journal.room() {
            self.switch_half()?;
        }
        self.journal.append(|record| changes.record(record));
        if self.must_sync(promise) && self.journal.owes_sync() {
            let begun = Instant::now();
            self.journal.sync()?;
            self.sync_us = smoothed(self.sync_us, begun.elapsed());
        } else if self.durability == Durability::Interval || self.journal.pending() > MOST_PENDING {
            self.journal.write()?;
        }
        self.contents.absorb(changes);
        Ok(())
    }

    fn must_sync(&self, promise: AckLevel) -> bool {
        match self.durability {
            Durability::Always => true,
            Durability::Promised => promise >= AckLevel::Durable,
            Durability::Interval => promise == AckLevel::OnDisk,
        }
    }

    /// A half of the journal is full: what is recent is brought into the database, while records go into the other half.
    fn switch_half(&mut self) -> Result<(), Error> {
        self.flusher.wait()?;
        self.journal.switch_half()?;
        let kept = self.contents.pin();
        self.flusher.begin(Flush { kept, journal: self.journal.id(), next: self.journal.next() })
    }

    fn commit_to_database(&mut self, changes: &Memtable) -> Result<(), Error> {
        self.flusher.wait()?;
        self.contents.flush(&self.contents.pin(), |transaction| {
            changes.write(&transaction)?;
            make_durable(transaction, self.journal.id(), self.journal.next())
        })?;
        self.journal.reset();
        Ok(())
    }

    /// The database is complete without its journal.
    fn finish_flush(&mut self) -> Result<(), Error> {
        self.flusher.wait()?;
        self.contents.flush(&self.contents.pin(), remove_wal_position)
    }
}

/// A moving average, in microseconds: the newest counts for an eighth.
pub(crate) fn smoothed(average_us: u64, newest: Duration) -> u64 {
    let newest = u64::try_from(newest.as_micros()).unwrap_or(u64::MAX);
    average_us - average_us / 8 + newest / 8
}

impl Drop for Committer {
    fn drop(&mut self) {
        if self.has_failed {
            return;
        }
        if let Err(error) = self.finish_flush() {
            tracing::warn!(%error, "the database is not complete without its journal; the next start reads it");
        }
    }
}
