//! Commits batches: makes each one durable, then visible. The changes go into the WAL, with one
//! sync for the whole batch, and into the memtable. When half of the WAL is full, the memtable is
//! flushed while records go into the other half (ADR 7, ADR 9, ADR 15).

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
    redb::{
        engine::{
            flush::{Flush, Flusher},
            memtable::Memtable,
            recovery::{make_durable, remove_wal_position},
            snapshot::{Snapshot, Versions},
            wal::Wal,
        },
        schema::Result,
    },
};

/// Maximum number of bytes of a batch that goes through the WAL. A larger batch is written into the
/// database directly, so that nothing large is written twice.
const MAX_WAL_BATCH: usize = 256 * 1024;
/// Maximum number of unsynced bytes that stay in memory.
const MAX_PENDING: usize = 256 * 1024;

/// Average duration of a sync above which a disk counts as slow, in microseconds.
const SLOW_SYNC_US: u64 = 600;

pub(crate) struct Committer {
    versions: Arc<Versions>,
    wal: Wal,
    flusher: Flusher,
    durability: Durability,
    /// True while a visible write is not on disk.
    owes_sync: Arc<AtomicBool>,
    /// Moving average of the duration of a sync, in microseconds.
    sync_us: u64,
    /// Set after an error, when WAL and database may differ. Only a restart makes WAL and database
    /// agree.
    has_failed: bool,
}

impl Committer {
    pub(crate) fn new(
        versions: Arc<Versions>,
        wal: Wal,
        flusher: Flusher,
        durability: Durability,
        owes_sync: Arc<AtomicBool>,
    ) -> Self {
        Self { versions, wal, flusher, durability, owes_sync, sync_us: 0, has_failed: false }
    }

    /// Returns the snapshot on which a batch is based, or an error after a failed commit.
    pub(crate) fn snapshot(&self) -> Result<Snapshot<'_>> {
        if self.has_failed {
            return Err(Error::PreviousIo);
        }
        Ok(self.versions.snapshot())
    }

    /// Refuses all further writes.
    pub(crate) fn poison(&mut self) {
        self.has_failed = true;
    }

    /// Returns true if a sync is usually so fast that a thread with other work can wait for it.
    pub(crate) fn sync_is_fast(&self) -> bool {
        self.durability == Durability::Interval || self.sync_us < SLOW_SYNC_US
    }

    /// Returns true if the WAL has room for any batch, without a wait for the flush of a half.
    pub(crate) fn has_room(&self) -> bool {
        self.wal.room() >= MAX_WAL_BATCH || !self.flusher.is_busy()
    }

    /// Returns the average duration of a sync, or zero if no write waits for one.
    pub(crate) fn sync_time(&self) -> Duration {
        if self.durability == Durability::Interval {
            Duration::ZERO
        } else {
            Duration::from_micros(self.sync_us)
        }
    }

    /// Commits a batch with the highest level of its writes. After an error, all commits fail.
    pub(crate) fn commit(&mut self, changes: Memtable, ack_level: AckLevel) -> Result<()> {
        let len = changes.record_len();
        let done = if len > self.wal.room_of_half().min(MAX_WAL_BATCH) {
            self.commit_to_database(&changes)
        } else {
            self.commit_to_wal(changes, len, ack_level)
        };
        self.has_failed |= done.is_err();
        self.owes_sync.store(self.wal.owes_sync(), Ordering::Relaxed);
        done
    }

    fn commit_to_wal(&mut self, changes: Memtable, len: usize, ack_level: AckLevel) -> Result<()> {
        self.flusher.poll()?;
        if len > self.wal.room() {
            self.switch_half()?;
        }
        self.wal.append(|record| changes.record(record));
        if self.must_sync(ack_level) && self.wal.owes_sync() {
            let begun = Instant::now();
            self.wal.sync()?;
            self.sync_us = smoothed(self.sync_us, begun.elapsed());
        } else if self.durability == Durability::Interval || self.wal.pending() > MAX_PENDING {
            self.wal.write()?;
        }
        self.versions.absorb(changes);
        Ok(())
    }

    fn must_sync(&self, ack_level: AckLevel) -> bool {
        match self.durability {
            Durability::Always => true,
            Durability::Promised => ack_level >= AckLevel::Durable,
            Durability::Interval => ack_level == AckLevel::Synced,
        }
    }

    /// Continues in the other half of the WAL, and starts a flush of everything in the memtable.
    fn switch_half(&mut self) -> Result<()> {
        self.flusher.wait()?;
        self.wal.switch_half()?;
        let kept = self.versions.pin();
        self.flusher.begin(Flush { kept, wal: self.wal.id(), next: self.wal.next() })
    }

    fn commit_to_database(&mut self, changes: &Memtable) -> Result<()> {
        self.flusher.wait()?;
        self.versions.flush(&self.versions.pin(), |transaction| {
            changes.write(&transaction)?;
            make_durable(transaction, self.wal.id(), self.wal.next())
        })?;
        self.wal.reset();
        Ok(())
    }

    /// Flushes everything, and removes the WAL position. The database is complete without the WAL.
    fn finish_flush(&mut self) -> Result<()> {
        self.flusher.wait()?;
        self.versions.flush(&self.versions.pin(), remove_wal_position)
    }
}

/// Returns the moving average in microseconds, in which `newest` has a weight of one eighth.
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
            tracing::warn!(%error, "the last flush failed: the database needs its write-ahead log, and the next start replays it");
        }
    }
}
