//! Guards of what a job occupies: its slot, and its resources.

use std::{sync::Arc, time::Duration};

use crate::jobs::{JobPool, ledger::Allocation};

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

/// Guard of the resources of a job. The drop gives them to waiting jobs.
pub(super) struct ResourceGuard {
    pub(super) pool: Arc<JobPool>,
    pub(super) allocation: Allocation,
}

impl Drop for ResourceGuard {
    fn drop(&mut self) {
        self.pool.release_resources(&self.allocation);
    }
}
