//! Trait of a store for workers.

use agenix_protocol::{ids::WorkerId, time::Timestamp};
use agenix_rules::worker::Worker;

use super::{AckLevel, RuleResult, StoreFuture, WorkerRule};

/// Records of workers, with the same rules as [`JobStore`](super::JobStore).
pub(crate) trait WorkerStore: Send + Sync + 'static {
    /// Applies `rule` to a worker. Stores `registration`, as JSON, if the rule changes the worker.
    fn decide_worker(
        &self,
        worker_id: &WorkerId,
        level: AckLevel,
        registration: Option<String>,
        rule: WorkerRule,
    ) -> StoreFuture<RuleResult<()>>;
    /// Returns the registration of a worker, as JSON.
    fn registration(&self, worker_id: &WorkerId) -> StoreFuture<Option<String>>;
    /// Removes a worker that is dead and was last seen before `seen_before`.
    fn forget_worker(&self, worker_id: &WorkerId, seen_before: Timestamp) -> StoreFuture<bool>;
    /// Removes a worker, and returns true if there was one.
    fn remove_worker(&self, worker_id: &WorkerId) -> StoreFuture<bool>;
    fn worker(&self, worker_id: &WorkerId) -> StoreFuture<Option<Worker>>;
    /// Returns all workers in the order of their ids, without the cost of counting their jobs.
    fn worker_records(&self) -> StoreFuture<Vec<Worker>>;
    /// Returns all workers with the number of jobs that each holds, in the order of their ids.
    fn workers(&self) -> StoreFuture<Vec<(Worker, u64)>>;
}
