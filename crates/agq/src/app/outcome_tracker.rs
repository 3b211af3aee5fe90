//! Outcomes of the latest jobs of each worker, which decide on quarantine.

use std::{collections::HashMap, sync::Mutex};

use agenix_protocol::{ids::WorkerId, time::Timestamp};
use agenix_rules::{
    quarantine::{self, OutcomeHistory},
    worker::{Liveness, Worker},
};

use crate::sync::lock;

#[derive(Default)]
pub(crate) struct OutcomeTracker(Mutex<WorkerHistories>);

#[derive(Default)]
struct WorkerHistories {
    histories: HashMap<WorkerId, OutcomeHistory>,
    /// Quarantined workers, with the begin of their trials. The first job that a worker has claimed
    /// since then decides on its quarantine.
    on_trial: HashMap<WorkerId, Timestamp>,
}

impl WorkerHistories {
    /// Returns why `worker_id` is to blame, compared with the other workers that `counts` accepts.
    fn blame(&self, worker_id: &WorkerId, kind: &str, counts: impl Fn(&WorkerId) -> bool) -> Option<String> {
        let own = self.histories.get(worker_id)?.of(kind);
        let others = self.histories.iter().filter(|(id, _)| *id != worker_id && counts(id));
        quarantine::blame(kind, own, others.map(|(_, history)| history.of(kind)))
    }
}

impl OutcomeTracker {
    /// Records the end of a job of `kind`, and returns true if the worker has to be judged again.
    pub(crate) fn record(&self, worker_id: &WorkerId, kind: &str, failed: bool) -> bool {
        let mut state = lock(&self.0);
        state.histories.entry(worker_id.clone()).or_default().record(kind, failed);
        failed && state.blame(worker_id, kind, |_| true).is_some()
    }

    /// Returns the reason to quarantine `worker_id`, compared with all `workers`.
    pub(crate) fn quarantine_reason(
        &self,
        worker_id: &WorkerId,
        kind: &str,
        workers: &[Worker],
    ) -> Option<String> {
        let live: HashMap<&WorkerId, bool> = workers
            .iter()
            .filter(|worker| worker.liveness == Liveness::Active)
            .map(|worker| (&worker.worker_id, worker.quarantine.is_some()))
            .collect();
        let quarantined = live.values().filter(|is_quarantined| **is_quarantined).count();
        if live.get(worker_id) == Some(&true) || !quarantine::is_bounded(quarantined, live.len()) {
            return None;
        }
        lock(&self.0).blame(worker_id, kind, |other| live.contains_key(other))
    }

    /// Begins a trial: the next job of a quarantined worker decides on the quarantine.
    pub(crate) fn begin_trial(&self, worker_id: &WorkerId, now: Timestamp) {
        lock(&self.0).on_trial.insert(worker_id.clone(), now);
    }

    /// Returns true, once per trial, if the ended job is the trial job, claimed at `claimed_at`.
    pub(crate) fn take_trial(&self, worker_id: &WorkerId, claimed_at: Option<Timestamp>) -> bool {
        let mut state = lock(&self.0);
        let began = state.on_trial.get(worker_id).copied();
        let decides = began.zip(claimed_at).is_some_and(|(began, claimed_at)| claimed_at >= began);
        decides && state.on_trial.remove(worker_id).is_some()
    }

    pub(crate) fn drop_trial(&self, worker_id: &WorkerId) {
        lock(&self.0).on_trial.remove(worker_id);
    }

    pub(crate) fn forget(&self, worker_id: &WorkerId) {
        let mut state = lock(&self.0);
        state.histories.remove(worker_id);
        state.on_trial.remove(worker_id);
    }
}

#[cfg(test)]
mod tests {
    use agenix_protocol::{ids::WorkerId, time::Timestamp};

    use super::OutcomeTracker;

    #[test]
    fn trial_ignores_jobs_claimed_before_it() {
        let (outcomes, worker) = (OutcomeTracker::default(), WorkerId::new("w").unwrap());
        assert!(!outcomes.take_trial(&worker, Some(Timestamp(5))), "there is no trial");
        outcomes.begin_trial(&worker, Timestamp(5));
        assert!(!outcomes.take_trial(&worker, Some(Timestamp(4))) && !outcomes.take_trial(&worker, None));
        assert!(outcomes.take_trial(&worker, Some(Timestamp(5))));
        assert!(!outcomes.take_trial(&worker, Some(Timestamp(6))), "one job decides");
        outcomes.begin_trial(&worker, Timestamp(7));
        outcomes.drop_trial(&worker);
        assert!(!outcomes.take_trial(&worker, Some(Timestamp(7))));
    }
}
