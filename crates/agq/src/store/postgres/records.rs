//! The contract, each call a write for the writer or a read of its own.

use std::{collections::HashSet, path::PathBuf, sync::Arc, time::Instant};

use agenix_protocol::{
    documents::Status,
    ids::{ActionId, JobId, PlanId, WorkerId},
    request::{Page, Search, Slice},
    time::Timestamp,
};
use agenix_rules::{
    action::{Action, JobCounts},
    job::Job,
    worker::Worker,
};
use bytes::Bytes;
use futures_util::future::{BoxFuture, pending, ready};

use crate::store::{
    ActionRule, Added, Answer, Arrivals, Change, Claim, Claimant, JobFilter, JobRule, Keep, Lane, MoreJobs,
    NewAction, NoteKind, NoteRule, Promise, QueueCounts, Records, Ruled, Snapshot, StoreError, StoredJob,
    StoredPlan, Totals, Unused, WorkerRule,
    postgres::{
        PostgresStore, old_snapshots, queries,
        txn::{jobs::Decision, unused_lanes},
        writer::{
            queue::Claiming,
            subject::{self, Subject},
        },
    },
};

impl Records for PostgresStore {
    fn add_plan(&self, plan: StoredPlan) -> Answer<bool> {
        self.write_on(Subject::Plan(plan.plan_id.clone()), Promise::Durable, move |batch| {
            batch.add_plan(&plan)
        })
    }

    fn plan(&self, plan_id: &PlanId) -> Answer<Option<StoredPlan>> {
        let id = plan_id.clone();
        self.plans_seen.or_read(plan_id, || self.read(async move |pool| queries::plan(&pool, id).await))
    }

    fn plans(&self, page: Page) -> Answer<Vec<PlanId>> {
        self.read_long(async move |pool| queries::plans(&pool, page).await)
    }

    fn delete_plan(&self, plan_id: &PlanId) -> Answer<Ruled<bool>> {
        let id = plan_id.clone();
        let deleted =
            self.write_on(Subject::Plan(id.clone()), Promise::Durable, move |batch| batch.delete_plan(&id));
        self.plans_seen.changing(plan_id, deleted)
    }

    fn add_action(&self, action: NewAction) -> Answer<Ruled<Added>> {
        self.hand_in(|inbox| inbox.add(action))
    }

    fn add_jobs(&self, more: MoreJobs) -> Answer<Ruled<u64>> {
        self.write_on(Subject::Action(more.action_id.clone()), Promise::Durable, move |batch| {
            batch.add_jobs(&more)
        })
    }

    fn decide_action(&self, action_id: &ActionId, rule: ActionRule) -> Answer<Ruled<()>> {
        let action_id = action_id.clone();
        let subject = Subject::Action(action_id.clone());
        self.write_on(subject, Promise::Durable, move |batch| batch.decide_action(&action_id, &rule))
    }

    fn settle_halt(&self, action_id: &ActionId, now: Timestamp) -> Answer<()> {
        let action_id = action_id.clone();
        self.write(Promise::Durable, move |batch| batch.settle_halt(&action_id, now))
    }

    fn actions(&self, page: Page) -> Answer<Vec<ActionId>> {
        self.read_long(async move |pool| queries::actions(&pool, page).await)
    }

    fn action(&self, action_id: &ActionId) -> Answer<Option<(Action, JobCounts)>> {
        let action_id = action_id.clone();
        self.read(async move |pool| queries::action(&pool, action_id).await)
    }

    fn jobs_of(&self, action_id: &ActionId, statuses: Vec<Status>, slice: Slice) -> Answer<Vec<JobId>> {
        let action_id = action_id.clone();
        self.read_long(async move |pool| queries::jobs_of(&pool, action_id, statuses, slice).await)
    }

    fn job_record(&self, job_id: &JobId) -> Answer<Option<Job>> {
        let job_id = job_id.clone();
        self.read(async move |pool| queries::job_record(&pool, job_id).await)
    }

    fn job(&self, job_id: &JobId) -> Answer<Option<StoredJob>> {
        let job_id = job_id.clone();
        self.read(async move |pool| queries::job(&pool, job_id).await)
    }

    fn decide(
        &self,
        job_id: &JobId,
        promise: Promise,
        results: Option<Bytes>,
        rule: JobRule,
    ) -> Answer<Ruled<Option<Change>>> {
        let results = results.as_deref().map(|results| String::from_utf8(results.to_vec())).transpose();
        match results {
            Ok(results) => {
                let decision = Decision { job_id: job_id.clone(), results, rule };
                self.hand_in(|inbox| inbox.decide(promise, decision))
            }
            Err(error) => Box::pin(ready(Err(StoreError(error.to_string())))),
        }
    }

    fn claim(
        &self,
        claimants: Vec<Claimant>,
        now: Timestamp,
        start_timeout_ms: u64,
    ) -> Answer<Vec<Option<Claim>>> {
        self.hand_in(|inbox| inbox.claim(Claiming { claimants, now, start_timeout_ms }))
    }

    fn search(&self, search: Search) -> Answer<Vec<JobId>> {
        self.read_long(async move |pool| queries::search(&pool, search).await)
    }

    fn peek(&self, queue: &str, count: usize) -> Answer<Vec<JobId>> {
        let queue = queue.to_owned();
        self.read(async move |pool| queries::peek(&pool, queue, count).await)
    }

    fn peek_scheduled(&self, count: usize) -> Answer<Vec<JobId>> {
        self.read(async move |pool| queries::peek_scheduled(&pool, count).await)
    }

    fn ahead(&self, job: &Job, limit: usize) -> Answer<u64> {
        let job = job.clone();
        self.read(async move |pool| queries::ahead(&pool, job, limit).await)
    }

    fn set_paused(&self, queue: &str, paused: bool) -> Answer<()> {
        let queue = queue.to_owned();
        let subject = Subject::Queue(queue.clone());
        self.write_on(subject, Promise::Durable, move |batch| batch.set_paused(&queue, paused))
    }

    fn paused(&self) -> Answer<Vec<String>> {
        self.read(async |pool| queries::paused(&pool).await)
    }

    fn is_prunable(&self, keep: Keep) -> Answer<bool> {
        self.read(async move |pool| queries::is_prunable(&pool, keep).await)
    }

    fn prune(&self, keep: Keep, limit: usize) -> Answer<usize> {
        self.write(Promise::Visible, move |batch| batch.prune(keep, limit))
    }

    fn forget_job(&self, job_id: &JobId, status: Status) -> Answer<bool> {
        let job_id = job_id.clone();
        let subject = Subject::Job(job_id.clone());
        self.write_on(subject, Promise::Durable, move |batch| batch.forget_job(&job_id, status))
    }

    fn totals(&self) -> Answer<Totals> {
        self.read(async |pool| queries::totals(&pool).await)
    }

    fn is_well(&self) -> Answer<()> {
        Box::pin(Arc::clone(&self.pulse).feel())
    }

    fn oldest_snapshot(&self) -> Answer<Option<Snapshot>> {
        self.read(async |pool| old_snapshots::oldest(&pool).await)
    }

    fn held_by(&self, holder: &str) -> Answer<Vec<JobId>> {
        let holder = holder.to_owned();
        self.read(async move |pool| queries::held_by(&pool, holder).await)
    }

    fn holders(&self) -> Answer<Vec<String>> {
        self.read(async |pool| queries::holders(&pool).await)
    }

    fn due(&self, now: Timestamp, limit: usize) -> Answer<Vec<JobId>> {
        self.read(async move |pool| queries::due(&pool, now, limit).await)
    }

    fn waits(&self, now: Timestamp, wanted: JobFilter) -> Answer<Vec<Job>> {
        self.read(async move |pool| queries::waits(&pool, now, wanted).await)
    }

    fn scheduled(&self) -> Answer<(u64, Option<Timestamp>)> {
        self.read_long(async |pool| queries::scheduled(&pool).await)
    }

    fn queue_counts(&self) -> Answer<QueueCounts> {
        self.read_long(async |pool| queries::queue_counts(&pool).await)
    }

    fn note(&self, kind: NoteKind, id: &str) -> Answer<Option<String>> {
        let id = id.to_owned();
        self.read(async move |pool| queries::note(&pool, kind, &id).await)
    }

    fn notes(&self, kind: NoteKind) -> Answer<Vec<(String, String)>> {
        self.read(async move |pool| queries::notes(&pool, kind).await)
    }

    fn has_notes(&self, kind: NoteKind) -> Answer<bool> {
        self.read(async move |pool| queries::has_notes(&pool, kind).await)
    }

    fn decide_note(&self, kind: NoteKind, id: &str, rule: NoteRule) -> Answer<Ruled<()>> {
        let id = id.to_owned();
        self.hand_in(|inbox| inbox.decide_note(kind, id, rule))
    }

    fn unused(&self, now: Timestamp) -> Answer<Unused> {
        self.read(async move |pool| unused_lanes::unused(&pool, now).await)
    }

    fn forget_unused(&self, unused: Unused) -> Answer<()> {
        self.write(Promise::Visible, move |batch| batch.forget(&unused))
    }

    fn lanes(&self) -> Answer<Vec<Lane>> {
        self.read_long(async |pool| queries::lanes(&pool).await)
    }

    fn decide_worker(
        &self,
        worker_id: &WorkerId,
        promise: Promise,
        registration: Option<String>,
        rule: WorkerRule,
    ) -> Answer<Ruled<()>> {
        let id = worker_id.clone();
        let decided = self.write_on(Subject::Worker(id.clone()), promise, move |batch| {
            batch.decide_worker(&id, registration.as_deref(), &rule)
        });
        self.workers_seen.changing(worker_id, decided)
    }

    fn registration(&self, worker_id: &WorkerId) -> Answer<Option<String>> {
        let worker_id = worker_id.clone();
        self.read(async move |pool| queries::registration(&pool, worker_id).await)
    }

    fn forget_worker(&self, worker_id: &WorkerId, seen_before: Timestamp) -> Answer<bool> {
        let id = worker_id.clone();
        let forgotten = self.write_on(Subject::Worker(id.clone()), Promise::Durable, move |batch| {
            batch.forget_worker(&id, seen_before)
        });
        self.workers_seen.changing(worker_id, forgotten)
    }

    fn remove_worker(&self, worker_id: &WorkerId) -> Answer<bool> {
        let id = worker_id.clone();
        let removed = self
            .write_on(Subject::Worker(id.clone()), Promise::Durable, move |batch| batch.remove_worker(&id));
        self.workers_seen.changing(worker_id, removed)
    }

    fn worker(&self, worker_id: &WorkerId) -> Answer<Option<Worker>> {
        let id = worker_id.clone();
        self.workers_seen.or_read(worker_id, || self.read(async move |pool| queries::worker(&pool, id).await))
    }

    fn worker_records(&self) -> Answer<Vec<Worker>> {
        self.read(async |pool| queries::worker_records(&pool).await)
    }

    fn workers(&self) -> Answer<Vec<(Worker, u64)>> {
        self.read(async |pool| queries::workers(&pool).await)
    }

    fn collect(&self, _connection: Option<u64>, work: &mut dyn FnMut()) -> Option<u64> {
        work();
        None
    }

    fn awaits_company(&self, _round: u64, _since: Option<Instant>) -> bool {
        false
    }

    fn see_to(&self, _round: u64) {}

    fn settled(&self) -> Answer<()> {
        self.write_on(subject::Subjects::all(), Promise::Visible, |_| Ok(()))
    }

    fn sync(&self) -> Answer<()> {
        // A commit that is not waited for is on the database's disk within three times its wal_writer_delay, which is less than
        // the time between two rounds of whoever asks for this.
        Box::pin(ready(Ok(())))
    }

    fn backup(&self, _to: PathBuf) -> Answer<u64> {
        let text = "agq makes no copies of a PostgreSQL database: use pg_dump, or its own backups";
        Box::pin(ready(Err(StoreError(text.into()))))
    }

    fn failure(&self) -> BoxFuture<'static, String> {
        // It goes on when the database comes back.
        Box::pin(pending())
    }

    fn node(&self) -> Option<&str> {
        Some(&self.nodes.name)
    }

    fn writes_keys_apart(&self) -> bool {
        true
    }

    fn leads(&self) -> bool {
        self.nodes.leads()
    }

    fn nodes(&self) -> Answer<Option<HashSet<String>>> {
        let nodes = Arc::clone(&self.nodes);
        self.read(async move |pool| nodes.all(&pool).await)
    }

    fn arrivals(&self) -> Arc<Arrivals> {
        Arc::clone(&self.arrivals)
    }
}
