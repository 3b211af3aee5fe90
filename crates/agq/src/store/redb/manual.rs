//! The store for simulations: it has no threads, and its writer runs only when the simulation calls
//! it.

use agenix_rules::job::Job;
use redb::StorageBackend;

use crate::store::{
    Durability, StoreError,
    redb::{
        LongReads, RedbStore, WalFile, check, file, queries::records, schema::LANES, shown, writer::Writer,
    },
};

impl RedbStore {
    /// Returns a store whose writer runs only in [`Writer::step`]. A new WAL gets `new_id`.
    pub(crate) fn by_hand(
        database: impl StorageBackend,
        wal: impl StorageBackend,
        id: u64,
    ) -> anyhow::Result<(Self, Writer)> {
        let bytes = wal.len()?;
        let with = WalFile { file: Box::new(wal), id, bytes };
        Self::start_writer(file::open_on(database)?, with, Durability::default(), LongReads::InPlace)
    }

    pub(crate) fn inconsistencies(&self) -> Result<Vec<String>, StoreError> {
        shown(check::inconsistencies(&self.versions.snapshot()))
    }

    /// Returns the number of stored lanes, with or without jobs.
    pub(crate) fn lane_count(&self) -> Result<usize, StoreError> {
        let snapshot = self.versions.snapshot();
        let count = || snapshot.table(&LANES).iter()?.try_fold(0, |count, lane| lane.map(|_| count + 1));
        shown(count())
    }

    /// Returns all jobs, in order of their ids.
    pub(crate) fn jobs(&self) -> Result<Vec<Job>, StoreError> {
        shown(records::jobs(&self.versions.snapshot()))
    }
}
