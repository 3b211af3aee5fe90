//! Jobs at one moment, as their events have shown them.

use std::collections::{BTreeMap, BTreeSet};

use super::ledger::ObservedJob;

/// Jobs at one moment, or during a batch. During a batch, a job is ready only if it was ready all
/// the time, and counts as possibly ready and as held if it was so at any time.
#[derive(Debug, Clone, Default)]
pub(super) struct JobsView {
    pub(super) ready: BTreeSet<String>,
    pub(super) possibly_ready: BTreeSet<String>,
    /// Claimed jobs with their holders.
    pub(super) held: BTreeSet<(String, String)>,
}

impl JobsView {
    pub(super) fn of(jobs: &BTreeMap<String, ObservedJob>) -> Self {
        let mut view = Self::default();
        for job in jobs.values() {
            view.add(job);
        }
        view.ready.clone_from(&view.possibly_ready);
        view
    }

    /// Records an event of a job during the batch of the view.
    pub(super) fn change(&mut self, job: &ObservedJob) {
        self.ready.remove(&job.job_id);
        self.add(job);
    }

    fn add(&mut self, job: &ObservedJob) {
        match (job.state.as_str(), &job.holder) {
            ("available", _) => drop(self.possibly_ready.insert(job.job_id.clone())),
            ("active", Some(holder)) => drop(self.held.insert((job.job_id.clone(), holder.clone()))),
            _ => {}
        }
    }
}

/// Claim that a view is asked about.
#[derive(Debug, Clone)]
pub(super) struct ViewedClaim {
    /// Actor of the worker that claims; `None` for a connection without a worker.
    pub(super) worker: Option<usize>,
    pub(super) holder: String,
    pub(super) queues: Vec<String>,
    /// Earliest time of the claim, in milliseconds since 1970; `None` if jobs with a rate may wait
    /// longer than their rate demands.
    pub(super) at_ms: Option<u64>,
}

/// Claim that an actor has sent.
#[derive(Debug, Clone)]
pub(super) struct SentClaim {
    pub(super) actor: usize,
    pub(super) queues: Vec<String>,
    /// Maximum number of jobs.
    pub(super) count: usize,
    pub(super) waits: bool,
    /// Time of the claim, in milliseconds since 1970.
    pub(super) at_ms: u64,
    /// Set if the worker of the actor took jobs when it sent the claim, and no command about the
    /// worker was in flight. Such a command ends the waiting claims of the worker.
    pub(super) takes_jobs: bool,
}
