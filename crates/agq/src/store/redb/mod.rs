//! The store on redb: one file, one writer, many readers.
//!
//! `writer` is the only one to write, `batch` is one transaction of it; `actions`, `claims`, `workers`, `pruning` and
//! `keyspace` are what can be done in one, `reads` looks at what is committed, `key_reads` at either. `file` opens the file,
//! `format` brings it to the format of today, `check` says what in it contradicts itself, `backup` copies it.

mod actions;
mod backup;
mod batch;
#[cfg(feature = "simulation")]
mod by_hand;
mod check;
mod claims;
mod codec;
mod file;
mod format;
mod key_reads;
mod keyspace;
mod lanes;
mod overlay;
mod pruning;
mod reads;
mod tables;
mod workers;
mod writer;

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
};

use agenix_protocol::{
    documents::Status,
    ids::{ActionId, JobId, PlanId, WorkerId},
    request::{Page, Search, Slice},
    time::Timestamp,
};
use agenix_rules::{
    action::{Action, Tally},
    job::Job,
    worker::Worker,
};
use anyhow::Context;
use bytes::Bytes;
use futures_util::future::{BoxFuture, ready};
use redb::{Database, Error, ReadTransaction, ReadableDatabase, backends::InMemoryBackend};

use tokio::sync::watch;

pub(crate) use self::{
    file::{Examined, examine, lock_dir, parent},
    tables::FORMAT,
    writer::Writer,
};

use self::{
    batch::Batch,
    writer::{Inbox, Size},
};
use super::{
    ActionRule, Added, Answer, Arrivals, Change, Claim, Claimant, JobFilter, JobRule, Keep, Lane, MoreJobs,
    NewAction, Promise, Records, Ruled, StoreError, StoredJob, StoredPlan, Totals, WorkerRule,
};

/// A redb database with its writer.
pub(crate) struct RedbStore {
    /// `None` once the store is closing.
    inbox: Option<Inbox>,
    writer: Mutex<Option<JoinHandle<()>>>,
    database: Arc<Database>,
    arrivals: Arc<Arrivals>,
    /// Whether something visible is not on disk yet.
    owes_sync: Arc<AtomicBool>,
    /// Why the writer cannot go on.
    failed: watch::Receiver<Option<String>>,
    scans: Scans,
}

/// Where reads are done that may be long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scans {
    /// Where they keep nobody waiting.
    Aside,
    /// On the spot: whoever runs the writer by hand wants everything in one order.
    #[cfg(feature = "simulation")]
    InPlace,
}

impl RedbStore {
    /// Opens the database file, or creates it.
    pub(crate) fn open(path: &Path) -> anyhow::Result<Self> {
        let database = file::open(path)?;
        Self::start(database).with_context(|| format!("cannot use the database {}", path.display()))
    }

    /// A store that forgets everything when it is dropped.
    #[cfg_attr(not(test), expect(dead_code, reason = "tests need no file"))]
    pub(crate) fn in_memory() -> anyhow::Result<Self> {
        Self::start(Database::builder().create_with_backend(InMemoryBackend::new())?)
    }

    fn start(database: Database) -> anyhow::Result<Self> {
        let (store, writer) = Self::employ(database, Scans::Aside)?;
        *store.writer.lock().unwrap_or_else(PoisonError::into_inner) = Some(writer.work()?);
        Ok(store)
    }

    fn employ(database: Database, scans: Scans) -> anyhow::Result<(Self, Writer)> {
        format::prepare(&database)?;
        let (database, arrivals) = (Arc::new(database), Arc::new(Arrivals::default()));
        let owes_sync = Arc::new(AtomicBool::new(false));
        let (writer, inbox, failed) =
            writer::employ(Arc::clone(&database), Arc::clone(&arrivals), Arc::clone(&owes_sync))?;
        let (inbox, thread) = (Some(inbox), Mutex::new(None));
        Ok((Self { inbox, writer: thread, database, arrivals, owes_sync, failed, scans }, writer))
    }

    fn write<T, F>(&self, promise: Promise, work: F) -> Answer<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut Batch<'_>) -> Result<T, Error> + Send + 'static,
    {
        self.write_sized(promise, Size::Small, work)
    }

    fn write_sized<T, F>(&self, promise: Promise, size: Size, work: F) -> Answer<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut Batch<'_>) -> Result<T, Error> + Send + 'static,
    {
        match &self.inbox {
            Some(inbox) => inbox.write(promise, size, work),
            None => Box::pin(ready(Err(StoreError("the store has stopped".into())))),
        }
    }

    /// A short read, done on the spot: a few microseconds.
    fn read<T, F>(&self, work: F) -> Answer<T>
    where
        T: Send + 'static,
        F: FnOnce(&ReadTransaction) -> Result<T, Error>,
    {
        Box::pin(ready(run(&self.database, work)))
    }

    /// A read that may be long, done where it keeps nobody waiting.
    fn scan<T, F>(&self, work: F) -> Answer<T>
    where
        T: Send + 'static,
        F: FnOnce(&ReadTransaction) -> Result<T, Error> + Send + 'static,
    {
        let database = Arc::clone(&self.database);
        self.scans.run(move || run(&database, work))
    }
}

impl Scans {
    fn run<T: Send + 'static>(
        self,
        read: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
    ) -> Answer<T> {
        match self {
            Self::Aside => {
                let scan = tokio::task::spawn_blocking(read);
                Box::pin(async move { scan.await.map_err(|error| StoreError(error.to_string()))? })
            }
            #[cfg(feature = "simulation")]
            Self::InPlace => Box::pin(ready(read())),
        }
    }
}

fn run<T>(
    database: &Database,
    work: impl FnOnce(&ReadTransaction) -> Result<T, Error>,
) -> Result<T, StoreError> {
    let read = || work(&database.begin_read()?);
    read().map_err(|error| StoreError(error.to_string()))
}

impl Drop for RedbStore {
    /// Lets the writer finish what it was given.
    fn drop(&mut self) {
        self.inbox = None;
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(writer) = writer
            && writer.join().is_err()
        {
            tracing::error!("the writer thread panicked");
        }
    }
}

impl Records for RedbStore {
    fn add_plan(&self, plan: StoredPlan) -> Answer<bool> {
        self.write(Promise::Durable, move |batch| batch.add_plan(&plan))
    }

    fn plan(&self, plan_id: &PlanId) -> Answer<Option<StoredPlan>> {
        self.read(|read| reads::plan(read, plan_id))
    }

    fn plans(&self, page: Page) -> Answer<Vec<PlanId>> {
        self.scan(move |read| reads::plans(read, &page))
    }

    fn delete_plan(&self, plan_id: &PlanId) -> Answer<Ruled<bool>> {
        let plan_id = plan_id.clone();
        self.write(Promise::Durable, move |batch| batch.delete_plan(&plan_id))
    }

    fn add_action(&self, action: NewAction) -> Answer<Ruled<Added>> {
        let size = Size::Jobs(action.jobs.len());
        self.write_sized(Promise::Durable, size, move |batch| batch.add_action(&action))
    }

    fn add_jobs(&self, more: MoreJobs) -> Answer<Ruled<u64>> {
        let size = Size::Bulk(more.jobs.len());
        self.write_sized(Promise::Durable, size, move |batch| batch.add_jobs(&more))
    }

    fn decide_action(&self, action_id: &ActionId, rule: ActionRule) -> Answer<Ruled<()>> {
        let action_id = action_id.clone();
        self.write(Promise::Durable, move |batch| batch.decide_action(&action_id, &rule))
    }

    fn actions(&self, page: Page) -> Answer<Vec<ActionId>> {
        self.scan(move |read| reads::actions(read, &page))
    }

    fn action(&self, action_id: &ActionId) -> Answer<Option<(Action, Tally)>> {
        self.read(|read| reads::action(read, action_id))
    }

    fn jobs_of(&self, action_id: &ActionId, statuses: Vec<Status>, slice: Slice) -> Answer<Vec<JobId>> {
        let action_id = action_id.clone();
        self.scan(move |read| reads::jobs_of(read, &action_id, &statuses, slice))
    }

    fn job_record(&self, job_id: &JobId) -> Answer<Option<Job>> {
        self.read(|read| reads::job_record(read, job_id))
    }

    fn job(&self, job_id: &JobId) -> Answer<Option<StoredJob>> {
        self.read(|read| reads::job(read, job_id))
    }

    fn decide(
        &self,
        job_id: &JobId,
        promise: Promise,
        results: Option<Bytes>,
        rule: JobRule,
    ) -> Answer<Ruled<Option<Change>>> {
        let job_id = job_id.clone();
        self.write(promise, move |batch| {
            let results = results.as_deref().map(std::str::from_utf8).transpose();
            let results = results.map_err(|error| Error::Corrupted(error.to_string()))?;
            batch.decide(&job_id, results, &rule)
        })
    }

    fn claim(
        &self,
        claimants: Vec<Claimant>,
        now: Timestamp,
        start_timeout_ms: u64,
    ) -> Answer<Vec<Option<Claim>>> {
        self.write(Promise::Visible, move |batch| batch.claim(&claimants, now, start_timeout_ms))
    }

    fn search(&self, search: Search) -> Answer<Vec<JobId>> {
        self.scan(move |read| reads::search(read, &search))
    }

    fn peek(&self, queue: &str, count: usize) -> Answer<Vec<JobId>> {
        let queue = queue.to_owned();
        self.scan(move |read| reads::peek(read, &queue, count))
    }

    fn peek_scheduled(&self, count: usize) -> Answer<Vec<JobId>> {
        self.scan(move |read| reads::peek_scheduled(read, count))
    }

    fn ahead(&self, job: &Job, limit: usize) -> Answer<u64> {
        let job = job.clone();
        self.scan(move |read| reads::ahead(read, &job, limit))
    }

    fn set_paused(&self, queue: &str, paused: bool) -> Answer<()> {
        let queue = queue.to_owned();
        self.write(Promise::Durable, move |batch| batch.set_paused(&queue, paused))
    }

    fn paused(&self) -> Answer<Vec<String>> {
        self.read(reads::paused)
    }

    fn is_prunable(&self, keep: Keep) -> Answer<bool> {
        self.read(|read| reads::is_prunable(read, keep))
    }

    fn prune(&self, keep: Keep, limit: usize) -> Answer<usize> {
        self.write(Promise::Visible, move |batch| batch.prune(keep, limit))
    }

    fn totals(&self) -> Answer<Totals> {
        self.read(reads::totals)
    }

    fn held_by(&self, holder: &str) -> Answer<Vec<JobId>> {
        self.read(|read| reads::held_by(read, holder))
    }

    fn holders(&self) -> Answer<Vec<String>> {
        self.scan(reads::holders)
    }

    fn due(&self, now: Timestamp, limit: usize) -> Answer<Vec<JobId>> {
        self.read(|read| reads::due(read, now, limit))
    }

    fn waits(&self, now: Timestamp, wanted: JobFilter) -> Answer<Vec<Job>> {
        self.scan(move |read| reads::waits(read, now, &wanted))
    }

    fn scheduled(&self) -> Answer<(u64, Option<Timestamp>)> {
        self.read(reads::scheduled)
    }

    fn lanes(&self) -> Answer<Vec<Lane>> {
        self.scan(reads::lanes)
    }

    fn decide_worker(
        &self,
        worker_id: &WorkerId,
        promise: Promise,
        registration: Option<String>,
        rule: WorkerRule,
    ) -> Answer<Ruled<()>> {
        let worker_id = worker_id.clone();
        self.write(promise, move |batch| batch.decide_worker(&worker_id, registration.as_deref(), &rule))
    }

    fn registration(&self, worker_id: &WorkerId) -> Answer<Option<String>> {
        self.read(|read| reads::registration(read, worker_id))
    }

    fn forget_worker(&self, worker_id: &WorkerId, seen_before: Timestamp) -> Answer<bool> {
        let worker_id = worker_id.clone();
        self.write(Promise::Durable, move |batch| batch.forget_worker(&worker_id, seen_before))
    }

    fn remove_worker(&self, worker_id: &WorkerId) -> Answer<bool> {
        let worker_id = worker_id.clone();
        self.write(Promise::Durable, move |batch| batch.remove_worker(&worker_id))
    }

    fn worker(&self, worker_id: &WorkerId) -> Answer<Option<Worker>> {
        self.read(|read| reads::worker(read, worker_id))
    }

    fn workers(&self) -> Answer<Vec<(Worker, u64)>> {
        self.scan(reads::workers)
    }

    fn settled(&self) -> Answer<()> {
        self.write(Promise::Visible, |_| Ok(()))
    }

    fn sync(&self) -> Answer<()> {
        if self.owes_sync.load(Ordering::Relaxed) {
            self.write(Promise::Durable, |_| Ok(()))
        } else {
            Box::pin(ready(Ok(())))
        }
    }

    fn backup(&self, to: PathBuf) -> Answer<u64> {
        let database = Arc::clone(&self.database);
        self.scans.run(move || backup::copy(&database, &to).map_err(|error| StoreError(error.to_string())))
    }

    fn failure(&self) -> BoxFuture<'static, String> {
        let mut failed = self.failed.clone();
        Box::pin(async move {
            let reason = failed.wait_for(Option::is_some).await.map(|reason| reason.clone());
            reason.ok().flatten().unwrap_or_else(|| "the writer has stopped".into())
        })
    }

    fn arrivals(&self) -> Arc<Arrivals> {
        Arc::clone(&self.arrivals)
    }
}
