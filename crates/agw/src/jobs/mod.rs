//! Job pool: the running jobs, the claimed jobs that wait for a slot, and the finished jobs without
//! an accepted report.
//!
//! Jobs outlive a registration. They report over the current connection, which the worker sets with
//! [`JobPool::report_over`]. The pool bounds the number of claimed and unreported jobs with
//! permits: a permit is taken at the claim and released after the report.

mod directives;
mod guards;
mod ledger;
pub(crate) mod prefetch;
pub(crate) mod recent_output;
pub(crate) mod running;
pub(crate) mod slots;

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use agenix_client::ClientError;
use agenix_protocol::documents::{JobDocument, JobUpdate, Status};
use futures_util::FutureExt;
use tokio::{
    runtime::Handle,
    sync::{Notify, OwnedSemaphorePermit, Semaphore, watch},
    time::{Instant, sleep, sleep_until, timeout},
};
use tracing::info;

use crate::{
    exec::{
        cancel::CancelToken,
        job,
        job_resources::{JobResources, ResourceHold},
        live_output::LiveOutput,
        open_file_limit::OpenFileLimit,
        programs::Programs,
        stages::JobProgress,
        start::ExecContext,
        stray_sweep, subreaper,
    },
    jobs::{
        guards::{ResourceGuard, SlotGuard},
        ledger::{Allocation, Ledger},
        recent_output::RecentOutput,
        running::{RunningJob, RunningJobs},
        slots::{Claimed, Slots, StartableJob},
    },
    report::{
        batch_timer::BatchTimer,
        download,
        link::ReportLink,
        queue::{FinishedJob, ReportQueue},
        registration::ClaimStream,
        reporter::{Reporter, StartReport},
        upload::LargeOutputs,
    },
    resources::Offer,
    stats::Counters,
};

/// SIGTERM to SIGKILL for a job of an invalid claim: short, because another worker may run it.
const STOP_GRACE: Duration = Duration::from_millis(800);
/// Maximum wait for a slot. After it, jobs count as long, and another worker should run this one.
const MOST_WAIT: Duration = Duration::from_secs(1);
/// Interval between two checks whether a shortage is over.
const SHORTAGE_LOOK: Duration = Duration::from_secs(1);
/// Maximum number of unreported jobs per slot. At this bound, the worker claims no more jobs.
const REPORTS_A_SLOT: u32 = 16;

pub(crate) struct JobPool {
    /// Execution context of jobs that start from now on.
    context: Mutex<Arc<ExecContext>>,
    /// Runtimes of the spawn threads, which run the jobs of the slots.
    threads: Vec<Handle>,
    /// One lock for slots and running jobs, so that no reader misses a job between wait and run.
    jobs: Mutex<Jobs>,
    /// Notified when more jobs may be claimed.
    has_room: Notify,
    reports: ReportQueue,
    recent_output: Mutex<RecentOutput>,
    /// Permits for jobs that are claimed and not yet reported.
    permits: Arc<Semaphore>,
    permit_count: u32,
    reporter: watch::Sender<Option<ReportLink>>,
    /// Permits for jobs that upload large outputs, as many as there are slots.
    uploads: Arc<Semaphore>,
    /// Notified when a report fails because the connection is dead.
    pub(crate) lost: Arc<Notify>,
    pub(crate) counters: Counters,
}

struct Jobs {
    slots: Slots,
    running: RunningJobs,
}

/// Reason why claiming stopped.
pub(crate) enum ClaimStopped {
    /// Claiming failed.
    Failed(ClientError),
    /// A prefetched job has waited longer than [`MOST_WAIT`].
    Stuck,
}

impl JobPool {
    /// Creates a pool that prefetches `ahead` jobs per slot, and reports from the caller's runtime.
    pub(crate) fn new(
        context: ExecContext,
        (open_file_limit, offer): (OpenFileLimit, &Offer),
        ahead: u32,
        threads: Vec<Handle>,
    ) -> Arc<Self> {
        let slot_count = open_file_limit.slots;
        let permit_count = slot_count * (1 + ahead + REPORTS_A_SLOT);
        let pool = Arc::new(Self {
            context: Mutex::new(Arc::new(context)),
            threads,
            jobs: Mutex::new(Jobs {
                slots: Slots::new(slot_count, ahead, Ledger::new(offer)),
                running: RunningJobs::default(),
            }),
            has_room: Notify::new(),
            reports: ReportQueue::default(),
            recent_output: Mutex::new(RecentOutput::new(open_file_limit.followed_files)),
            permits: Arc::new(Semaphore::new(permit_count as usize)),
            permit_count,
            reporter: watch::Sender::new(None),
            uploads: Arc::new(Semaphore::new(slot_count as usize)),
            lost: Arc::default(),
            counters: Counters::default(),
        });
        tokio::spawn(Arc::clone(&pool).report());
        pool
    }

    /// Sets the connections for reports and uploads. `None` holds reports back.
    pub(crate) fn report_over(&self, link: Option<ReportLink>) {
        self.reporter.send_replace(link);
    }

    /// Returns the execution context of jobs that start from now on.
    pub(crate) fn context(&self) -> Arc<ExecContext> {
        Arc::clone(&locked(&self.context))
    }

    /// Sets the programs of jobs that start from now on. Running jobs keep their programs.
    pub(crate) fn set_programs(&self, programs: Programs) {
        let mut context = locked(&self.context);
        *context = Arc::new(ExecContext { programs, ..ExecContext::clone(&context) });
    }

    /// Claims jobs while there is room, until a claim fails or a waiting job has waited too long.
    pub(crate) async fn pull(self: &Arc<Self>, claims: &mut ClaimStream) -> ClaimStopped {
        loop {
            let claimed = tokio::select! {
                claimed = self.claim(claims) => claimed,
                () = self.wait_for_starvation() => return ClaimStopped::Stuck,
            };
            match claimed {
                Ok(claimed) => self.assign(claimed),
                Err(error) => return ClaimStopped::Failed(error),
            }
        }
    }

    async fn claim(&self, claims: &mut ClaimStream) -> Result<Claimed, ClientError> {
        loop {
            if claims.is_idle() {
                let room = self.room();
                if room == 0 {
                    let more = self.has_room.notified();
                    if self.is_short() {
                        // Nothing notifies the worker of the end of a shortage.
                        let _looked_again = timeout(SHORTAGE_LOOK, more).await;
                    } else {
                        more.await;
                    }
                    continue;
                }
                claims.request(room);
            }
            if let Some(job) = claims.next().await? {
                // No wait: requests never exceed the permits, and only this function takes them.
                let permits = Arc::clone(&self.permits);
                let permit = permits.acquire_owned().await.expect("the semaphore is never closed");
                return Ok(Claimed { job, permit });
            }
        }
    }

    /// Returns the number of jobs that may be claimed now.
    fn room(&self) -> usize {
        if self.is_short() {
            return 0;
        }
        locked(&self.jobs).slots.capacity().min(self.permits.available_permits())
    }

    /// Waits until the oldest waiting job has waited for [`MOST_WAIT`]. Without a waiting job at
    /// the time of the call, the future never completes.
    async fn wait_for_starvation(&self) {
        loop {
            let oldest = locked(&self.jobs).slots.oldest();
            let Some(since) = oldest else { return std::future::pending().await };
            if since.elapsed() >= MOST_WAIT {
                return;
            }
            sleep_until(since + MOST_WAIT).await;
        }
    }

    fn is_short(&self) -> bool {
        self.context().shortage.is_current(Instant::now())
    }

    /// Waits until a resource shortage lasts although every job of the worker waits for the
    /// resource, and returns the reason. If the worker `ends`, any shortage counts as lasting.
    pub(crate) async fn starved(&self, ends: bool) -> String {
        self.context().shortage.wait_until_lasting(|| locked(&self.jobs).running.count(), ends).await
    }

    fn assign(self: &Arc<Self>, claimed: Claimed) {
        let mut jobs = locked(&self.jobs);
        if let Some(job) = jobs.slots.assign(claimed, Instant::now()) {
            self.start(&mut jobs, job);
        }
    }

    fn release_slot(self: &Arc<Self>, slot: u32, took: Option<Duration>) {
        let mut jobs = locked(&self.jobs);
        if let Some(job) = jobs.slots.release(slot, took) {
            self.start(&mut jobs, job);
        }
        self.wake_claimer(&jobs);
    }

    fn release_resources(self: &Arc<Self>, allocation: &Allocation) {
        let mut jobs = locked(&self.jobs);
        jobs.slots.release_resources(allocation);
        self.start_waiting(&mut jobs);
    }

    /// Starts all waiting jobs that can start.
    fn start_waiting(self: &Arc<Self>, jobs: &mut Jobs) {
        while let Some(job) = jobs.slots.next() {
            self.start(jobs, job);
        }
    }

    /// Wakes the claiming task if there is room. The check is first, because a wake-up costs more.
    fn wake_claimer(&self, jobs: &Jobs) {
        if jobs.slots.capacity() > 0 {
            self.has_room.notify_one();
        }
    }

    /// Starts a job in a slot. The caller holds the lock of the jobs until the job is registered,
    /// because the job removes itself at its end.
    fn start(self: &Arc<Self>, jobs: &mut Jobs, job: StartableJob) {
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

    /// Reports finished jobs in batches, and never returns.
    async fn report(self: Arc<Self>) {
        let mut batch_timer = BatchTimer::default();
        loop {
            for ended in self.reports.next_batch(&mut batch_timer).await {
                let number = ended.number;
                let mut jobs = locked(&self.jobs);
                // A run that is missing here was aborted.
                if jobs.running.has(number) {
                    let pool = Arc::clone(&self);
                    let task = tokio::spawn(async move { pool.finish(number, ended.report().await) });
                    jobs.running.set_current_task(number, task.abort_handle());
                }
            }
        }
    }

    /// Removes a run that has ended, and releases its permit.
    fn finish(&self, number: u64, permit: OwnedSemaphorePermit) {
        let mut jobs = locked(&self.jobs);
        let over = jobs.running.remove(number);
        drop(permit);
        self.wake_claimer(&jobs);
        // The drop checks and truncates files, and slots would wait for the lock meanwhile.
        drop(jobs);
        drop(over);
    }
}

async fn long_cancelled(cancel: &CancelToken) {
    cancel.cancelled().await;
    sleep(STOP_GRACE).await;
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
