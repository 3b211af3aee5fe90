//! Changes of workers and queues in a write transaction.

use agenix_protocol::{ids::WorkerId, time::Timestamp};
use agenix_rules::worker::{Liveness, Worker};

use crate::store::{
    RuleResult, WorkerRule,
    decisions::accepted,
    redb::{
        schema::{Result, encode},
        txn::WriteTxn,
    },
};

impl WriteTxn<'_> {
    pub(crate) fn decide_worker(
        &mut self,
        worker_id: &WorkerId,
        registration: Option<&str>,
        rule: &WorkerRule,
    ) -> Result<RuleResult<()>> {
        let id = worker_id.as_str();
        if let Some(worker) = accepted!(rule(self.tables.workers.record(id)?.as_ref())) {
            self.tables.workers.insert(id, encode(&worker)?.as_slice());
            if let Some(registration) = registration {
                self.tables.registrations.insert(id, registration);
            }
        }
        Ok(Ok(()))
    }

    pub(crate) fn forget_worker(&mut self, worker_id: &WorkerId, seen_before: Timestamp) -> Result<bool> {
        let known = self.tables.workers.record(worker_id.as_str())?;
        let is_old = |worker: &Worker| worker.liveness == Liveness::Dead && worker.last_seen_at < seen_before;
        // The worker may have reconnected since the caller selected it.
        if known.is_some_and(|worker| is_old(&worker)) { self.remove_worker(worker_id) } else { Ok(false) }
    }

    pub(crate) fn remove_worker(&mut self, worker_id: &WorkerId) -> Result<bool> {
        let is_there = self.tables.workers.get(worker_id.as_str())?.is_some();
        if is_there {
            self.tables.registrations.remove(worker_id.as_str());
            self.tables.workers.remove(worker_id.as_str());
        }
        Ok(is_there)
    }

    pub(crate) fn set_paused(&mut self, queue: &str, paused: bool) {
        if paused {
            self.tables.paused.insert(queue, ());
        } else {
            self.tables.paused.remove(queue);
            self.arrived.jobs = true;
        }
        self.cache.lanes.set_paused(queue, paused);
    }
}
