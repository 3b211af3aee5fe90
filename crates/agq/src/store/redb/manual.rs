//! A store for simulations: nothing of it runs on another thread, and its writer does nothing until it is told.

use agenix_rules::job::Job;
use redb::StorageBackend;

use crate::store::{
    Durability, StoreError,
    redb::{
        LongReads, RedbStore, WalFile, check, file, queries::records, schema::tables::LANES, shown,
        writer::Writer,
    },
};

impl RedbStore {
    /// A store whose writer does nothing until its [`Writer::step`] is called. Where it makes a journal, that has this id.
    pub(crate) fn by_hand(
        database: impl StorageBackend,
        journal: impl StorageBackend,
        id: u64,
    ) -> anyhow::Result<(Self, Writer)> {
        let bytes = journal.len()?;
        let with = WalFile { file: Box::new(journal), id, bytes };
        Self::start_writer(file::open_on(database)?, with, Durability::default(), LongReads::InPlace)
    }

    /// What in the database contradicts itself.
    pub(crate) fn inconsistencies(&self) -> Result<Vec<String>, StoreError> {
        shown(check::inconsistencies(&self.contents.snapshot()))
    }

    /// Counts the lanes that are kept, whether they have jobs or not.
    pub(crate) fn lane_count(&self) -> Result<usize, StoreError> {
        let view = self.contents.snapshot();
        let count = || view.table(&LANES).iter()?.try_fold(0, |count, lane| lane.map(|_| count + 1));
        shown(count())
    }

    /// Every job, in the order of their ids.
    pub(crate) fn jobs(&self) -> Result<Vec<Job>, StoreError> {
        shown(records::jobs(&self.contents.snapshot()))
    }
}
