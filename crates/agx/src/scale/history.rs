//! State of a scaler between two polls of agq.

use std::collections::{BTreeMap, BTreeSet};

use agenix_protocol::{documents::WorkerStatus, ids::WorkerId, time::Timestamp};
use serde_json::Value;

use super::{shortage::shortage, terms::ScaleTerms, view::View};

/// Idleness of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Idle {
    since: Timestamp,
    /// Number of jobs that the worker had ended. Jobs may run between two polls.
    ended_jobs: u64,
}

/// Workers and jobs that earlier polls of agq have shown.
#[derive(Debug, Clone, Default)]
pub(crate) struct ScaleHistory {
    /// Live workers.
    registered: BTreeSet<WorkerId>,
    /// Time of the start of each worker that has not registered, oldest first.
    started: Vec<Timestamp>,
    idle: BTreeMap<WorkerId, Idle>,
    /// Time since which jobs lack workers that are not starting.
    short_since: Option<Timestamp>,
    /// The worker that registered last: a new one offers the same.
    model: Option<WorkerStatus>,
}

impl ScaleHistory {
    /// Returns the history with what `view` shows at `now`, and the number of started workers that
    /// have not registered in time.
    pub(crate) fn observed(self, view: &View, terms: &ScaleTerms, now: Timestamp) -> (Self, u64) {
        let registered: BTreeSet<WorkerId> =
            view.workers.iter().map(|worker| worker.worker_id.clone()).collect();
        let arrived = registered.difference(&self.registered).count();
        let mut started: Vec<Timestamp> = self.started.into_iter().skip(arrived).collect();
        let expected = started.len();
        started.retain(|at| u128::from(now.ms_since(*at)) < terms.start_timeout.as_millis());
        let overdue = (expected - started.len()) as u64;
        let model = view.active().max_by_key(|worker| worker.registered_at).cloned().or(self.model);
        let shortage = shortage(view, model.as_ref(), terms.max);
        let is_short = shortage.workers > started.len() as u64;
        let short_since = is_short.then(|| self.short_since.unwrap_or(now));
        let idle = view.active().filter(|worker| worker.active_jobs == 0);
        let idle = idle.map(|worker| {
            let ended_jobs = ended_jobs(worker);
            let earlier = self.idle.get(&worker.worker_id).filter(|idle| idle.ended_jobs == ended_jobs);
            let idle = earlier.copied().unwrap_or(Idle { since: now, ended_jobs });
            (worker.worker_id.clone(), idle)
        });
        let idle = idle.collect();
        (Self { registered, started, idle, short_since, model }, overdue)
    }

    /// Returns the history after the start of `count` workers at `now`.
    pub(crate) fn after_start(mut self, count: u64, now: Timestamp) -> Self {
        self.started.extend((0..count).map(|_| now));
        Self { short_since: None, ..self }
    }

    /// Returns the number of started workers that have not registered.
    pub(crate) fn starting(&self) -> u64 {
        self.started.len() as u64
    }

    pub(crate) fn model(&self) -> Option<&WorkerStatus> {
        self.model.as_ref()
    }

    pub(crate) fn short_since(&self) -> Option<Timestamp> {
        self.short_since
    }

    pub(crate) fn idle_since(&self, worker: &WorkerId) -> Option<Timestamp> {
        self.idle.get(worker).map(|idle| idle.since)
    }
}

/// Returns the number of jobs that the worker has ended, according to its last heartbeat.
fn ended_jobs(worker: &WorkerStatus) -> u64 {
    let counter = |name: &str| worker.stats.as_ref()?.get(name).and_then(Value::as_u64);
    let counters = ["completed_jobs_total", "failed_jobs_total"].map(counter);
    counters.into_iter().flatten().sum()
}
