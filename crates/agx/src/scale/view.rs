//! Workers and waiting jobs of a scaler at one moment.

use std::time::Duration;

use agenix_protocol::{
    documents::{Demand, DrainMark, QueueStats, WorkerStatus},
    time::Timestamp,
};
use agenix_rules::capability::{ClaimantCapabilities, Needs};

/// Name that a scaler gives agq with a drain.
pub(super) const DRAINER: &str = "agx-scale";

/// Queues and tags that select the jobs and workers of a scaler.
#[derive(Debug, Clone, Default)]
pub(crate) struct ScaleSelection {
    /// Queues, or none for all queues.
    pub(crate) queues: Vec<String>,
    /// Tags that a worker has to have. Without `queues`, the tags also select the jobs that need
    /// them.
    pub(crate) tags: Vec<String>,
}

/// Workers and jobs that a scaler polls.
#[derive(Debug, Clone, Default)]
pub(crate) struct View {
    /// Workers that are not dead.
    pub(crate) workers: Vec<WorkerStatus>,
    /// Ready jobs by their needs, without those of paused queues and without those that limits and
    /// budgets hold back.
    pub(crate) waiting: Vec<Demand>,
    /// Time of agq. The clock of agx may show another one.
    pub(crate) time: Timestamp,
}

impl View {
    /// Returns the selected part of the lists of agq.
    pub(crate) fn of(workers: Vec<WorkerStatus>, queues: &QueueStats, selection: &ScaleSelection) -> Self {
        let needs = Needs { tags: selection.tags.clone(), ..Needs::default() };
        let is_ours = |worker: &WorkerStatus| {
            worker.state != "dead" && ClaimantCapabilities::of_status(worker).cover(&needs)
        };
        let named: Vec<_> = selection.queues.iter().filter_map(|queue| queues.ready_of(queue)).collect();
        let all = || std::iter::once(&queues.ready).chain(queues.others.values()).collect();
        let stats: Vec<_> = if selection.queues.is_empty() { all() } else { named };
        let by_tags = |demand: &&Demand| {
            !selection.queues.is_empty() || selection.tags.iter().all(|tag| demand.tags.contains(tag))
        };
        let waiting = stats.into_iter().filter(|queue| !queue.paused).flat_map(|queue| &queue.needs);
        Self {
            workers: workers.into_iter().filter(is_ours).collect(),
            waiting: waiting.filter(by_tags).filter_map(startable).collect(),
            time: Timestamp::default(),
        }
    }

    /// Returns the view with the time of agq.
    pub(crate) fn at(self, time: Timestamp) -> Self {
        Self { time, ..self }
    }

    /// Returns the workers that take jobs.
    pub(crate) fn active(&self) -> impl Iterator<Item = &WorkerStatus> {
        self.workers.iter().filter(|worker| worker.state == "active")
    }

    /// Returns the workers that a scaler has drained more than `wait` ago, and has not ended.
    pub(crate) fn abandoned(&self, wait: Duration) -> impl Iterator<Item = &WorkerStatus> {
        let is_over = move |mark: &DrainMark| {
            mark.by == DRAINER && u128::from(self.time.ms_since(mark.at)) >= wait.as_millis()
        };
        self.workers
            .iter()
            .filter(move |worker| worker.state == "draining" && worker.drained.as_ref().is_some_and(is_over))
    }

    /// Returns the number of workers that are not dead.
    pub(crate) fn live(&self) -> u64 {
        self.workers.len() as u64
    }

    /// Returns the number of ready jobs that a worker could start.
    pub(crate) fn waiting_jobs(&self) -> u64 {
        self.waiting.iter().map(|demand| demand.length).sum()
    }
}

/// Returns the jobs that limits and budgets do not hold back, if there are any.
fn startable(demand: &Demand) -> Option<Demand> {
    let length = demand.length.saturating_sub(demand.held_back);
    (length > 0).then(|| Demand { length, held_back: 0, ..demand.clone() })
}
