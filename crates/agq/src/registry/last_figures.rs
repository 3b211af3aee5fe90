//! The figures that the store last gave, for monitors that ask while the store does not answer.

use std::sync::{Arc, Mutex, PoisonError};

use agenix_protocol::{documents::QueueStats, time::Timestamp};
use agenix_rules::worker::Worker;

use crate::store::Totals;

/// The figures that only the store knows.
pub(crate) struct StoreFigures {
    pub(crate) totals: Totals,
    pub(crate) queues: QueueStats,
    pub(crate) workers: Vec<(Worker, u64)>,
    /// Age of the oldest transaction that keeps a snapshot of the database, if the store has any.
    pub(crate) oldest_snapshot_secs: Option<u64>,
}

/// The figures that the store last gave, and when.
#[derive(Default)]
pub(crate) struct LastFigures(Mutex<Option<(Timestamp, Arc<StoreFigures>)>>);

impl LastFigures {
    /// Keeps the figures of this moment.
    pub(crate) fn keep(&self, now: Timestamp, figures: &Arc<StoreFigures>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((now, Arc::clone(figures)));
    }

    /// Returns what was kept last, if anything was.
    pub(crate) fn last(&self) -> Option<(Timestamp, Arc<StoreFigures>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
