//! Running jobs: the jobs that have started and are not yet reported.

use std::{collections::BTreeMap, sync::Arc};

use agenix_protocol::ids::JobId;
use tokio::task::AbortHandle;
use tracing::debug;

use crate::exec::{cancel::CancelToken, live_output::LiveOutput};

/// Runs by start. A job may have two runs: agq may drop a claim and give the job here again.
#[derive(Default)]
pub(crate) struct RunningJobs {
    runs: BTreeMap<u64, RunningJob>,
    next: u64,
}

/// One run of a claimed job.
pub(crate) struct RunningJob {
    pub(crate) job_id: JobId,
    pub(crate) attempt: u32,
    pub(crate) task: AbortHandle,
    pub(crate) cancel: CancelToken,
    pub(crate) live_output: Arc<LiveOutput>,
}

impl RunningJobs {
    /// Returns the number of the next run.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    pub(crate) fn add(&mut self, run: RunningJob) {
        // agq took the earlier claim back without a directive: the worker has the job again.
        let is_earlier = |other: &&RunningJob| other.job_id == run.job_id && other.attempt < run.attempt;
        self.runs.values().filter(is_earlier).for_each(|other| other.cancel.cancel());
        self.runs.insert(self.next, run);
        self.next += 1;
    }

    /// Returns true if the run has not been removed.
    pub(crate) fn has(&self, number: u64) -> bool {
        self.runs.contains_key(&number)
    }

    /// Sets the task that carries out the rest of a run.
    pub(crate) fn set_current_task(&mut self, number: u64, task: AbortHandle) {
        if let Some(run) = self.runs.get_mut(&number) {
            run.task = task;
        }
    }

    pub(crate) fn remove(&mut self, number: u64) -> Option<RunningJob> {
        self.runs.remove(&number)
    }

    /// Cancels the runs of `jobs` whose numbers are below `before`.
    pub(crate) fn cancel(&self, jobs: &[JobId], before: u64) {
        for (_, run) in self.runs.range(..before) {
            if jobs.contains(&run.job_id) && !run.cancel.is_cancelled() {
                debug!(job_id = %run.job_id, "agq has directed the end of this run");
                run.cancel.cancel();
            }
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.runs.len()
    }

    pub(crate) fn job_ids(&self) -> Vec<JobId> {
        self.runs.values().map(|run| run.job_id.clone()).collect()
    }

    /// Returns the attempt and the output of the latest run of a job.
    pub(crate) fn live_output(&self, job_id: &JobId) -> Option<(u32, Arc<LiveOutput>)> {
        let run = self.runs.values().rev().find(|run| run.job_id == *job_id)?;
        Some((run.attempt, Arc::clone(&run.live_output)))
    }

    /// Aborts all runs without a report.
    pub(crate) fn abort(&mut self) {
        for run in std::mem::take(&mut self.runs).into_values() {
            run.task.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{RunningJob, RunningJobs};
    use crate::exec::cancel::CancelToken;

    fn run(job: &str, attempt: u32) -> (RunningJob, CancelToken) {
        let (task, cancel) =
            (tokio::spawn(std::future::pending::<()>()).abort_handle(), CancelToken::default());
        let (job_id, live_output) = (job.parse().unwrap(), Arc::default());
        (RunningJob { job_id, attempt, task, cancel: cancel.clone(), live_output }, cancel)
    }

    #[tokio::test]
    async fn running_jobs_cancel_the_earlier_claim_of_a_job() {
        let mut running = RunningJobs::default();
        let (first, first_stop) = run("a", 1);
        let (second, second_stop) = run("a", 2);
        let (other, other_stop) = run("b", 1);
        running.add(first);
        running.add(other);
        running.add(second);
        assert!(first_stop.is_cancelled() && !second_stop.is_cancelled() && !other_stop.is_cancelled());
        assert_eq!(running.job_ids().len(), 3, "it is there until it has ended");
    }

    #[tokio::test]
    async fn cancel_spares_runs_later_than_the_order() {
        let mut running = RunningJobs::default();
        let (early, early_stop) = run("a", 1);
        running.add(early);
        let asked_at = running.next();
        let (late, late_stop) = run("b", 1);
        running.add(late);
        running.cancel(&["a".parse().unwrap(), "b".parse().unwrap()], asked_at);
        assert!(early_stop.is_cancelled() && !late_stop.is_cancelled());
        assert!(running.remove(0).is_some());
        let left: Vec<_> = running.job_ids().iter().map(ToString::to_string).collect();
        assert_eq!(left, ["b"]);
    }
}
