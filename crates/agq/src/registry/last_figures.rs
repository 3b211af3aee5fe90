//! Cache of the latest figures of the store, for monitoring requests while the store does not
//! answer.

use std::sync::{Arc, Mutex, PoisonError};

use agenix_protocol::{documents::QueueStats, time::Timestamp};
use agenix_rules::worker::Worker;

use crate::store::Totals;

/// Figures that only the store has.
pub(crate) struct StoreFigures {
    pub(crate) totals: Totals,
    pub(crate) queues: QueueStats,
    pub(crate) workers: Vec<(Worker, u64)>,
    /// Age of the oldest transaction that keeps a snapshot of the database, if the store has any.
    pub(crate) oldest_snapshot_secs: Option<u64>,
}

/// Latest figures of the store, with their time.
#[derive(Default)]
pub(crate) struct LastFigures(Mutex<Option<(Timestamp, Arc<StoreFigures>)>>);

impl LastFigures {
    /// Stores the figures of the time `now`.
    pub(crate) fn keep(&self, now: Timestamp, figures: &Arc<StoreFigures>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((now, Arc::clone(figures)));
    }

    /// Returns the latest figures and their time, or `None` if the store has not answered yet.
    pub(crate) fn last(&self) -> Option<(Timestamp, Arc<StoreFigures>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
