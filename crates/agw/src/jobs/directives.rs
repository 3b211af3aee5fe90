//! Operations on the jobs of the pool on behalf of agq and the worker: output, cancel, dismiss,
//! withdraw, abort.

use std::sync::Arc;

use agenix_protocol::{
    documents::{JobOutput, OutputPosition, TaskStream},
    ids::{ActionId, JobId},
};
use tokio::time::Instant;

use super::{JobPool, locked};
use crate::exec::stray_sweep;

impl JobPool {
    /// Returns the output of a job after `position`, of all streams or of `only` one. Returns
    /// `None` if the worker no longer has the output.
    pub(crate) fn output(
        &self,
        job_id: &JobId,
        position: &OutputPosition,
        only: Option<TaskStream>,
    ) -> Option<JobOutput> {
        let running = locked(&self.jobs).running.live_output(job_id);
        let (attempt, live_output) = locked(&self.recent_output).of(job_id, running, Instant::now())?;
        Some(live_output.since(job_id, attempt, position, only))
    }

    /// Releases the output of jobs that nobody follows any more.
    pub(crate) fn expire_recent_output(&self) {
        locked(&self.recent_output).expire(Instant::now());
    }

    /// Cancels the runs of `jobs`, because their claims are no longer valid. The runs end without a
    /// report. Runs with numbers from `before` on are later than the directive, and continue.
    pub(crate) fn cancel(&self, jobs: &[JobId], before: u64) {
        locked(&self.jobs).running.cancel(jobs, before);
    }

    /// Returns the job ids and attempts of the claims that wait for a slot.
    pub(crate) fn waiting(&self) -> Vec<(JobId, u32)> {
        locked(&self.jobs).slots.waiting()
    }

    /// Removes a waiting claim that is no longer valid.
    pub(crate) fn dismiss(self: &Arc<Self>, job_id: &JobId, attempt: u32) {
        let mut jobs = locked(&self.jobs);
        jobs.slots.dismiss(job_id, attempt);
        // A later job may have waited for the resources that the removed job wanted.
        self.start_waiting(&mut jobs);
        self.wake_claimer(&jobs);
    }

    /// Removes the waiting claims of the action, and returns their job ids and attempts.
    pub(crate) fn withdraw(self: &Arc<Self>, action_id: &ActionId) -> Vec<(JobId, u32)> {
        let mut jobs = locked(&self.jobs);
        let withdrawn = jobs.slots.withdraw(action_id);
        self.start_waiting(&mut jobs);
        self.wake_claimer(&jobs);
        withdrawn
    }

    /// Removes all waiting claims, and returns their number.
    pub(crate) fn dismiss_all(&self) -> usize {
        locked(&self.jobs).slots.dismiss_all()
    }

    /// Suspends prefetching until a job ends, because the running jobs take longer than expected.
    pub(crate) fn stalled(&self) {
        locked(&self.jobs).slots.stalled();
    }

    /// Waits until no job runs and all jobs are reported.
    pub(crate) async fn idle(&self) {
        drop(self.permits.acquire_many(self.permit_count).await);
    }

    /// Kills all jobs with all their processes, and waits until they have released their permits.
    pub(crate) async fn abort(&self) {
        {
            let mut jobs = locked(&self.jobs);
            jobs.slots.dismiss_all();
            jobs.running.abort();
        }
        drop(self.reports.empty());
        self.idle().await;
        stray_sweep::end().await;
    }

    /// Returns the running and unreported jobs. agq would take a named waiting job for started.
    pub(crate) fn job_ids(&self) -> Vec<JobId> {
        locked(&self.jobs).running.job_ids()
    }

    /// Returns the ids as [`Self::job_ids`] does, and the number of the next run.
    pub(crate) fn running_jobs(&self) -> (Vec<JobId>, u64) {
        let jobs = locked(&self.jobs);
        (jobs.running.job_ids(), jobs.running.next())
    }
}
