//! Cache of the latest figures of the store, for monitoring requests while the store does not
//! answer.

use std::sync::{Arc, Mutex};

use agenix_protocol::{documents::QueueStats, time::Timestamp};
use agenix_rules::worker::Worker;

use crate::{store::Totals, sync::lock};

pub(crate) struct StoreFigures {
    pub(crate) totals: Totals,
    pub(crate) queues: QueueStats,
    pub(crate) workers: Vec<(Worker, u64)>,
    /// Age of the oldest transaction that keeps a snapshot of the database, if the store has any.
    pub(crate) oldest_snapshot_secs: Option<u64>,
}

#[derive(Default)]
pub(crate) struct LastFigures(Mutex<Option<(Timestamp, Arc<StoreFigures>)>>);

impl LastFigures {
    pub(crate) fn keep(&self, now: Timestamp, figures: &Arc<StoreFigures>) {
        *lock(&self.0) = Some((now, Arc::clone(figures)));
    }

    /// `None` if the store has not answered yet.
    pub(crate) fn last(&self) -> Option<(Timestamp, Arc<StoreFigures>)> {
        lock(&self.0).clone()
    }
}
