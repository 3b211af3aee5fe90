//! What agq and the worker ask of the jobs as a whole: output, cancel, dismiss, withdraw, abort.

use agenix_protocol::{
    documents::{JobOutput, OutputPosition},
    ids::{ActionId, JobId},
};
use tokio::time::Instant;

use super::{JobPool, locked};

impl JobPool {
    /// What a job writes, for whoever follows it; none if it is not known here any more.
    pub(crate) fn output(&self, job_id: &JobId, position: &OutputPosition) -> Option<JobOutput> {
        let running = locked(&self.jobs).running.live_output(job_id);
        let (attempt, live_output) = locked(&self.recent_output).of(job_id, running, Instant::now())?;
        Some(live_output.since(job_id, attempt, position))
    }

    /// What nobody follows any more is let go.
    pub(crate) fn expire_recent_output(&self) {
        locked(&self.recent_output).expire(Instant::now());
    }

    /// These jobs are not ours any more: what runs of them is ended and not reported. Only runs with numbers below
    /// `before` are meant: whoever gave the order could not know of later ones.
    pub(crate) fn cancel(&self, jobs: &[JobId], before: u64) {
        locked(&self.jobs).running.cancel(jobs, before);
    }

    /// The claims that wait for a slot: job and attempt.
    pub(crate) fn waiting(&self) -> Vec<(JobId, u32)> {
        locked(&self.jobs).slots.waiting()
    }

    /// A claim that waits for a slot is void.
    pub(crate) fn dismiss(&self, job_id: &JobId, attempt: u32) {
        let mut jobs = locked(&self.jobs);
        jobs.slots.dismiss(job_id, attempt);
        self.wake_claimer(&jobs);
    }

    /// Removes the waiting claims of the action, and returns their job ids and attempts.
    pub(crate) fn withdraw(&self, action_id: &ActionId) -> Vec<(JobId, u32)> {
        let mut jobs = locked(&self.jobs);
        let withdrawn = jobs.slots.withdraw(action_id);
        self.wake_claimer(&jobs);
        withdrawn
    }

    /// What waits for a slot does not start here any more. How many jobs that were.
    pub(crate) fn dismiss_all(&self) -> usize {
        locked(&self.jobs).slots.dismiss_all()
    }

    /// Jobs take longer than was thought: none is claimed ahead until one has ended.
    pub(crate) fn stalled(&self) {
        locked(&self.jobs).slots.stalled();
    }

    /// When nothing runs any more, and all is reported.
    pub(crate) async fn idle(&self) {
        drop(self.permits.acquire_many(self.permit_count).await);
    }

    /// Ends what runs, with every process of it; returns when they were all told.
    pub(crate) async fn abort(&self) {
        {
            let mut jobs = locked(&self.jobs);
            jobs.slots.dismiss_all();
            jobs.running.abort();
        }
        drop(self.reports.empty());
        self.idle().await;
    }

    /// The jobs that run or are not reported yet. Those that wait for a slot are not among them: agq takes what it is told of
    /// here for started.
    pub(crate) fn job_ids(&self) -> Vec<JobId> {
        locked(&self.jobs).running.job_ids()
    }

    /// The same, and the number that the next run will have.
    pub(crate) fn running_jobs(&self) -> (Vec<JobId>, u64) {
        let jobs = locked(&self.jobs);
        (jobs.running.job_ids(), jobs.running.next())
    }
}
