//! The jobs that this worker has: those that run, those that wait for a slot, those that are not reported yet. They outlive a
//! stay at agq and report over whichever connection is there.

mod orders;
pub(crate) mod prefetch;
pub(crate) mod recent_output;
pub(crate) mod running;
pub(crate) mod slots;

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use agenix_client::{ClientError, Connection};
use agenix_protocol::documents::{JobDocument, JobUpdate, Status};
use tokio::{
    runtime::Handle,
    sync::{Notify, OwnedSemaphorePermit, Semaphore, watch},
    time::{Instant, sleep, sleep_until, timeout},
};
use tracing::info;

use crate::{
    exec::{
        cancel::CancelToken, job, live_output::LiveOutput, open_file_limit::OpenFileLimit,
        programs::Programs, stages::JobProgress, start::ExecContext,
    },
    jobs::{
        recent_output::RecentOutput,
        running::{RunningJob, RunningJobs},
        slots::{Claimed, Slots},
    },
    report::{
        batch_timer::BatchTimer,
        queue::{FinishedJob, ReportQueue},
        registration::ClaimStream,
        reporter::{Reporter, StartReport},
    },
    stats::Counters,
};

/// Time between SIGTERM and SIGKILL for a job that is not ours any more: others may begin with it now.
const STOP_GRACE: Duration = Duration::from_millis(800);
/// How long a job may wait for a slot. After that those that run are long, and it has to run elsewhere.
const MOST_WAIT: Duration = Duration::from_secs(1);
/// Interval between two checks whether a shortage is over.
const SHORTAGE_LOOK: Duration = Duration::from_secs(1);
/// How many jobs may wait to be reported, for each slot; beyond that no more are taken.
const REPORTS_A_SLOT: u32 = 16;

/// All jobs of this worker.
pub(crate) struct JobPool {
    /// What jobs that start now work with.
    context: Mutex<Arc<ExecContext>>,
    /// Where the processes of the slots are seen to.
    threads: Vec<Handle>,
    /// One lock: whoever looks sees no job between its wait and its run.
    jobs: Mutex<Jobs>,
    /// Told when more jobs may be claimed.
    has_room: Notify,
    reports: ReportQueue,
    recent_output: Mutex<RecentOutput>,
    /// Places for all that was claimed and is not reported.
    permits: Arc<Semaphore>,
    permit_count: u32,
    reporter: watch::Sender<Option<Connection>>,
    /// Told when a job could not report because the connection is dead.
    pub(crate) lost: Arc<Notify>,
    pub(crate) counters: Counters,
}

struct Jobs {
    slots: Slots,
    running: RunningJobs,
}

/// A slot with the job that runs in it. Dropped, it goes to the next that waits.
struct SlotGuard {
    pool: Arc<JobPool>,
    number: u32,
    /// How long its job took, when that is known.
    took: Option<Duration>,
}

impl Drop for SlotGuard {
    fn drop(&mut self) {
        self.pool.release_slot(self.number, self.took);
    }
}

/// Why no more jobs come.
pub(crate) enum ClaimStopped {
    /// Claiming failed.
    Failed(ClientError),
    /// A job that was claimed ahead has waited for too long.
    Stuck,
}

impl JobPool {
    /// A crew of so many slots, which claims at most so many jobs `ahead` for each. Reports leave from the runtime that this is
    /// called in.
    pub(crate) fn new(
        context: ExecContext,
        open_file_limit: OpenFileLimit,
        ahead: u32,
        threads: Vec<Handle>,
    ) -> Arc<Self> {
        let slot_count = open_file_limit.slots;
        let permit_count = slot_count * (1 + ahead + REPORTS_A_SLOT);
        let pool = Arc::new(Self {
            context: Mutex::new(Arc::new(context)),
            threads,
            jobs: Mutex::new(Jobs { slots: Slots::new(slot_count, ahead), running: RunningJobs::default() }),
            has_room: Notify::new(),
            reports: ReportQueue::default(),
            recent_output: Mutex::new(RecentOutput::new(open_file_limit.followed_files)),
            permits: Arc::new(Semaphore::new(permit_count as usize)),
            permit_count,
            reporter: watch::Sender::new(None),
            lost: Arc::default(),
            counters: Counters::default(),
        });
        tokio::spawn(Arc::clone(&pool).report());
        pool
    }

    /// Reports go over this connection from now on.
    pub(crate) fn report_over(&self, connection: Option<Connection>) {
        self.reporter.send_replace(connection);
    }

    /// What jobs that start now work with.
    pub(crate) fn context(&self) -> Arc<ExecContext> {
        Arc::clone(&locked(&self.context))
    }

    /// Jobs that start from now on find their programs here; those that run go on with what they started with.
    pub(crate) fn set_programs(&self, programs: Programs) {
        let mut context = locked(&self.context);
        *context = Arc::new(ExecContext { programs, ..ExecContext::clone(&context) });
    }

    /// Claims jobs whenever there is room for them, until that fails or those that wait for a slot wait in vain.
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
                // No more was asked for than there were berths, and nobody else takes one.
                let permits = Arc::clone(&self.permits);
                let permit = permits.acquire_owned().await.expect("the semaphore is never closed");
                return Ok(Claimed { job, permit });
            }
        }
    }

    /// How many more jobs may be claimed.
    fn room(&self) -> usize {
        if self.is_short() {
            return 0;
        }
        locked(&self.jobs).slots.capacity().min(self.permits.available_permits())
    }

    /// When a job has waited for too long for a slot. What waits then was there when this was called.
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

    /// Waits until a shortage lasts although no job runs here; if the worker `ends`, any one lasts.
    pub(crate) async fn starved(&self, ends: bool) -> String {
        self.context().shortage.wait_until_lasting(|| locked(&self.jobs).running.count(), ends).await
    }

    fn assign(self: &Arc<Self>, claimed: Claimed) {
        let mut jobs = locked(&self.jobs);
        if let Some((slot, claimed)) = jobs.slots.assign(claimed, Instant::now()) {
            self.start(&mut jobs.running, slot, claimed);
        }
    }

    fn release_slot(self: &Arc<Self>, slot: u32, took: Option<Duration>) {
        let mut jobs = locked(&self.jobs);
        if let Some((slot, claimed)) = jobs.slots.release(slot, took) {
            self.start(&mut jobs.running, slot, claimed);
        }
        self.wake_claimer(&jobs);
    }

    /// Where more jobs may be claimed now, they are. To wake whoever claims costs more than to look first.
    fn wake_claimer(&self, jobs: &Jobs) {
        if jobs.slots.capacity() > 0 {
            self.has_room.notify_one();
        }
    }

    /// Starts a job in a slot. All jobs are locked until it is in the roster, for it takes itself out when it ends.
    fn start(self: &Arc<Self>, running: &mut RunningJobs, slot: u32, claimed: Claimed) {
        let Claimed { job, permit } = claimed;
        let (job_id, attempt, cancel, number) =
            (job.job_id.clone(), job.attempt, CancelToken::default(), running.next());
        let live_output = Arc::<LiveOutput>::default();
        let thread = &self.threads[slot as usize % self.threads.len()];
        let task = thread.spawn({
            let (pool, cancel, live_output) = (Arc::clone(self), cancel.clone(), Arc::clone(&live_output));
            let reporter = Reporter::new(self.reporter.subscribe(), Arc::clone(&self.lost));
            let slot = SlotGuard { pool: Arc::clone(self), number: slot, took: None };
            async move {
                let ended = tokio::select! {
                    ended = pool.work(&job, &reporter, (&cancel, &live_output), slot) => ended,
                    // What is left of it is killed as it is dropped.
                    () = long_cancelled(&cancel) => None,
                };
                match ended {
                    Some((update, under_way)) => {
                        let job_id = job.job_id;
                        pool.reports.put(FinishedJob {
                            number,
                            job_id,
                            update,
                            reporter,
                            under_way,
                            cancel,
                            permit,
                        });
                    }
                    None => pool.finish(number, permit),
                }
            }
        });
        running.add(RunningJob { job_id, attempt, task: task.abort_handle(), cancel, live_output });
    }

    /// Runs a job and leaves its slot; what is to be reported of it, and a report that is still on its way. Quietly gives up when
    /// `cancel` is called.
    async fn work(
        &self,
        job: &JobDocument,
        reporter: &Reporter,
        (cancel, live_output): (&CancelToken, &LiveOutput),
        mut slot: SlotGuard,
    ) -> Option<(JobUpdate, Option<StartReport>)> {
        let (context, started) = (self.context(), Instant::now());
        let (tell, told) = watch::channel(None);
        let progress = |now: JobProgress| {
            tell.send_replace(Some(now));
        };
        let mut under_way = None;
        let update = tokio::select! {
            // First: of a job that has ended nobody needs to hear that it runs.
            biased;
            update = job::run(job, &context, (cancel, live_output), progress) => update,
            never = reporter.report_progress(job, told, cancel, &mut under_way) => match never {},
        };
        live_output.end();
        let took = started.elapsed();
        slot.took = Some(took);
        // The next job starts, and this one is reported beside it.
        drop(slot);
        if cancel.is_cancelled() {
            info!(job_id = %job.job_id, "the job is not ours any more, its processes were ended");
            return None;
        }
        self.counters.ended(update.status == Some(Status::Completed), took);
        Some((update, under_way))
    }

    /// Reports what has ended, for ever.
    async fn report(self: Arc<Self>) {
        let mut batch_timer = BatchTimer::default();
        loop {
            for ended in self.reports.next_batch(&mut batch_timer).await {
                let number = ended.number;
                let mut jobs = locked(&self.jobs);
                // Else it was aborted.
                if jobs.running.has(number) {
                    let pool = Arc::clone(&self);
                    let task = tokio::spawn(async move { pool.finish(number, ended.report().await) });
                    jobs.running.set_current_task(number, task.abort_handle());
                }
            }
        }
    }

    /// A run is over, and reported where that was wanted.
    fn finish(&self, number: u64, permit: OwnedSemaphorePermit) {
        let mut jobs = locked(&self.jobs);
        let over = jobs.running.remove(number);
        drop(permit);
        self.wake_claimer(&jobs);
        // Its files are looked at as they are let go, and emptied: meanwhile slots would wait for the lock.
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
