//! The records of the contract, each call a write for the writer or a read.

use std::{
    collections::HashSet,
    path::PathBuf,
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

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
use futures_util::future::{BoxFuture, ready};
use redb::Error;

use crate::store::{
    ActionRule, Added, Answer, Arrivals, Change, Claim, Claimant, JobFilter, JobRule, Keep, Lane, MoreJobs,
    NewAction, NoteKind, NoteRule, Promise, QueueCounts, Records, Ruled, StoredJob, StoredPlan, Totals,
    WorkerRule,
    redb::{
        RedbStore,
        file::backup,
        queries::{documents, records},
        writer::queue::Size,
    },
};

impl Records for RedbStore {
    fn add_plan(&self, plan: StoredPlan) -> Answer<bool> {
        self.write(Promise::Durable, move |batch| batch.add_plan(&plan))
    }

    fn plan(&self, plan_id: &PlanId) -> Answer<Option<StoredPlan>> {
        self.read(|view| records::plan(view, plan_id))
    }

    fn plans(&self, page: Page) -> Answer<Vec<PlanId>> {
        self.scan(move |view| records::plans(view, &page))
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

    fn settle_halt(&self, action_id: &ActionId, now: Timestamp) -> Answer<()> {
        let action_id = action_id.clone();
        self.write(Promise::Durable, move |batch| batch.settle_halt(&action_id, now))
    }

    fn actions(&self, page: Page) -> Answer<Vec<ActionId>> {
        self.scan(move |view| records::actions(view, &page))
    }

    fn action(&self, action_id: &ActionId) -> Answer<Option<(Action, JobCounts)>> {
        self.read(|view| records::action(view, action_id))
    }

    fn jobs_of(&self, action_id: &ActionId, statuses: Vec<Status>, slice: Slice) -> Answer<Vec<JobId>> {
        let action_id = action_id.clone();
        self.scan(move |view| records::jobs_of(view, &action_id, &statuses, slice))
    }

    fn job_record(&self, job_id: &JobId) -> Answer<Option<Job>> {
        self.read(|view| records::job_record(view, job_id))
    }

    fn job(&self, job_id: &JobId) -> Answer<Option<StoredJob>> {
        self.read(|view| records::job(view, job_id))
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
        self.scan(move |view| records::search(view, &search))
    }

    fn peek(&self, queue: &str, count: usize) -> Answer<Vec<JobId>> {
        let queue = queue.to_owned();
        self.scan(move |view| records::peek(view, &queue, count))
    }

    fn peek_scheduled(&self, count: usize) -> Answer<Vec<JobId>> {
        self.scan(move |view| records::peek_scheduled(view, count))
    }

    fn ahead(&self, job: &Job, limit: usize) -> Answer<u64> {
        let job = job.clone();
        self.scan(move |view| records::ahead(view, &job, limit))
    }

    fn set_paused(&self, queue: &str, paused: bool) -> Answer<()> {
        let queue = queue.to_owned();
        self.write(Promise::Durable, move |batch| {
            batch.set_paused(&queue, paused);
            Ok(())
        })
    }

    fn paused(&self) -> Answer<Vec<String>> {
        self.read(records::paused)
    }

    fn is_prunable(&self, keep: Keep) -> Answer<bool> {
        self.read(|view| records::is_prunable(view, keep))
    }

    fn prune(&self, keep: Keep, limit: usize) -> Answer<usize> {
        self.write(Promise::Visible, move |batch| batch.prune(keep, limit))
    }

    fn forget_job(&self, job_id: &JobId, status: Status) -> Answer<bool> {
        let job_id = job_id.clone();
        self.write(Promise::Durable, move |batch| batch.forget_job(&job_id, status))
    }

    fn totals(&self) -> Answer<Totals> {
        self.read(records::totals)
    }

    fn held_by(&self, holder: &str) -> Answer<Vec<JobId>> {
        self.read(|view| records::held_by(view, holder))
    }

    fn holders(&self) -> Answer<Vec<String>> {
        self.scan(records::holders)
    }

    fn due(&self, now: Timestamp, limit: usize) -> Answer<Vec<JobId>> {
        self.read(|view| records::due(view, now, limit))
    }

    fn waits(&self, now: Timestamp, wanted: JobFilter) -> Answer<Vec<Job>> {
        self.scan(move |view| records::waits(view, now, &wanted))
    }

    fn scheduled(&self) -> Answer<(u64, Option<Timestamp>)> {
        self.read(records::scheduled)
    }

    fn queue_counts(&self) -> Answer<QueueCounts> {
        self.read(documents::queue_counts)
    }

    fn note(&self, kind: NoteKind, id: &str) -> Answer<Option<String>> {
        self.read(|view| documents::note(view, kind, id))
    }

    fn notes(&self, kind: NoteKind) -> Answer<Vec<(String, String)>> {
        self.scan(move |view| documents::notes(view, kind))
    }

    fn has_notes(&self, kind: NoteKind) -> Answer<bool> {
        self.read(|view| documents::has_notes(view, kind))
    }

    fn forget_limits(&self, now: Timestamp) -> Answer<usize> {
        self.write(Promise::Durable, move |batch| batch.forget_limits(now))
    }

    fn decide_note(&self, kind: NoteKind, id: &str, rule: NoteRule) -> Answer<Ruled<()>> {
        let id = id.to_owned();
        self.write(Promise::Durable, move |batch| batch.decide_note(kind, &id, &rule))
    }

    fn lanes(&self) -> Answer<Vec<Lane>> {
        self.scan(records::lanes)
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
        self.read(|view| records::registration(view, worker_id))
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
        self.read(|view| records::worker(view, worker_id))
    }

    fn worker_records(&self) -> Answer<Vec<Worker>> {
        self.scan(records::worker_records)
    }

    fn workers(&self) -> Answer<Vec<(Worker, u64)>> {
        self.scan(records::workers)
    }

    fn collect(&self, connection: Option<u64>, work: &mut dyn FnMut()) -> Option<u64> {
        match &self.duty {
            Some(duty) => duty.collect(connection, work),
            None => {
                work();
                None
            }
        }
    }

    fn awaits_company(&self, round: u64, since: Option<Instant>) -> bool {
        self.duty.as_ref().is_some_and(|duty| duty.awaits_company(round, since))
    }

    fn see_to(&self, round: u64) {
        if let Some(duty) = &self.duty {
            duty.see_to(round);
        }
    }

    fn settled(&self) -> Answer<()> {
        self.write(Promise::Visible, |_| Ok(()))
    }

    fn sync(&self) -> Answer<()> {
        if self.owes_sync.load(Ordering::Relaxed) {
            self.write(Promise::OnDisk, |_| Ok(()))
        } else {
            Box::pin(ready(Ok(())))
        }
    }

    fn backup(&self, to: PathBuf) -> Answer<u64> {
        self.scan(move |view| backup::copy(view, &to))
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

    fn nodes(&self) -> Answer<Option<HashSet<String>>> {
        Box::pin(ready(Ok(None)))
    }

    fn arrivals(&self) -> Arc<Arrivals> {
        Arc::clone(&self.arrivals)
    }
}
