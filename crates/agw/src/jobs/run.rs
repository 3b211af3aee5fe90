//! Run of one job in a slot, from its start to the queue of reports.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use agenix_protocol::documents::{JobDocument, JobUpdate, Status};
use futures_util::FutureExt;
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};
use tracing::{error, info};

use super::{
    JobPool, JobPoolState,
    guards::{ResourceGuard, RunGuard, SlotGuard},
    running::RunningJob,
    slots::{Claimed, StartableJob},
};
use crate::{
    exec::{
        cancel::CancelToken,
        job,
        job_report::{self, truncated_results},
        job_resources::{JobResources, ResourceHold},
        live_output::LiveOutput,
        stages::JobProgress,
        stray_sweep, subreaper,
    },
    report::{
        download,
        queue::FinishedJob,
        reporter::{JobReporter, StartReport},
        upload::LargeOutputs,
    },
};

/// Time from SIGTERM to SIGKILL for a job of an invalid claim. The time is short, because another
/// worker may run the job.
const STOP_GRACE: Duration = Duration::from_millis(800);
/// Reason for the failure of a job whose run panics.
const PANICKED: &str =
    "a defect of agw has ended this job: report it with the panic in the log of the worker";

/// Report of the end, the outputs that do not fit into it, and the progress report that is still in
/// flight.
type EndedJob = (JobUpdate, LargeOutputs, Option<StartReport>);

impl JobPool {
    /// Starts a job in a slot. The caller holds the lock of the jobs until the job is registered,
    /// because the job removes itself at its end.
    pub(super) fn start(self: &Arc<Self>, jobs: &mut JobPoolState, job: StartableJob) {
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
            let reporter = JobReporter::new(self.reporter.subscribe(), Arc::clone(&self.lost));
            let reporter = reporter.giving_up_outputs(self.context().gives_up_outputs);
            let slot = SlotGuard { pool: Arc::clone(self), number: slot, took: None };
            let run = Box::new(RunGuard { pool: Arc::downgrade(self), number, permit: Some(permit) });
            async move {
                let work = pool.work((&job, resources), &reporter, (&cancel, &live_output), slot);
                if let Some((update, large_outputs, under_way)) = outcome(&job, &cancel, hold, work).await {
                    let job_id = job.job_id;
                    let ended = FinishedJob {
                        number,
                        run,
                        job_id,
                        update,
                        large_outputs,
                        reporter,
                        under_way,
                        cancel,
                    };
                    pool.reports.put(ended);
                }
            }
        });
        let task = task.abort_handle();
        jobs.running.add(RunningJob { job_id, attempt, task, cancel, live_output });
    }

    /// Runs a job and frees its slot. Returns `None` without a report if `cancel` was cancelled.
    async fn work(
        &self,
        (job, resources): (&JobDocument, Option<Arc<JobResources>>),
        reporter: &JobReporter,
        (cancel, live_output): (&CancelToken, &LiveOutput),
        mut slot: SlotGuard,
    ) -> Option<EndedJob> {
        let (context, started) = (self.context().of_job(job, resources), Instant::now());
        let (sender, receiver) = watch::channel(None);
        let progress = |now: JobProgress| {
            sender.send_replace(Some(now));
        };
        let fetch = |hash| download::fetch(job, hash, (&context, cancel), self.reporter.subscribe()).boxed();
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
        let large_outputs = self.large_outputs(live_output, &update, context.kept_bytes).await;
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
    async fn large_outputs(
        &self,
        live_output: &LiveOutput,
        update: &JobUpdate,
        kept_bytes: usize,
    ) -> LargeOutputs {
        let streams = live_output.larger_than(kept_bytes as u64, &truncated_results(update));
        if streams.is_empty() {
            return LargeOutputs::default();
        }
        let permit = Arc::clone(&self.uploads).acquire_owned().await;
        LargeOutputs { streams, _permit: Some(permit.expect("the semaphore is never closed")) }
    }
}

/// Returns the outcome of the `work` of a job, whose processes have then ended, and drops `hold`.
/// After a panic, the job has failed, because it would panic on other workers as well.
async fn outcome(
    job: &JobDocument,
    cancel: &CancelToken,
    hold: Option<ResourceHold>,
    work: impl Future<Output = Option<EndedJob>>,
) -> Option<EndedJob> {
    let outcome = tokio::select! {
        outcome = AssertUnwindSafe(work).catch_unwind() => outcome,
        // The drop of the work kills the remaining processes of the job.
        () = long_cancelled(cancel) => Ok(None),
    };
    if !matches!(outcome, Ok(Some(_))) {
        // The drop of the work has ended the run of the job, with processes that have escaped.
        stray_sweep::end().await;
    }
    if hold.is_some() {
        // A killed process has the resources of the job until it has ended.
        subreaper::wait_for_abandoned().await;
    }
    drop(hold);
    outcome.unwrap_or_else(|_panic| {
        error!(job_id = %job.job_id, "the run of the job has panicked, and the job is reported as failed");
        let update = job_report::finished(job, Some(PANICKED.into()), Vec::new());
        Some((update, LargeOutputs::default(), None))
    })
}

async fn long_cancelled(cancel: &CancelToken) {
    cancel.cancelled().await;
    sleep(STOP_GRACE).await;
}

#[cfg(test)]
mod tests {
    use std::{ffi::OsStr, sync::Arc};

    use agenix_protocol::documents::{JobDocument, Status, parse};
    use tokio::runtime::Handle;

    use super::{CancelToken, EndedJob, JobPool, LiveOutput, PANICKED, RunGuard, RunningJob, outcome};
    use crate::{
        exec::{open_file_limit::OpenFileLimit, programs::OfferedPrograms, start::ExecContext},
        jobs::locked,
        resources::Offer,
    };

    async fn panics() -> Option<EndedJob> {
        panic!("as a defect would")
    }

    #[tokio::test]
    async fn job_whose_run_panics_is_reported_as_failed() {
        let json = br#"{"job_id":"j","action_id":"a","plan_id":"p","plan":{},"inputs":{},"attempt":2}"#;
        let job: JobDocument = parse(json).unwrap();
        let (update, large_outputs, _) =
            outcome(&job, &CancelToken::default(), None, panics()).await.unwrap();
        assert_eq!((update.status, update.attempt), (Some(Status::Failed), Some(2)));
        assert_eq!(update.error.as_deref(), Some(PANICKED));
        assert!(large_outputs.streams.is_empty());
    }

    #[tokio::test]
    async fn run_that_ends_in_any_way_is_no_longer_named_and_frees_its_permit() {
        let dir = tempfile::tempdir().unwrap();
        let context = ExecContext::for_tests(dir.path(), OfferedPrograms::find(OsStr::new(""), None));
        let limit = OpenFileLimit { slots: 1, threads: 1, job_files: 9, followed_files: 1 };
        let pool = JobPool::new(context, (limit, &Offer::default()), 0, vec![Handle::current()]);
        let before = pool.permits.available_permits();
        let number = locked(&pool.jobs).running.next();
        let permit = Arc::clone(&pool.permits).try_acquire_owned().ok();
        let run = RunGuard { pool: Arc::downgrade(&pool), number, permit };
        let task = tokio::spawn(async move {
            let _run = run;
            std::future::pending::<()>().await;
        });
        let (job_id, cancel, live_output) =
            ("j".parse().unwrap(), CancelToken::default(), Arc::<LiveOutput>::default());
        let abort = task.abort_handle();
        locked(&pool.jobs).running.add(RunningJob { job_id, attempt: 1, task: abort, cancel, live_output });
        assert_eq!((pool.job_ids().len(), pool.permits.available_permits()), (1, before - 1));
        task.abort();
        assert!(task.await.is_err());
        assert_eq!((pool.job_ids().len(), pool.permits.available_permits()), (0, before));
    }
}
