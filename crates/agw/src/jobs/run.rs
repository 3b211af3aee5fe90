//! Run of one job in a slot, from its start to the queue of reports.

use std::{sync::Arc, time::Duration};

use agenix_protocol::documents::{JobDocument, JobUpdate, Status};
use futures_util::FutureExt;
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};
use tracing::info;

use super::{
    JobPool, Jobs,
    guards::{ResourceGuard, SlotGuard},
    running::RunningJob,
    slots::{Claimed, StartableJob},
};
use crate::{
    exec::{
        cancel::CancelToken,
        job,
        job_resources::{JobResources, ResourceHold},
        live_output::LiveOutput,
        stages::JobProgress,
        stray_sweep, subreaper,
    },
    report::{
        download,
        queue::FinishedJob,
        reporter::{Reporter, StartReport},
        upload::LargeOutputs,
    },
};

/// SIGTERM to SIGKILL for a job of an invalid claim: short, because another worker may run it.
const STOP_GRACE: Duration = Duration::from_millis(800);

impl JobPool {
    /// Starts a job in a slot. The caller holds the lock of the jobs until the job is registered,
    /// because the job removes itself at its end.
    pub(super) fn start(self: &Arc<Self>, jobs: &mut Jobs, job: StartableJob) {
        let StartableJob { slot, claimed: Claimed { job, permit }, allocation } = job;
        let (job_id, attempt, cancel, number) =
            (job.job_id.clone(), job.attempt, CancelToken::default(), jobs.running.next());
        let resources = jobs.slots.job_resources(&job, allocation.as_ref());
        let guard =
            |allocation| Arc::new(ResourceGuard { pool: Arc::clone(self), allocation }) as ResourceHold;
        let hold = allocation.map(guard);
        let resources = resources.map(|resources| Arc::new(JobResources { hold: hold.clone(), ..resources }));
        let live_output = Arc::<LiveOutput>::default();
        let thread = &self.threads[slot as usize % self.threads.len()];
        let task = thread.spawn({
            let (pool, cancel, live_output) = (Arc::clone(self), cancel.clone(), Arc::clone(&live_output));
            let reporter = Reporter::new(self.reporter.subscribe(), Arc::clone(&self.lost));
            let slot = SlotGuard { pool: Arc::clone(self), number: slot, took: None };
            async move {
                let ended = tokio::select! {
                    ended = pool.work((&job, resources), &reporter, (&cancel, &live_output), slot) => ended,
                    // The drop of the job kills its remaining processes.
                    () = long_cancelled(&cancel) => None,
                };
                match ended {
                    Some((update, large_outputs, under_way)) => {
                        drop(hold);
                        let job_id = job.job_id;
                        pool.reports.put(FinishedJob {
                            number,
                            job_id,
                            update,
                            large_outputs,
                            reporter,
                            under_way,
                            cancel,
                            permit,
                        });
                    }
                    None => {
                        // The drop of the job has ended its run, with processes that have escaped.
                        stray_sweep::end().await;
                        if hold.is_some() {
                            subreaper::wait_for_abandoned().await;
                        }
                        drop(hold);
                        pool.finish(number, permit);
                    }
                }
            }
        });
        let task = task.abort_handle();
        jobs.running.add(RunningJob { job_id, attempt, task, cancel, live_output });
    }

    /// Runs a job and frees its slot. Returns the report of the end, the outputs that do not fit
    /// into it, and the progress report that is still in flight. Returns `None` without a report if
    /// `cancel` was cancelled.
    async fn work(
        &self,
        (job, resources): (&JobDocument, Option<Arc<JobResources>>),
        reporter: &Reporter,
        (cancel, live_output): (&CancelToken, &LiveOutput),
        mut slot: SlotGuard,
    ) -> Option<(JobUpdate, LargeOutputs, Option<StartReport>)> {
        let (context, started) = (self.context().of_job(job, resources), Instant::now());
        let (sender, receiver) = watch::channel(None);
        let progress = |now: JobProgress| {
            sender.send_replace(Some(now));
        };
        let fetch = |hash| download::fetch(job, hash, &context.spool, self.reporter.subscribe()).boxed();
        let mut under_way = None;
        let update = tokio::select! {
            // The end of the job has priority over its progress.
            biased;
            update = job::run((job, slot.number + 1), &context, (cancel, live_output), fetch, progress) => update,
            never = reporter.report_progress(job, receiver, cancel, &mut under_way) => match never {},
        };
        live_output.end();
        let took = started.elapsed();
        slot.took = Some(took);
        let large_outputs = self.large_outputs(live_output, context.kept_bytes).await;
        // The next job starts while this job is reported.
        drop(slot);
        if cancel.is_cancelled() {
            info!(job_id = %job.job_id, "the job no longer belongs to this worker, and its processes were ended");
            return None;
        }
        self.counters.ended(update.status == Some(Status::Completed), took);
        Some((update, large_outputs, under_way))
    }

    /// Returns the outputs that do not fit into a report. Waits while as many jobs upload as there
    /// are slots, because the files of all outputs take disk.
    async fn large_outputs(&self, live_output: &LiveOutput, kept_bytes: usize) -> LargeOutputs {
        let streams = live_output.larger_than(kept_bytes as u64);
        if streams.is_empty() {
            return LargeOutputs::default();
        }
        let permit = Arc::clone(&self.uploads).acquire_owned().await;
        LargeOutputs { streams, _permit: Some(permit.expect("the semaphore is never closed")) }
    }
}

async fn long_cancelled(cancel: &CancelToken) {
    cancel.cancelled().await;
    sleep(STOP_GRACE).await;
}
