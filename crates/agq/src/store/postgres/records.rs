//! Implements the traits of the store: each call is a write for a writer thread, or a read of its
//! own.

use std::{
    collections::{BTreeMap, HashSet},
    path::PathBuf,
    sync::Arc,
};

use agenix_protocol::{
    documents::{Quantities, Status},
    ids::{ActionId, JobId, PlanId, WorkerId},
    request::{Page, Search, Slice},
    time::Timestamp,
};
use agenix_rules::{
    action::{Action, JobCounts},
    job::Job,
    owner::Owner,
    worker::Worker,
};
use futures_util::future::{BoxFuture, pending, ready};
use sqlx::{query, query_scalar};

use crate::store::{
    AckLevel, ActionRule, AddOutcome, AppendJobs, ChangeNotifier, Claim, Claimant, DocumentKind,
    DocumentRule, DocumentStore, JobChange, JobFilter, JobRule, JobStore, LaneSummary, NewAction, NewPlan,
    OldestSnapshot, QueueCounts, ReportedResults, Retention, RuleResult, StoreAdmin, StoreError, StoreFuture,
    StoredJob, StoredPlan, Totals, UnusedRecords, WorkerRule, WorkerStore,
    postgres::{
        PostgresStore,
        codec::readable,
        limit_ends::{document_in, documents},
        old_snapshots,
        pages::{ACTIONS, LABELLED_ACTIONS, PLANS, page_of},
        quantities,
        queries::{self, job_ids},
        sql_types,
        txn::jobs::JobDecision,
        writer::{
            queue::Claiming,
            subject::{Subjects, WriteSubject},
        },
    },
    types::RuleFuture,
};

impl JobStore for PostgresStore {
    fn add_plan(&self, plan: NewPlan) -> StoreFuture<RuleResult<bool>> {
        let subjects = Subjects::from(WriteSubject::Plan(plan.record.plan_id.clone()));
        let bytes = plan.record.json.len();
        self.submit_write(|handle| {
            handle.write_sized(bytes, subjects, AckLevel::Durable, move |batch| batch.add_plan(&plan))
        })
    }

    fn plan(&self, plan_id: &PlanId) -> StoreFuture<Option<StoredPlan>> {
        let id = plan_id.clone();
        self.plan_cache.get_or_read(plan_id, || self.query(async move |pool| queries::plan(&pool, id).await))
    }

    fn plans(&self, page: Page, owner: Option<Owner>) -> StoreFuture<Vec<PlanId>> {
        self.query_long(async move |pool| {
            queries::ids(page_of(&pool, PLANS, owner, page, BTreeMap::new()).await?, PlanId::new)
        })
    }

    fn delete_plan(&self, plan_id: &PlanId, only_of: Option<Owner>) -> StoreFuture<RuleResult<bool>> {
        let id = plan_id.clone();
        let deleted = self.write_on(WriteSubject::Plan(id.clone()), AckLevel::Durable, move |batch| {
            batch.delete_plan(&id, only_of.as_ref())
        });
        self.plan_cache.invalidate(plan_id, deleted)
    }

    fn add_action(&self, action: NewAction) -> StoreFuture<RuleResult<AddOutcome>> {
        self.submit_write(|handle| handle.add(action))
    }

    fn add_jobs(&self, more: AppendJobs) -> StoreFuture<RuleResult<u64>> {
        let subjects = Subjects::from(WriteSubject::Action(more.action_id.clone()));
        let bytes = more.jobs.iter().map(|job| job.input.len()).sum();
        self.submit_write(|handle| {
            handle.write_sized(bytes, subjects, AckLevel::Durable, move |batch| batch.add_jobs(&more))
        })
    }

    fn decide_action(&self, action_id: &ActionId, rule: ActionRule) -> StoreFuture<RuleResult<()>> {
        let action_id = action_id.clone();
        let subject = WriteSubject::Action(action_id.clone());
        self.write_on(subject, AckLevel::Durable, move |batch| batch.decide_action(&action_id, &rule))
    }

    fn complete_halt(&self, action_id: &ActionId, now: Timestamp) -> StoreFuture<()> {
        let action_id = action_id.clone();
        self.write(AckLevel::Durable, move |batch| batch.complete_halt(&action_id, now))
    }

    fn actions(
        &self,
        page: Page,
        labels: BTreeMap<String, String>,
        owner: Option<Owner>,
    ) -> StoreFuture<Vec<ActionId>> {
        let listing = if labels.is_empty() { ACTIONS } else { LABELLED_ACTIONS };
        self.query_long(async move |pool| {
            queries::ids(page_of(&pool, listing, owner, page, labels).await?, ActionId::new)
        })
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
        results: Option<ReportedResults>,
        rule: JobRule,
    ) -> StoreFuture<RuleResult<Option<JobChange>>> {
        let decision = JobDecision { job_id: job_id.clone(), results, rule };
        self.submit_write(|handle| handle.decide(level, decision))
    }

    fn claim(
        &self,
        claimants: Vec<Claimant>,
        now: Timestamp,
        start_timeout_ms: u64,
    ) -> StoreFuture<Vec<Option<Claim>>> {
        self.submit_write(|handle| handle.claim(Claiming { claimants, now, start_timeout_ms }))
    }

    fn search(&self, search: Search, owner: Option<Owner>) -> StoreFuture<Vec<JobId>> {
        self.query_long(async move |pool| queries::search(&pool, search, owner).await)
    }

    fn peek(&self, queue: &str, count: usize) -> StoreFuture<Vec<JobId>> {
        let queue = queue.to_owned();
        self.query(async move |pool| queries::peek(&pool, queue, count).await)
    }

    fn peek_scheduled(&self, count: usize) -> StoreFuture<Vec<JobId>> {
        let sql = "SELECT job_id FROM agq.jobs WHERE due_at IS NOT NULL AND status = 0 AND NOT is_ready ORDER BY due_at, job_id LIMIT $1";
        let sql = query_scalar(sql).bind(sql_types::limit(count));
        self.query(async move |pool| job_ids(sql.fetch_all(&pool).await?))
    }

    fn position(&self, job: &Job, limit: usize) -> StoreFuture<u64> {
        let job = job.clone();
        self.query(async move |pool| queries::position(&pool, job, limit).await)
    }

    fn set_paused(&self, queue: &str, paused: bool) -> StoreFuture<()> {
        let queue = queue.to_owned();
        let subject = WriteSubject::Queue(queue.clone());
        self.write_on(subject, AckLevel::Durable, move |batch| batch.set_paused(&queue, paused))
    }

    fn paused(&self) -> StoreFuture<Vec<String>> {
        let sql = "SELECT queue FROM agq.paused ORDER BY queue";
        self.query(async move |pool| query_scalar(sql).fetch_all(&pool).await)
    }

    fn is_prunable(&self, keep: Retention) -> StoreFuture<bool> {
        self.query(async move |pool| queries::is_prunable(&pool, keep).await)
    }

    fn prune(&self, keep: Retention, limit: usize) -> StoreFuture<usize> {
        self.write(AckLevel::Applied, move |batch| batch.prune(keep, limit))
    }

    fn forget_job(&self, job_id: &JobId, status: Status) -> StoreFuture<bool> {
        let job_id = job_id.clone();
        let subject = WriteSubject::Job(job_id.clone());
        self.write_on(subject, AckLevel::Durable, move |batch| batch.forget_job(&job_id, status))
    }

    fn totals(&self) -> StoreFuture<Totals> {
        self.query(async |pool| queries::totals(&pool).await)
    }

    fn held_by(&self, holder: &str) -> StoreFuture<Vec<JobId>> {
        let sql = "SELECT job_id FROM agq.jobs WHERE holder = $1 AND status = 1 ORDER BY job_id";
        let sql = query_scalar(sql).bind(holder.to_owned());
        self.query(async move |pool| job_ids(sql.fetch_all(&pool).await?))
    }

    fn holders(&self) -> StoreFuture<Vec<String>> {
        let sql = "SELECT DISTINCT holder FROM agq.jobs WHERE status = 1 ORDER BY holder";
        self.query(async move |pool| query_scalar(sql).fetch_all(&pool).await)
    }

    fn used_resources(&self, holder: Option<&str>) -> StoreFuture<BTreeMap<String, Quantities>> {
        let holder = holder.map(str::to_owned);
        self.query(async move |pool| quantities::used_resources(&pool, holder).await)
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
        let sql = query(documents!("WHERE kind = $1 AND id = $2"));
        let sql = sql.bind(kind.as_str()).bind(id.to_owned());
        self.query(async move |pool| sql.fetch_optional(&pool).await?.as_ref().map(document_in).transpose())
    }

    fn documents(&self, kind: DocumentKind) -> StoreFuture<Vec<(String, String)>> {
        self.query(async move |pool| queries::documents(&pool, kind).await)
    }

    fn documents_after(
        &self,
        kind: DocumentKind,
        after: &str,
        limit: usize,
    ) -> StoreFuture<Vec<(String, String)>> {
        let after = after.to_owned();
        self.query_long(async move |pool| queries::documents_after(&pool, kind, &after, limit).await)
    }

    fn has_documents(&self, kind: DocumentKind) -> StoreFuture<bool> {
        let sql = query_scalar("SELECT EXISTS (SELECT FROM agq.notes WHERE kind = $1)").bind(kind.as_str());
        self.query(async move |pool| sql.fetch_one(&pool).await)
    }

    fn update_document(&self, kind: DocumentKind, id: &str, rule: DocumentRule) -> RuleFuture<()> {
        let id = id.to_owned();
        self.submit_write(|handle| handle.decide_document(kind, id, rule))
    }

    fn unused(&self, now: Timestamp) -> StoreFuture<UnusedRecords> {
        let search = Arc::clone(&self.unused_search);
        self.query(async move |pool| {
            let mut search = search.lock().await;
            search.step(&pool, now).await
        })
    }

    fn forget_unused(&self, unused: UnusedRecords) -> StoreFuture<()> {
        self.write(AckLevel::Applied, move |batch| batch.forget_unused(&unused))
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
        let subjects = Subjects::from(WriteSubject::Worker(id.clone()));
        let bytes = registration.as_ref().map_or(0, String::len);
        let decided = self.submit_write(|handle| {
            handle.write_sized(bytes, subjects, level, move |batch| {
                batch.decide_worker(&id, registration.as_deref(), &rule)
            })
        });
        self.worker_cache.invalidate(worker_id, decided)
    }

    fn registration(&self, worker_id: &WorkerId) -> StoreFuture<Option<String>> {
        let sql = query_scalar("SELECT json FROM agq.registrations WHERE worker_id = $1");
        let sql = sql.bind(worker_id.to_string());
        self.query(async move |pool| sql.fetch_optional(&pool).await)
    }

    fn forget_worker(&self, worker_id: &WorkerId, seen_before: Timestamp) -> StoreFuture<bool> {
        let id = worker_id.clone();
        let forgotten = self.write_on(WriteSubject::Worker(id.clone()), AckLevel::Durable, move |batch| {
            batch.forget_worker(&id, seen_before)
        });
        self.worker_cache.invalidate(worker_id, forgotten)
    }

    fn remove_worker(&self, worker_id: &WorkerId) -> StoreFuture<bool> {
        let id = worker_id.clone();
        let removed = self.write_on(WriteSubject::Worker(id.clone()), AckLevel::Durable, move |batch| {
            batch.remove_worker(&id)
        });
        self.worker_cache.invalidate(worker_id, removed)
    }

    fn worker(&self, worker_id: &WorkerId) -> StoreFuture<Option<Worker>> {
        let id = worker_id.clone();
        self.worker_cache
            .get_or_read(worker_id, || self.query(async move |pool| queries::worker(&pool, id).await))
    }

    fn worker_records(&self) -> StoreFuture<Vec<Worker>> {
        let sql = query("SELECT record FROM agq.workers ORDER BY worker_id");
        self.query(async move |pool| Ok(readable(&sql.fetch_all(&pool).await?)))
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
        self.write_on(Subjects::all(), AckLevel::Applied, |_| Ok(()))
    }

    fn wait_until_tried(&self) -> Option<StoreFuture<()>> {
        // A write without subjects waits for no late write.
        Some(self.write(AckLevel::Applied, |_| Ok(())))
    }

    fn sync(&self) -> StoreFuture<()> {
        // A commit with synchronous_commit off is on the database's disk within three times
        // wal_writer_delay. This time is less than the interval at which the caller asks for a
        // sync.
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
