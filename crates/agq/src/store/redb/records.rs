//! [`Records`] on redb: every call is a write transaction or a read of a snapshot.

use std::{
    collections::{BTreeMap, HashSet},
    path::PathBuf,
    sync::{Arc, atomic::Ordering},
};

use agenix_protocol::{
    documents::{Quantities, Status},
    ids::{ActionId, JobId, PlanId, WorkerId},
    request::{Page, Search, Slice},
    time::Timestamp,
};
use agenix_rules::{
    action::{self, Action, JobCounts},
    job::Job,
    owner::Owner,
    worker::Worker,
};
use futures_util::future::{BoxFuture, ready};

use crate::store::{
    AckLevel, ActionRule, AddOutcome, AppendJobs, ChangeNotifier, Claim, Claimant, DocumentKind,
    DocumentRule, DocumentStore, JobChange, JobFilter, JobRule, JobStore, LaneSummary, NewAction, NewPlan,
    QueueCounts, ReportedResults, Retention, RuleResult, StoreAdmin, StoreFuture, StoredJob, StoredPlan,
    Totals, UnusedRecords, WorkerRule, WorkerStore,
    redb::{
        RedbStore,
        file::backup,
        queries::{documents, records},
        schema::{
            ACTIONS, DOCUMENTS, JOBS, PAUSED, PLANS, READY, REGISTRATIONS, WAITING, WORKERS, codec, ready_key,
        },
        writer::queue::WriteSize,
    },
    types::RuleFuture,
};

impl JobStore for RedbStore {
    fn add_plan(&self, plan: NewPlan) -> StoreFuture<RuleResult<bool>> {
        self.write(AckLevel::Durable, move |txn| txn.add_plan(&plan))
    }

    fn plan(&self, plan_id: &PlanId) -> StoreFuture<Option<StoredPlan>> {
        self.query(|snapshot| snapshot.table(&PLANS).record(plan_id.as_str()))
    }

    fn plans(&self, page: Page, owner: Option<Owner>) -> StoreFuture<Vec<PlanId>> {
        self.scan(move |snapshot| {
            let is_meant =
                |record: &[u8]| Ok(owner.is_none() || codec::decode::<StoredPlan>(record)?.owner == owner);
            records::page_of(&snapshot.table(&PLANS), &page, is_meant, PlanId::new)
        })
    }

    fn delete_plan(&self, plan_id: &PlanId, only_of: Option<Owner>) -> StoreFuture<RuleResult<bool>> {
        let plan_id = plan_id.clone();
        self.write(AckLevel::Durable, move |txn| txn.delete_plan(&plan_id, only_of.as_ref()))
    }

    fn add_action(&self, action: NewAction) -> StoreFuture<RuleResult<AddOutcome>> {
        let size = WriteSize::Jobs(action.jobs.len());
        self.write_sized(AckLevel::Durable, size, move |txn| txn.add_action(&action))
    }

    fn add_jobs(&self, more: AppendJobs) -> StoreFuture<RuleResult<u64>> {
        let size = WriteSize::Bulk(more.jobs.len());
        self.write_sized(AckLevel::Durable, size, move |txn| txn.add_jobs(&more))
    }

    fn decide_action(&self, action_id: &ActionId, rule: ActionRule) -> StoreFuture<RuleResult<()>> {
        let action_id = action_id.clone();
        self.write(AckLevel::Durable, move |txn| txn.decide_action(&action_id, &rule))
    }

    fn complete_halt(&self, action_id: &ActionId, now: Timestamp) -> StoreFuture<()> {
        let action_id = action_id.clone();
        self.write(AckLevel::Durable, move |txn| txn.complete_halt(&action_id, now))
    }

    fn actions(
        &self,
        page: Page,
        labels: BTreeMap<String, String>,
        owner: Option<Owner>,
    ) -> StoreFuture<Vec<ActionId>> {
        self.scan(move |snapshot| {
            let is_meant = |record: &[u8]| {
                if labels.is_empty() && owner.is_none() {
                    return Ok(true);
                }
                let action: Action = codec::decode(record)?;
                Ok(action::has_labels(&action, &labels) && (owner.is_none() || action.owner == owner))
            };
            records::page_of(&snapshot.table(&ACTIONS), &page, is_meant, ActionId::new)
        })
    }

    fn action(&self, action_id: &ActionId) -> StoreFuture<Option<(Action, JobCounts)>> {
        self.query(|snapshot| records::action(snapshot, action_id))
    }

    fn jobs_of(&self, action_id: &ActionId, statuses: Vec<Status>, slice: Slice) -> StoreFuture<Vec<JobId>> {
        let action_id = action_id.clone();
        self.scan(move |snapshot| records::jobs_of(snapshot, &action_id, &statuses, slice))
    }

    fn job_record(&self, job_id: &JobId) -> StoreFuture<Option<Job>> {
        self.query(|snapshot| snapshot.table(&JOBS).record(job_id.as_str()))
    }

    fn job(&self, job_id: &JobId) -> StoreFuture<Option<StoredJob>> {
        self.query(|snapshot| records::job(snapshot, job_id))
    }

    fn decide(
        &self,
        job_id: &JobId,
        ack_level: AckLevel,
        results: Option<ReportedResults>,
        rule: JobRule,
    ) -> StoreFuture<RuleResult<Option<JobChange>>> {
        let job_id = job_id.clone();
        self.write(ack_level, move |txn| txn.decide(&job_id, results.as_ref(), &rule))
    }

    fn claim(
        &self,
        claimants: Vec<Claimant>,
        now: Timestamp,
        start_timeout_ms: u64,
    ) -> StoreFuture<Vec<Option<Claim>>> {
        self.write(AckLevel::Applied, move |txn| {
            claimants.iter().map(|claimant| txn.claim(claimant, now, start_timeout_ms)).collect()
        })
    }

    fn search(&self, search: Search, owner: Option<Owner>) -> StoreFuture<Vec<JobId>> {
        self.scan(move |snapshot| records::search(snapshot, &search, owner.as_ref()))
    }

    fn peek(&self, queue: &str, count: usize) -> StoreFuture<Vec<JobId>> {
        let queue = queue.to_owned();
        self.scan(move |snapshot| records::peek(snapshot, &queue, count))
    }

    fn peek_scheduled(&self, count: usize) -> StoreFuture<Vec<JobId>> {
        self.scan(move |snapshot| {
            let waiting = snapshot.table(&WAITING);
            waiting.iter()?.take(count).map(|entry| codec::job_id(entry?.0.value().1)).collect()
        })
    }

    fn position(&self, job: &Job, limit: usize) -> StoreFuture<u64> {
        let before = (job.lane, 0, 0)..ready_key(job);
        self.scan(move |snapshot| Ok(snapshot.table(&READY).range(before)?.take(limit).count() as u64))
    }

    fn set_paused(&self, queue: &str, paused: bool) -> StoreFuture<()> {
        let queue = queue.to_owned();
        self.write(AckLevel::Durable, move |txn| {
            txn.set_paused(&queue, paused);
            Ok(())
        })
    }

    fn paused(&self) -> StoreFuture<Vec<String>> {
        self.query(|snapshot| {
            snapshot.table(&PAUSED).iter()?.map(|entry| Ok(entry?.0.value().to_owned())).collect()
        })
    }

    fn is_prunable(&self, keep: Retention) -> StoreFuture<bool> {
        self.query(|snapshot| records::is_prunable(snapshot, keep))
    }

    fn prune(&self, keep: Retention, limit: usize) -> StoreFuture<usize> {
        self.write(AckLevel::Applied, move |txn| txn.prune(keep, limit))
    }

    fn forget_job(&self, job_id: &JobId, status: Status) -> StoreFuture<bool> {
        let job_id = job_id.clone();
        self.write(AckLevel::Durable, move |txn| txn.forget_job(&job_id, status))
    }

    fn totals(&self) -> StoreFuture<Totals> {
        self.query(records::totals)
    }

    fn held_by(&self, holder: &str) -> StoreFuture<Vec<JobId>> {
        self.query(|snapshot| records::held_by(snapshot, holder))
    }

    fn holders(&self) -> StoreFuture<Vec<String>> {
        self.scan(records::holders)
    }

    fn used_resources(&self, holder: Option<&str>) -> StoreFuture<BTreeMap<String, Quantities>> {
        self.query(|snapshot| records::used_resources(snapshot, holder))
    }

    fn due(&self, now: Timestamp, limit: usize) -> StoreFuture<Vec<JobId>> {
        self.query(|snapshot| records::due(snapshot, now, limit))
    }

    fn pending_timers(&self, now: Timestamp, wanted: JobFilter) -> StoreFuture<Vec<Job>> {
        self.scan(move |snapshot| records::pending_timers(snapshot, now, &wanted))
    }

    fn scheduled(&self) -> StoreFuture<(u64, Option<Timestamp>)> {
        self.query(|snapshot| {
            let waiting = snapshot.table(&WAITING);
            let first = waiting.iter()?.next().transpose()?.map(|(place, _)| Timestamp(place.value().0));
            Ok((waiting.len()?, first))
        })
    }

    fn queue_counts(&self) -> StoreFuture<QueueCounts> {
        self.query(documents::queue_counts)
    }

    fn lanes(&self) -> StoreFuture<Vec<LaneSummary>> {
        self.scan(records::lanes)
    }
}

impl DocumentStore for RedbStore {
    fn document(&self, kind: DocumentKind, id: &str) -> StoreFuture<Option<String>> {
        let key = (kind.as_str(), id);
        self.query(|snapshot| {
            Ok(snapshot.table(&DOCUMENTS).get(key)?.map(|document| document.value().to_owned()))
        })
    }

    fn documents(&self, kind: DocumentKind) -> StoreFuture<Vec<(String, String)>> {
        self.scan(move |snapshot| documents::documents(snapshot, kind))
    }

    fn documents_after(
        &self,
        kind: DocumentKind,
        after: &str,
        limit: usize,
    ) -> StoreFuture<Vec<(String, String)>> {
        let after = after.to_owned();
        self.scan(move |snapshot| documents::documents_after(snapshot, kind, &after, limit))
    }

    fn has_documents(&self, kind: DocumentKind) -> StoreFuture<bool> {
        let (first, behind) = (kind.as_str(), records::behind(kind.as_str()));
        self.query(|snapshot| {
            let documents = snapshot.table(&DOCUMENTS);
            Ok(documents.range((first, "")..(behind.as_str(), ""))?.next().transpose()?.is_some())
        })
    }

    fn unused(&self, now: Timestamp) -> StoreFuture<UnusedRecords> {
        self.scan(move |snapshot| documents::unused(snapshot, now))
    }

    fn forget_unused(&self, unused: UnusedRecords) -> StoreFuture<()> {
        self.write(AckLevel::Applied, move |txn| txn.forget_unused(&unused))
    }

    fn update_document(&self, kind: DocumentKind, id: &str, rule: DocumentRule) -> RuleFuture<()> {
        let id = id.to_owned();
        self.write(AckLevel::Durable, move |txn| txn.decide_document(kind, &id, &rule))
    }
}

impl WorkerStore for RedbStore {
    fn decide_worker(
        &self,
        worker_id: &WorkerId,
        ack_level: AckLevel,
        registration: Option<String>,
        rule: WorkerRule,
    ) -> StoreFuture<RuleResult<()>> {
        let worker_id = worker_id.clone();
        self.write(ack_level, move |txn| txn.decide_worker(&worker_id, registration.as_deref(), &rule))
    }

    fn registration(&self, worker_id: &WorkerId) -> StoreFuture<Option<String>> {
        let id = worker_id.as_str();
        self.query(|snapshot| {
            Ok(snapshot.table(&REGISTRATIONS).get(id)?.map(|registration| registration.value().to_owned()))
        })
    }

    fn forget_worker(&self, worker_id: &WorkerId, seen_before: Timestamp) -> StoreFuture<bool> {
        let worker_id = worker_id.clone();
        self.write(AckLevel::Durable, move |txn| txn.forget_worker(&worker_id, seen_before))
    }

    fn remove_worker(&self, worker_id: &WorkerId) -> StoreFuture<bool> {
        let worker_id = worker_id.clone();
        self.write(AckLevel::Durable, move |txn| txn.remove_worker(&worker_id))
    }

    fn worker(&self, worker_id: &WorkerId) -> StoreFuture<Option<Worker>> {
        self.query(|snapshot| snapshot.table(&WORKERS).record(worker_id.as_str()))
    }

    fn worker_records(&self) -> StoreFuture<Vec<Worker>> {
        self.scan(records::worker_records)
    }

    fn workers(&self) -> StoreFuture<Vec<(Worker, u64)>> {
        self.scan(records::workers)
    }
}

impl StoreAdmin for RedbStore {
    fn wait_until_applied(&self) -> StoreFuture<()> {
        self.write(AckLevel::Applied, |_| Ok(()))
    }

    fn sync(&self) -> StoreFuture<()> {
        if self.owes_sync.load(Ordering::Relaxed) {
            self.write(AckLevel::Synced, |_| Ok(()))
        } else {
            Box::pin(ready(Ok(())))
        }
    }

    fn backup(&self, to: PathBuf) -> StoreFuture<u64> {
        self.scan(move |snapshot| backup::copy(snapshot, &to))
    }

    fn failure(&self) -> BoxFuture<'static, String> {
        let mut failed = self.failed.clone();
        Box::pin(async move {
            let reason = failed.wait_for(Option::is_some).await.map(|reason| reason.clone());
            reason.ok().flatten().unwrap_or_else(|| "the writer has stopped".into())
        })
    }

    fn node(&self) -> Option<&str> {
        None
    }

    fn leads(&self) -> bool {
        true
    }

    fn nodes(&self) -> StoreFuture<Option<HashSet<String>>> {
        Box::pin(ready(Ok(None)))
    }

    fn notifier(&self) -> Arc<ChangeNotifier> {
        Arc::clone(&self.notifier)
    }
}
