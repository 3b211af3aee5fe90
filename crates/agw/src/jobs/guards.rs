//! Guards of what a job occupies: its run, its slot, and its resources.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::sync::OwnedSemaphorePermit;

use crate::jobs::{JobPool, ledger::Allocation};

/// Guard of a run until agq has accepted its report. The drop removes the run from the running
/// jobs, also after a panic: otherwise every heartbeat would name the job.
pub(super) struct RunGuard {
    /// A weak reference, because the pool has the guards of jobs that wait for their report.
    pub(super) pool: Weak<JobPool>,
    /// Number of the run in `RunningJobs`.
    pub(super) number: u64,
    /// Permit of the job pool.
    pub(super) permit: Option<OwnedSemaphorePermit>,
}

impl Drop for RunGuard {
    fn drop(&mut self) {
        if let Some(pool) = self.pool.upgrade() {
            pool.finish(self.number, self.permit.take());
        }
    }
}

/// Guard of an occupied slot. The drop gives the slot to the next waiting job.
pub(super) struct SlotGuard {
    pub(super) pool: Arc<JobPool>,
    pub(super) number: u32,
    /// Run time of the job, once the job has ended.
    pub(super) took: Option<Duration>,
}

impl Drop for SlotGuard {
    fn drop(&mut self) {
        self.pool.release_slot(self.number, self.took);
    }
}

/// Guard of the resources of a job. The drop gives the resources to waiting jobs.
pub(super) struct ResourceGuard {
    pub(super) pool: Arc<JobPool>,
    pub(super) allocation: Allocation,
}

impl Drop for ResourceGuard {
    fn drop(&mut self) {
        self.pool.release_resources(&self.allocation);
    }
}
