//! The records of the house: plans, actions, jobs, workers; and the indexes ready, due and held.

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
use futures_util::future::BoxFuture;

use super::{
    AckLevel, ActionRule, AddOutcome, AppendJobs, ChangeNotifier, Claim, Claimant, DocumentKind,
    DocumentRule, JobChange, JobFilter, JobRule, LaneSummary, NewAction, OldestSnapshot, QueueCounts,
    Retention, RuleResult, StoreFuture, StoredJob, StoredPlan, Totals, UnusedRecords, WorkerRule,
};

/// The records and their indexes. See the module above for what a call promises.
pub(crate) trait Records: Send + Sync + 'static {
    /// Adds a plan; never replaces one.
    fn add_plan(&self, plan: StoredPlan) -> StoreFuture<bool>;
    /// Reads a plan.
    fn plan(&self, plan_id: &PlanId) -> StoreFuture<Option<StoredPlan>>;
    /// A page of the plans, in the order of their ids.
    fn plans(&self, page: Page) -> StoreFuture<Vec<PlanId>>;
    /// Removes a plan that no job needs which has not ended; whether there was one.
    fn delete_plan(&self, plan_id: &PlanId) -> StoreFuture<RuleResult<bool>>;

    /// Adds an action with all its jobs, ready to be claimed; or nothing.
    fn add_action(&self, action: NewAction) -> StoreFuture<RuleResult<AddOutcome>>;
    /// Adds jobs to an open action; how many it has then.
    fn add_jobs(&self, more: AppendJobs) -> StoreFuture<RuleResult<u64>>;
    /// Applies a rule to an action.
    fn decide_action(&self, action_id: &ActionId, rule: ActionRule) -> StoreFuture<RuleResult<()>>;
    /// Removes the halted mark of an action without waiting and running jobs, so that its jobs may be
    /// claimed again if they are retried.
    fn settle_halt(&self, action_id: &ActionId, now: Timestamp) -> StoreFuture<()>;
    /// A page of the actions, in the order of their ids.
    fn actions(&self, page: Page) -> StoreFuture<Vec<ActionId>>;
    /// Reads an action and where its jobs are.
    fn action(&self, action_id: &ActionId) -> StoreFuture<Option<(Action, JobCounts)>>;
    /// A slice of the jobs of an action in the order of its inputs: of those of these statuses; where none is named, of its
    /// inputs, from the `offset`th on, as far as their jobs are kept.
    fn jobs_of(&self, action_id: &ActionId, statuses: Vec<Status>, slice: Slice) -> StoreFuture<Vec<JobId>>;

    /// Reads a job alone, without what is kept beside it.
    fn job_record(&self, job_id: &JobId) -> StoreFuture<Option<Job>>;
    /// Reads a job.
    fn job(&self, job_id: &JobId) -> StoreFuture<Option<StoredJob>>;
    /// Applies a rule to a job, and moves its indexes and its action's tally along. `results` are kept when the rule
    /// changed the job. Answers what changed, if anything did.
    fn decide(
        &self,
        job_id: &JobId,
        promise: AckLevel,
        results: Option<Bytes>,
        rule: JobRule,
    ) -> StoreFuture<RuleResult<Option<JobChange>>>;
    /// Gives each claimant, in order, the oldest ready job of the highest priority that it can run, in the first of its
    /// queues that has one. `None` where there is none. A claim must be reported within `start_timeout_ms` (0 for no bound).
    /// Nobody gets a job of a halted action. A store may cancel such jobs where it meets them.
    fn claim(
        &self,
        claimants: Vec<Claimant>,
        now: Timestamp,
        start_timeout_ms: u64,
    ) -> StoreFuture<Vec<Option<Claim>>>;
    /// Jobs that meet every condition, the newest first.
    fn search(&self, search: Search) -> StoreFuture<Vec<JobId>>;
    /// The jobs of a queue in the order in which they would be claimed by someone who can run anything.
    fn peek(&self, queue: &str, count: usize) -> StoreFuture<Vec<JobId>>;
    /// The jobs that wait for a time, the earliest first.
    fn peek_scheduled(&self, count: usize) -> StoreFuture<Vec<JobId>>;
    /// How many ready jobs with the same needs are claimed before this one, counted up to `limit`.
    fn position(&self, job: &Job, limit: usize) -> StoreFuture<u64>;
    /// Lets a queue give no jobs, or give them again.
    fn set_paused(&self, queue: &str, paused: bool) -> StoreFuture<()>;
    /// The queues that give no jobs.
    fn paused(&self) -> StoreFuture<Vec<String>>;
    /// Whether there is anything to prune.
    fn is_prunable(&self, keep: Retention) -> StoreFuture<bool>;
    /// Removes at most `limit` ended jobs that need not be kept, and actions of which nothing is left; how many jobs.
    fn prune(&self, keep: Retention, limit: usize) -> StoreFuture<usize>;
    /// Forgets a job that has ended with this status; whether there was one.
    fn forget_job(&self, job_id: &JobId, status: Status) -> StoreFuture<bool>;
    /// How many jobs there are and were.
    fn totals(&self) -> StoreFuture<Totals>;
    /// Answers whether the store can do its work, and answers soon even if the store cannot.
    fn is_healthy(&self) -> StoreFuture<()> {
        let totals = self.totals();
        Box::pin(async move { totals.await.map(drop) })
    }
    /// The active jobs of a holder.
    fn held_by(&self, holder: &str) -> StoreFuture<Vec<JobId>>;
    /// Everyone who holds jobs.
    fn holders(&self) -> StoreFuture<Vec<String>>;
    /// Jobs whose time has come, the earliest first, at most `limit`.
    fn due(&self, now: Timestamp, limit: usize) -> StoreFuture<Vec<JobId>>;
    /// Jobs that wait for a time to come, or are active until one, and are wanted.
    fn pending_timers(&self, now: Timestamp, wanted: JobFilter) -> StoreFuture<Vec<Job>>;
    /// How many jobs wait for a time, and when the first of them becomes available.
    fn scheduled(&self) -> StoreFuture<(u64, Option<Timestamp>)>;
    /// Answers the session with the oldest snapshot, where the store has sessions.
    fn oldest_snapshot(&self) -> StoreFuture<Option<OldestSnapshot>> {
        Box::pin(std::future::ready(Ok(None)))
    }
    /// How many jobs of each queue are in which state.
    fn queue_counts(&self) -> StoreFuture<QueueCounts>;
    /// The lanes that have jobs.
    fn lanes(&self) -> StoreFuture<Vec<LaneSummary>>;

    /// Reads a note.
    fn document(&self, kind: DocumentKind, id: &str) -> StoreFuture<Option<String>>;
    /// All notes of a kind with their ids, in the order of these.
    fn documents(&self, kind: DocumentKind) -> StoreFuture<Vec<(String, String)>>;
    /// Answers whether there is any note of `kind`.
    fn has_documents(&self, kind: DocumentKind) -> StoreFuture<bool>;
    /// Forgets limits that nobody uses any more, because no kept job stands under them, and answers
    /// the number of these limits.
    fn forget_limits(&self, _now: Timestamp) -> StoreFuture<usize> {
        Box::pin(std::future::ready(Ok(0)))
    }
    /// Answers the unused lanes and limits that [`forget_limits`](Self::forget_limits) does not
    /// find.
    fn unused(&self, _now: Timestamp) -> StoreFuture<UnusedRecords> {
        Box::pin(std::future::ready(Ok(UnusedRecords::default())))
    }
    /// Removes those of the given lanes and limits that are still unused.
    fn forget_unused(&self, _unused: UnusedRecords) -> StoreFuture<()> {
        Box::pin(std::future::ready(Ok(())))
    }
    /// Applies a rule to a note.
    fn update_document(
        &self,
        kind: DocumentKind,
        id: &str,
        rule: DocumentRule,
    ) -> StoreFuture<RuleResult<()>>;

    /// Applies a rule to a worker. A `registration`, as JSON, is kept when the rule changed the worker.
    fn decide_worker(
        &self,
        worker_id: &WorkerId,
        promise: AckLevel,
        registration: Option<String>,
        rule: WorkerRule,
    ) -> StoreFuture<RuleResult<()>>;
    /// What a worker registered, as JSON.
    fn registration(&self, worker_id: &WorkerId) -> StoreFuture<Option<String>>;
    /// Removes a worker that is dead and was last seen before a time; whether there was one.
    fn forget_worker(&self, worker_id: &WorkerId, seen_before: Timestamp) -> StoreFuture<bool>;
    /// Removes a worker; whether there was one.
    fn remove_worker(&self, worker_id: &WorkerId) -> StoreFuture<bool>;
    /// Reads a worker.
    fn worker(&self, worker_id: &WorkerId) -> StoreFuture<Option<Worker>>;
    /// Answers all workers in the order of their ids, without the cost of counting their jobs.
    fn worker_records(&self) -> StoreFuture<Vec<Worker>>;
    /// All workers with the number of jobs that each holds, in the order of their ids.
    fn workers(&self) -> StoreFuture<Vec<(Worker, u64)>>;

    /// Does `work` for a connection, or for many, which makes calls here and waits for none of their answers; the round, where they wait until they
    /// are seen to. See [`at_once`](super::at_once).
    fn submit(&self, connection: Option<u64>, work: &mut dyn FnMut()) -> Option<u64>;
    /// Whether it is worth to wait for others before that, where the first has waited since then, if it has.
    fn waits_for_writers(&self, round: u64, since: Option<Instant>) -> bool;
    /// Carries out what was collected in a round, on the spot where that is quickest.
    fn flush_round(&self, round: u64);
    /// Answers when every write before it is visible, but for jobs that are added in bulk.
    fn wait_until_applied(&self) -> StoreFuture<()>;
    /// Answers when everything visible is on disk.
    fn sync(&self) -> StoreFuture<()>;
    /// Writes a copy of everything, as it is at one moment, into a new file from which a store can be opened; how many bytes
    /// it has. Every write that was answered is in it.
    fn backup(&self, to: PathBuf) -> StoreFuture<u64>;
    /// Answers when the store cannot go on, with the reason: only starting again can help then.
    fn failure(&self) -> BoxFuture<'static, String>;
    /// The name of this agq among those that share the store, where several may.
    fn node(&self) -> Option<&str>;
    /// Returns whether writes of users' keys have an order of their own, which is independent of
    /// the order of other writes.
    fn writes_keys_apart(&self) -> bool {
        false
    }
    /// Whether this agq is the one that sees to what nobody reports.
    fn leads(&self) -> bool;
    /// Those that share the store and are there; `None` where that is not known, or where there is this one alone.
    fn nodes(&self) -> StoreFuture<Option<HashSet<String>>>;
    /// Where the store announces that there is something to take.
    fn notifier(&self) -> Arc<ChangeNotifier>;
}
