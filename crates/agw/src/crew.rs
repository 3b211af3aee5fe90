//! The jobs that run. They outlive a stay at agq and report over whichever connection is there.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use agenix_client::{ClientError, Connection};
use agenix_protocol::{
    documents::{JobDocument, Status},
    ids::JobId,
};
use tokio::{
    sync::{Notify, OwnedSemaphorePermit, Semaphore, watch},
    task::AbortHandle,
    time::{Instant, sleep},
};
use tracing::{debug, info};

use crate::{
    job, link::Link, pipeline::Progress, session::Claims, stage::Workshop, stop::Stop, toolbox::Toolbox,
    vitals::Counters,
};

/// Time between SIGTERM and SIGKILL for a job that is not ours any more: others may begin with it now.
const STOP_GRACE: Duration = Duration::from_millis(800);

/// The running jobs and the slots that they take.
pub(crate) struct Crew {
    /// What jobs that start now work with.
    workshop: Mutex<Arc<Workshop>>,
    slots: Arc<Semaphore>,
    slot_count: u32,
    roster: Mutex<Roster>,
    link: watch::Sender<Option<Connection>>,
    /// Told when a job could not report because the connection is dead.
    pub(crate) lost: Arc<Notify>,
    pub(crate) counters: Counters,
}

/// Who runs.
#[derive(Default)]
struct Roster {
    /// By the order of their starts: a job may run twice, when agq forgot a claim and made it again.
    runs: BTreeMap<u64, Run>,
    /// The number of the next run.
    next: u64,
}

struct Run {
    job_id: JobId,
    attempt: u32,
    task: AbortHandle,
    stop: Stop,
}

impl Crew {
    pub(crate) fn new(workshop: Workshop, slot_count: u32) -> Arc<Self> {
        Arc::new(Self {
            workshop: Mutex::new(Arc::new(workshop)),
            slots: Arc::new(Semaphore::new(slot_count as usize)),
            slot_count,
            roster: Mutex::default(),
            link: watch::Sender::new(None),
            lost: Arc::default(),
            counters: Counters::default(),
        })
    }

    /// Reports go over this connection from now on.
    pub(crate) fn report_over(&self, connection: Option<Connection>) {
        self.link.send_replace(connection);
    }

    /// What jobs that start now work with.
    pub(crate) fn workshop(&self) -> Arc<Workshop> {
        Arc::clone(&locked(&self.workshop))
    }

    /// Jobs that start from now on find their programs here; those that run go on with what they started with.
    pub(crate) fn equip(&self, toolbox: Toolbox) {
        let mut workshop = locked(&self.workshop);
        *workshop = Arc::new(Workshop { toolbox, ..Workshop::clone(&workshop) });
    }

    /// Claims a job whenever a slot is free, until claiming fails. Dropping this drops the claiming connection with it,
    /// and by that agq learns that a claim on its way was not received.
    pub(crate) async fn pull(self: Arc<Self>, mut claims: Claims) -> ClientError {
        loop {
            let permit =
                Arc::clone(&self.slots).acquire_owned().await.expect("the semaphore is never closed");
            match claims.next().await {
                Ok(job) => self.start(permit, job),
                Err(error) => return error,
            }
        }
    }

    fn start(self: &Arc<Self>, permit: OwnedSemaphorePermit, job: JobDocument) {
        let (crew, link) = (Arc::clone(self), Link::new(self.link.subscribe(), Arc::clone(&self.lost)));
        let (job_id, attempt, stop) = (job.job_id.clone(), job.attempt, Stop::default());
        // Locked until the run is in the list: it takes itself out when it ends.
        let mut roster = locked(&self.roster);
        // A later claim: agq took the job back, and no order tells the earlier run, for the job is ours again.
        let is_earlier = |run: &&Run| run.job_id == job_id && run.attempt < attempt;
        roster.runs.values().filter(is_earlier).for_each(|run| run.stop.call());
        let number = roster.next;
        roster.next += 1;
        let task = tokio::spawn({
            let stop = stop.clone();
            async move {
                tokio::select! {
                    () = crew.work(&job, link, &stop) => {}
                    // What is left of it is killed as it is dropped.
                    () = long_called(&stop) => {}
                }
                locked(&crew.roster).runs.remove(&number);
                drop(permit);
            }
        });
        roster.runs.insert(number, Run { job_id, attempt, task: task.abort_handle(), stop });
    }

    /// Runs a job and reports it; quietly gives up when `stop` is called.
    async fn work(&self, job: &JobDocument, mut link: Link, stop: &Stop) {
        let (workshop, started) = (self.workshop(), Instant::now());
        let (tell, told) = watch::channel(None);
        let progress = |now: Progress| {
            tell.send_replace(Some(now));
        };
        let mut under_way = None;
        let update = tokio::select! {
            // First: that a job runs goes out before its end does, however short it is. A claim that was never reported
            // goes back when the connection closes.
            biased;
            never = link.accompany(job, told, stop, &mut under_way) => match never {},
            update = job::run(job, &workshop, stop, progress) => update,
        };
        if stop.is_called() {
            info!(job_id = %job.job_id, "the job is not ours any more, its processes were ended");
            return;
        }
        self.counters.ended(update.status == Some(Status::Completed), started.elapsed());
        let reported = async {
            if let Some(start) = under_way {
                // What agq says to it does not matter any more, only that it is heard before the end.
                let _heard = start.await;
            }
            link.report(&job.job_id, update).await;
        };
        tokio::select! {
            () = reported => {}
            () = stop.called() => {}
        }
    }

    /// These jobs are not ours any more: what runs of them is ended and not reported. Only runs with numbers below
    /// `before` are meant: whoever gave the order could not know of later ones.
    pub(crate) fn cancel(&self, jobs: &[JobId], before: u64) {
        for (_, run) in locked(&self.roster).runs.range(..before) {
            if jobs.contains(&run.job_id) && !run.stop.is_called() {
                debug!(job_id = %run.job_id, "agq says that the job is not ours");
                run.stop.call();
            }
        }
    }

    /// When nothing runs any more.
    pub(crate) async fn idle(&self) {
        drop(self.slots.acquire_many(self.slot_count).await);
    }

    /// Ends what runs, with every process of it; returns when they were all told.
    pub(crate) async fn abort(&self) {
        for run in std::mem::take(&mut locked(&self.roster).runs).into_values() {
            run.task.abort();
        }
        self.idle().await;
    }

    /// The jobs that run or are not reported yet.
    pub(crate) fn job_ids(&self) -> Vec<JobId> {
        self.roster().0
    }

    /// The same, and the number that the next run will have.
    pub(crate) fn roster(&self) -> (Vec<JobId>, u64) {
        let roster = locked(&self.roster);
        (roster.runs.values().map(|run| run.job_id.clone()).collect(), roster.next)
    }
}

async fn long_called(stop: &Stop) {
    stop.called().await;
    sleep(STOP_GRACE).await;
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
