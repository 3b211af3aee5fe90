//! Job pool: the running jobs, the claimed jobs that wait for a slot, and the finished jobs without
//! an accepted report.
//!
//! Jobs outlive a registration, and report over the current connection, which the worker sets with
//! [`JobPool::report_over`]. The pool bounds the number of claimed and unreported jobs with
//! permits: a permit is taken at the claim and released after the report.

mod directives;
mod guards;
mod ledger;
pub(crate) mod prefetch;
pub(crate) mod recent_output;
mod run;
pub(crate) mod running;
pub(crate) mod slots;

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use agenix_client::ClientError;
use agenix_protocol::limits::MAX_ACTIVE_JOBS;
use tokio::{
    runtime::Handle,
    sync::{Notify, OwnedSemaphorePermit, Semaphore, watch},
    time::{Instant, sleep_until, timeout},
};

use crate::{
    exec::{open_file_limit::OpenFileLimit, programs::OfferedPrograms, start::ExecContext},
    jobs::{
        ledger::{Allocation, ResourceLedger},
        recent_output::RecentOutput,
        running::RunningJobs,
        slots::{Claimed, Slots},
    },
    report::{batch_timer::BatchTimer, link::ReportLink, queue::ReportQueue, registration::ClaimStream},
    resources::Offer,
    stats::Counters,
};

/// Maximum wait for a slot. After a longer wait, jobs count as long, and another worker should run
/// the waiting job.
const MAX_WAIT: Duration = Duration::from_secs(1);
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
    jobs: Mutex<JobPoolState>,
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
    /// Notified when the worker has to register again: the connection of a report is dead, or agq
    /// refuses every report of a job.
    pub(crate) lost: Arc<Notify>,
    pub(crate) counters: Counters,
}

struct JobPoolState {
    slots: Slots,
    running: RunningJobs,
}

/// Reason why claiming stopped.
pub(crate) enum ClaimStopped {
    /// Claiming failed.
    Failed(ClientError),
    /// A prefetched job has waited longer than [`MAX_WAIT`].
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
        // A heartbeat names each job with a permit, and agq refuses a heartbeat with more jobs.
        let permit_count = (slot_count * (1 + ahead + REPORTS_A_SLOT)).min(MAX_ACTIVE_JOBS);
        let pool = Arc::new(Self {
            context: Mutex::new(Arc::new(context)),
            threads,
            jobs: Mutex::new(JobPoolState {
                slots: Slots::new(slot_count, ahead, ResourceLedger::new(offer)),
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
    pub(crate) fn set_programs(&self, programs: OfferedPrograms) {
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
                // The call does not wait: requests never exceed the permits, and only this function
                // takes permits.
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

    /// Waits until the oldest waiting job has waited for [`MAX_WAIT`]. Without a waiting job at
    /// the time of the call, the future never completes.
    async fn wait_for_starvation(&self) {
        loop {
            let oldest = locked(&self.jobs).slots.oldest();
            let Some(since) = oldest else { return std::future::pending().await };
            if since.elapsed() >= MAX_WAIT {
                return;
            }
            sleep_until(since + MAX_WAIT).await;
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
    fn start_waiting(self: &Arc<Self>, jobs: &mut JobPoolState) {
        while let Some(job) = jobs.slots.next() {
            self.start(jobs, job);
        }
    }

    /// Wakes the claiming task if there is room. The check is first, because a wake-up costs more.
    fn wake_claimer(&self, jobs: &JobPoolState) {
        if jobs.slots.capacity() > 0 {
            self.has_room.notify_one();
        }
    }

    /// Reports finished jobs in batches, and never returns.
    async fn report(self: Arc<Self>) {
        let mut batch_timer = BatchTimer::default();
        loop {
            for ended in self.reports.next_batch(&mut batch_timer).await {
                let number = ended.number;
                let mut jobs = locked(&self.jobs);
                if jobs.running.has(number) {
                    let task = tokio::spawn(ended.report());
                    jobs.running.set_current_task(number, task.abort_handle());
                } else {
                    // The run was aborted, and the drop of its guard needs the lock.
                    drop(jobs);
                    drop(ended);
                }
            }
        }
    }

    /// Removes a run that has ended, and releases its permit.
    fn finish(&self, number: u64, permit: Option<OwnedSemaphorePermit>) {
        let mut jobs = locked(&self.jobs);
        let over = jobs.running.remove(number);
        drop(permit);
        self.wake_claimer(&jobs);
        // The drop checks and truncates files, and slots would wait for the lock meanwhile.
        drop(jobs);
        drop(over);
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::{ExecContext, Handle, JobPool, MAX_ACTIVE_JOBS, Offer, OfferedPrograms, OpenFileLimit};

    #[tokio::test]
    async fn pool_never_has_more_jobs_than_a_heartbeat_may_name() {
        let dir = tempfile::tempdir().unwrap();
        for (slots, most) in [(2, 66), (10_000, MAX_ACTIVE_JOBS)] {
            let context = ExecContext::for_tests(dir.path(), OfferedPrograms::find(OsStr::new(""), None));
            let limit = OpenFileLimit { slots, threads: 1, job_files: 9, followed_files: 1 };
            let pool = JobPool::new(context, (limit, &Offer::default()), 16, vec![Handle::current()]);
            assert_eq!(pool.permits.available_permits(), most as usize, "{slots} slots");
        }
    }
}
