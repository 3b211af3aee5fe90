//! Implements the traits of the store: each call is a write for a writer thread, or a read of its
//! own.

use std::{collections::HashSet, path::PathBuf, sync::Arc};

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
    AckLevel, ActionRule, AddOutcome, AppendJobs, ChangeNotifier, Claim, Claimant, DocumentKind,
    DocumentRule, DocumentStore, JobChange, JobFilter, JobRule, JobStore, LaneSummary, NewAction,
    OldestSnapshot, QueueCounts, Retention, RuleResult, StoreAdmin, StoreError, StoreFuture, StoredJob,
    StoredPlan, Totals, UnusedRecords, WorkerRule, WorkerStore,
    postgres::{
        PostgresStore, old_snapshots, queries,
        txn::{jobs::Decision, unused_lanes},
        writer::{
            queue::Claiming,
            subject::{self, Subject},
        },
    },
};

impl JobStore for PostgresStore {
    fn add_plan(&self, plan: StoredPlan) -> StoreFuture<bool> {
        self.write_on(Subject::Plan(plan.plan_id.clone()), AckLevel::Durable, move |batch| {
            batch.add_plan(&plan)
        })
    }

    fn plan(&self, plan_id: &PlanId) -> StoreFuture<Option<StoredPlan>> {
        let id = plan_id.clone();
        self.plan_cache.get_or_read(plan_id, || self.query(async move |pool| queries::plan(&pool, id).await))
    }

    fn plans(&self, page: Page) -> StoreFuture<Vec<PlanId>> {
        self.query_long(async move |pool| queries::plans(&pool, page).await)
    }

    fn delete_plan(&self, plan_id: &PlanId) -> StoreFuture<RuleResult<bool>> {
        let id = plan_id.clone();
        let deleted =
            self.write_on(Subject::Plan(id.clone()), AckLevel::Durable, move |batch| batch.delete_plan(&id));
        self.plan_cache.invalidate(plan_id, deleted)
    }

    fn add_action(&self, action: NewAction) -> StoreFuture<RuleResult<AddOutcome>> {
        self.submit_write(|handle| handle.add(action))
    }

    fn add_jobs(&self, more: AppendJobs) -> StoreFuture<RuleResult<u64>> {
        self.write_on(Subject::Action(more.action_id.clone()), AckLevel::Durable, move |batch| {
            batch.add_jobs(&more)
        })
    }

    fn decide_action(&self, action_id: &ActionId, rule: ActionRule) -> StoreFuture<RuleResult<()>> {
        let action_id = action_id.clone();
        let subject = Subject::Action(action_id.clone());
        self.write_on(subject, AckLevel::Durable, move |batch| batch.decide_action(&action_id, &rule))
    }

    fn settle_halt(&self, action_id: &ActionId, now: Timestamp) -> StoreFuture<()> {
        let action_id = action_id.clone();
        self.write(AckLevel::Durable, move |batch| batch.settle_halt(&action_id, now))
    }

    fn actions(&self, page: Page) -> StoreFuture<Vec<ActionId>> {
        self.query_long(async move |pool| queries::actions(&pool, page).await)
    }

    fn action(&self, action_id: &ActionId) -> StoreFuture<Option<(Action, JobCounts)>> {
        let action_id = action_id.clone();
        self.query(async move |pool| queries::action(&pool, action_id).await)
    }

    fn jobs_of(&self, action_id: &ActionId, statuses: Vec<Status>, slice: Slice) -> StoreFuture<Vec<JobId>> {
        let action_id = action_id.clone();
        self.query_long(async move |pool| queries::jobs_of(&pool, action_id, statuses, slice).await)
    }

    fn job_record(&self, job_id: &JobId) -> StoreFuture<Option<Job>> {
        let job_id = job_id.clone();
        self.query(async move |pool| queries::job_record(&pool, job_id).await)
    }

    fn job(&self, job_id: &JobId) -> StoreFuture<Option<StoredJob>> {
        let job_id = job_id.clone();
        self.query(async move |pool| queries::job(&pool, job_id).await)
    }

    fn decide(
        &self,
        job_id: &JobId,
        level: AckLevel,
        results: Option<Bytes>,
        rule: JobRule,
    ) -> StoreFuture<RuleResult<Option<JobChange>>> {
        let results = results.as_deref().map(|results| String::from_utf8(results.to_vec())).transpose();
        match results {
            Ok(results) => {
                let decision = Decision { job_id: job_id.clone(), results, rule };
                self.submit_write(|handle| handle.decide(level, decision))
            }
            Err(error) => Box::pin(ready(Err(StoreError(error.to_string())))),
        }
    }

    fn claim(
        &self,
        claimants: Vec<Claimant>,
        now: Timestamp,
        start_timeout_ms: u64,
    ) -> StoreFuture<Vec<Option<Claim>>> {
        self.submit_write(|handle| handle.claim(Claiming { claimants, now, start_timeout_ms }))
    }

    fn search(&self, search: Search) -> StoreFuture<Vec<JobId>> {
        self.query_long(async move |pool| queries::search(&pool, search).await)
    }

    fn peek(&self, queue: &str, count: usize) -> StoreFuture<Vec<JobId>> {
        let queue = queue.to_owned();
        self.query(async move |pool| queries::peek(&pool, queue, count).await)
    }

    fn peek_scheduled(&self, count: usize) -> StoreFuture<Vec<JobId>> {
        self.query(async move |pool| queries::peek_scheduled(&pool, count).await)
    }

    fn position(&self, job: &Job, limit: usize) -> StoreFuture<u64> {
        let job = job.clone();
        self.query(async move |pool| queries::position(&pool, job, limit).await)
    }

    fn set_paused(&self, queue: &str, paused: bool) -> StoreFuture<()> {
        let queue = queue.to_owned();
        let subject = Subject::Queue(queue.clone());
        self.write_on(subject, AckLevel::Durable, move |batch| batch.set_paused(&queue, paused))
    }

    fn paused(&self) -> StoreFuture<Vec<String>> {
        self.query(async |pool| queries::paused(&pool).await)
    }

    fn is_prunable(&self, keep: Retention) -> StoreFuture<bool> {
        self.query(async move |pool| queries::is_prunable(&pool, keep).await)
    }

    fn prune(&self, keep: Retention, limit: usize) -> StoreFuture<usize> {
        self.write(AckLevel::Visible, move |batch| batch.prune(keep, limit))
    }

    fn forget_job(&self, job_id: &JobId, status: Status) -> StoreFuture<bool> {
        let job_id = job_id.clone();
        let subject = Subject::Job(job_id.clone());
        self.write_on(subject, AckLevel::Durable, move |batch| batch.forget_job(&job_id, status))
    }

    fn totals(&self) -> StoreFuture<Totals> {
        self.query(async |pool| queries::totals(&pool).await)
    }

    fn held_by(&self, holder: &str) -> StoreFuture<Vec<JobId>> {
        let holder = holder.to_owned();
        self.query(async move |pool| queries::held_by(&pool, holder).await)
    }

    fn holders(&self) -> StoreFuture<Vec<String>> {
        self.query(async |pool| queries::holders(&pool).await)
    }

    fn due(&self, now: Timestamp, limit: usize) -> StoreFuture<Vec<JobId>> {
        self.query(async move |pool| queries::due(&pool, now, limit).await)
    }

    fn pending_timers(&self, now: Timestamp, wanted: JobFilter) -> StoreFuture<Vec<Job>> {
        self.query(async move |pool| queries::pending_timers(&pool, now, wanted).await)
    }

    fn scheduled(&self) -> StoreFuture<(u64, Option<Timestamp>)> {
        self.query_long(async |pool| queries::scheduled(&pool).await)
    }

    fn queue_counts(&self) -> StoreFuture<QueueCounts> {
        self.query_long(async |pool| queries::queue_counts(&pool).await)
    }

    fn lanes(&self) -> StoreFuture<Vec<LaneSummary>> {
        self.query_long(async |pool| queries::lanes(&pool).await)
    }
}

impl DocumentStore for PostgresStore {
    fn document(&self, kind: DocumentKind, id: &str) -> StoreFuture<Option<String>> {
        let id = id.to_owned();
        self.query(async move |pool| queries::document(&pool, kind, &id).await)
    }

    fn documents(&self, kind: DocumentKind) -> StoreFuture<Vec<(String, String)>> {
        self.query(async move |pool| queries::documents(&pool, kind).await)
    }

    fn has_documents(&self, kind: DocumentKind) -> StoreFuture<bool> {
        self.query(async move |pool| queries::has_documents(&pool, kind).await)
    }

    fn update_document(
        &self,
        kind: DocumentKind,
        id: &str,
        rule: DocumentRule,
    ) -> StoreFuture<RuleResult<()>> {
        let id = id.to_owned();
        self.submit_write(|handle| handle.decide_document(kind, id, rule))
    }

    fn unused(&self, now: Timestamp) -> StoreFuture<UnusedRecords> {
        self.query(async move |pool| unused_lanes::unused(&pool, now).await)
    }

    fn forget_unused(&self, unused: UnusedRecords) -> StoreFuture<()> {
        self.write(AckLevel::Visible, move |batch| batch.forget(&unused))
    }
}

impl WorkerStore for PostgresStore {
    fn decide_worker(
        &self,
        worker_id: &WorkerId,
        level: AckLevel,
        registration: Option<String>,
        rule: WorkerRule,
    ) -> StoreFuture<RuleResult<()>> {
        let id = worker_id.clone();
        let decided = self.write_on(Subject::Worker(id.clone()), level, move |batch| {
            batch.decide_worker(&id, registration.as_deref(), &rule)
        });
        self.worker_cache.invalidate(worker_id, decided)
    }

    fn registration(&self, worker_id: &WorkerId) -> StoreFuture<Option<String>> {
        let worker_id = worker_id.clone();
        self.query(async move |pool| queries::registration(&pool, worker_id).await)
    }

    fn forget_worker(&self, worker_id: &WorkerId, seen_before: Timestamp) -> StoreFuture<bool> {
        let id = worker_id.clone();
        let forgotten = self.write_on(Subject::Worker(id.clone()), AckLevel::Durable, move |batch| {
            batch.forget_worker(&id, seen_before)
        });
        self.worker_cache.invalidate(worker_id, forgotten)
    }

    fn remove_worker(&self, worker_id: &WorkerId) -> StoreFuture<bool> {
        let id = worker_id.clone();
        let removed = self
            .write_on(Subject::Worker(id.clone()), AckLevel::Durable, move |batch| batch.remove_worker(&id));
        self.worker_cache.invalidate(worker_id, removed)
    }

    fn worker(&self, worker_id: &WorkerId) -> StoreFuture<Option<Worker>> {
        let id = worker_id.clone();
        self.worker_cache
            .get_or_read(worker_id, || self.query(async move |pool| queries::worker(&pool, id).await))
    }

    fn worker_records(&self) -> StoreFuture<Vec<Worker>> {
        self.query(async |pool| queries::worker_records(&pool).await)
    }

    fn workers(&self) -> StoreFuture<Vec<(Worker, u64)>> {
        self.query(async |pool| queries::workers(&pool).await)
    }
}

impl StoreAdmin for PostgresStore {
    fn is_healthy(&self) -> StoreFuture<()> {
        Box::pin(Arc::clone(&self.health).check())
    }

    fn oldest_snapshot(&self) -> StoreFuture<Option<OldestSnapshot>> {
        self.query(async |pool| old_snapshots::oldest(&pool).await)
    }

    fn wait_until_applied(&self) -> StoreFuture<()> {
        self.write_on(subject::Subjects::all(), AckLevel::Visible, |_| Ok(()))
    }

    fn sync(&self) -> StoreFuture<()> {
        // A commit with synchronous_commit off is on the database's disk within three times
        // wal_writer_delay. That is less than the interval at which the caller asks for a sync.
        Box::pin(ready(Ok(())))
    }

    fn backup(&self, _to: PathBuf) -> StoreFuture<u64> {
        let text = "agq makes no copies of a PostgreSQL database: use pg_dump, or its own backups";
        Box::pin(ready(Err(StoreError(text.into()))))
    }

    fn failure(&self) -> BoxFuture<'static, String> {
        // The store continues when the database is reachable again.
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

    fn nodes(&self) -> StoreFuture<Option<HashSet<String>>> {
        let nodes = Arc::clone(&self.nodes);
        self.query(async move |pool| nodes.all(&pool).await)
    }

    fn notifier(&self) -> Arc<ChangeNotifier> {
        Arc::clone(&self.notifier)
    }
}
