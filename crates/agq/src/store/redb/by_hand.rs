//! A store for simulations: nothing of it runs on another thread, and its writer does nothing until it is told.

use agenix_rules::job::Job;
use redb::StorageBackend;

use super::{RedbStore, Scans, check, file, reads, run, writer::Writer};
use crate::store::StoreError;

impl RedbStore {
    /// A store whose writer does nothing until its [`Writer::step`] is called.
    pub(crate) fn by_hand(backend: impl StorageBackend) -> anyhow::Result<(Self, Writer)> {
        Self::employ(file::open_on(backend)?, Scans::InPlace)
    }

    /// What in the database contradicts itself.
    pub(crate) fn inconsistencies(&self) -> Result<Vec<String>, StoreError> {
        run(&self.database, check::inconsistencies)
    }

    /// Every job, in the order of their ids.
    pub(crate) fn jobs(&self) -> Result<Vec<Job>, StoreError> {
        run(&self.database, reads::jobs)
    }
}
