//! The jobs that run. They outlive a stay at agq and report over whichever connection is there.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering},
};

use agenix_client::{ClientError, Connection};
use agenix_protocol::{
    documents::{JobDocument, Status},
    ids::JobId,
};
use tokio::{
    sync::{Notify, OwnedSemaphorePermit, Semaphore, watch},
    task::AbortHandle,
    time::Instant,
};

use crate::{job, link::Link, session::Claims, stage::Workshop, vitals::Counters};

/// The running jobs and the slots that they take.
pub(crate) struct Crew {
    workshop: Workshop,
    slots: Arc<Semaphore>,
    slot_count: u32,
    /// By the order of their starts: a job may run twice, when agq forgot a claim and made it again.
    running: Mutex<BTreeMap<u64, Run>>,
    link: watch::Sender<Option<Connection>>,
    /// Told when a job could not report because the connection is dead.
    pub(crate) lost: Arc<Notify>,
    pub(crate) counters: Counters,
}

struct Run {
    job_id: JobId,
    task: AbortHandle,
}

impl Crew {
    pub(crate) fn new(workshop: Workshop, slot_count: u32) -> Arc<Self> {
        Arc::new(Self {
            workshop,
            slots: Arc::new(Semaphore::new(slot_count as usize)),
            slot_count,
            running: Mutex::default(),
            link: watch::Sender::new(None),
            lost: Arc::default(),
            counters: Counters::default(),
        })
    }

    /// Reports go over this connection from now on.
    pub(crate) fn report_over(&self, connection: Option<Connection>) {
        self.link.send_replace(connection);
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
        let (crew, mut link) = (Arc::clone(self), Link::new(self.link.subscribe(), Arc::clone(&self.lost)));
        // Locked until the run is in the list: it takes itself out when it ends.
        let mut running = self.running();
        let number = running.last_key_value().map_or(0, |(last, _)| last + 1);
        let job_id = job.job_id.clone();
        let task = tokio::spawn(async move {
            crew.counters.active.fetch_add(1, Ordering::Relaxed);
            let started = Instant::now();
            let update = job::run(&job, &crew.workshop, |update| link.mention(&job.job_id, update)).await;
            crew.counters.active.fetch_sub(1, Ordering::Relaxed);
            crew.counters.ended(update.status == Some(Status::Completed), started.elapsed());
            link.report(&job.job_id, update).await;
            crew.running().remove(&number);
            drop(permit);
        });
        running.insert(number, Run { job_id, task: task.abort_handle() });
    }

    /// When nothing runs any more.
    pub(crate) async fn idle(&self) {
        drop(self.slots.acquire_many(self.slot_count).await);
    }

    /// Ends what runs, with every process of it; returns when they were all told.
    pub(crate) async fn abort(&self) {
        for run in std::mem::take(&mut *self.running()).into_values() {
            run.task.abort();
        }
        self.idle().await;
    }

    /// The jobs that run or are not reported yet.
    pub(crate) fn job_ids(&self) -> Vec<JobId> {
        self.running().values().map(|run| run.job_id.clone()).collect()
    }

    fn running(&self) -> MutexGuard<'_, BTreeMap<u64, Run>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
