//! Cache of the latest figures of the store, for monitoring requests while the store does not
//! answer.

use std::sync::{Arc, Mutex};

use agenix_protocol::{
    documents::{BudgetStatus, QueueStats},
    time::Timestamp,
};
use agenix_rules::worker::Worker;

use crate::{registry::resource_figures::ResourceFigures, store::Totals, sync::lock};

pub(crate) struct StoreFigures {
    pub(crate) totals: Totals,
    pub(crate) queues: QueueStats,
    pub(crate) workers: Vec<(Worker, u64)>,
    pub(crate) budgets: Vec<BudgetStatus>,
    pub(crate) resources: ResourceFigures,
    /// Age of the oldest transaction that keeps a snapshot of the database, if the store has any.
    pub(crate) oldest_snapshot_secs: Option<u64>,
}

/// Number of the stored blobs, and of the bytes of their contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct BlobTotals {
    pub(crate) count: u64,
    pub(crate) bytes: u64,
}

#[derive(Default)]
pub(crate) struct LastFigures {
    store: Mutex<Option<(Timestamp, Arc<StoreFigures>)>>,
    blobs: Mutex<Option<BlobTotals>>,
}

impl LastFigures {
    pub(crate) fn keep(&self, now: Timestamp, figures: &Arc<StoreFigures>) {
        *lock(&self.store) = Some((now, Arc::clone(figures)));
    }

    /// `None` if the store has not answered yet.
    pub(crate) fn last(&self) -> Option<(Timestamp, Arc<StoreFigures>)> {
        lock(&self.store).clone()
    }

    /// Keeps the totals of the last sweep. A node that does not lead has no totals, so that the sum
    /// over all nodes is right.
    pub(crate) fn keep_blobs(&self, totals: Option<BlobTotals>) {
        *lock(&self.blobs) = totals;
    }

    pub(crate) fn blobs(&self) -> Option<BlobTotals> {
        *lock(&self.blobs)
    }
}
