//! The records of the house: plans, actions, jobs, workers; and the indexes ready, due and held.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    path::PathBuf,
    sync::Arc,
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
    capability::{Abilities, Needs},
    job::{Job, JobParams, JobState, NewJob, RuleOutcome},
    worker::Worker,
};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};

use super::{AckLevel, ChangeNotifier, DocumentKind, DocumentRule, RuleResult, StoreFuture};

/// Decides what becomes of a job, given the job as it is now. May be asked more than once.
pub(crate) type JobRule = Box<dyn Fn(Option<&Job>) -> RuleResult<RuleOutcome> + Send + Sync>;
/// Says which jobs are wanted.
pub(crate) type JobFilter = Box<dyn Fn(&Job) -> bool + Send>;
/// Decides what becomes of a worker: `None` leaves the record as it is. May be asked more than once.
pub(crate) type WorkerRule = Box<dyn Fn(Option<&Worker>) -> RuleResult<Option<Worker>> + Send + Sync>;

/// Decides what becomes of an action: `None` leaves the record as it is. May be asked more than once.
pub(crate) type ActionRule = Box<dyn Fn(Option<&Action>) -> RuleResult<Option<Action>> + Send + Sync>;

/// A plan as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredPlan {
    pub(crate) plan_id: PlanId,
    /// The document, as JSON, with its id.
    pub(crate) json: String,
    pub(crate) created_at: Timestamp,
}

/// An action to store, whole or not at all.
#[derive(Debug)]
pub(crate) struct NewAction {
    pub(crate) action: Action,
    /// What a worker must have for its jobs.
    pub(crate) needs: Needs,
    pub(crate) terms: JobParams,
    /// In the order of the inputs.
    pub(crate) jobs: Vec<NewJob>,
    /// Notes that are put if the action is added: kind, id and text. None are put where a job has something for itself.
    pub(crate) notes: Vec<(DocumentKind, String, String)>,
}

impl NewAction {
    /// Its plan, and those that jobs have for themselves.
    pub(crate) fn plans(&self) -> BTreeSet<&PlanId> {
        let own = self.jobs.iter().filter_map(|job| Some(&job.own.as_ref()?.plan_id));
        std::iter::once(&self.action.plan_id).chain(own).collect()
    }
}

/// Jobs to add to an open action, all or none.
#[derive(Debug)]
pub(crate) struct AppendJobs {
    pub(crate) action_id: ActionId,
    /// The place of the first of them among the action's inputs, where the submitter said: what is there already must be
    /// the same.
    pub(crate) at: Option<u64>,
    pub(crate) needs: Needs,
    pub(crate) terms: JobParams,
    pub(crate) jobs: Vec<NewJob>,
    pub(crate) now: Timestamp,
}

/// What became of something that was to be added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AddOutcome {
    /// It is there now.
    New,
    /// The very same was there before.
    Same,
    /// Its id belongs to something else.
    Differs,
    /// It is there now but for these jobs, for which others stand; not at all, where that is so of every job.
    Stands(Vec<Duplicate>),
}

/// A job that was not added, because another one counts as the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Duplicate {
    /// The job that was to be added.
    pub(crate) job_id: JobId,
    /// The one that stands for it.
    pub(crate) by: JobId,
}

/// How many jobs of a queue are kept in each state, in the order of [`JobState`].
pub(crate) type QueueCounts = BTreeMap<String, [u64; 8]>;

/// A job with what is kept beside it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct StoredJob {
    pub(crate) job: Job,
    /// The queue it waits in.
    pub(crate) queue: String,
    /// What a worker must have for it.
    pub(crate) needs: Needs,
    /// Its input, as JSON.
    pub(crate) input: String,
    /// What its worker reported of its tasks, as JSON.
    pub(crate) results: Option<String>,
}

/// What a rule made of a job.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct JobChange {
    pub(crate) before: Job,
    pub(crate) after: Job,
}

impl JobChange {
    /// Who had the job until now, where that has ended by this.
    pub(crate) fn released_holder(&self) -> Option<&str> {
        let had = self.before.state == JobState::Active && self.after.state != JobState::Active;
        self.before.holder.as_deref().filter(|_| had)
    }
}

/// Someone who waits for a job.
#[derive(Debug, Clone)]
pub(crate) struct Claimant {
    /// A worker's id or a connection's name.
    pub(crate) holder: Arc<str>,
    pub(crate) abilities: Arc<Abilities>,
    /// The queues it takes jobs of, the first of them first.
    pub(crate) queues: Arc<[String]>,
    /// For how long jobs of the Open Job Spec are reserved for it, in milliseconds, where it said so.
    pub(crate) visibility_ms: Option<u64>,
}

/// A job that was just given to a claimant.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Claim {
    pub(crate) job: Job,
    /// The queue it waited in.
    pub(crate) queue: String,
    /// Its input, as JSON.
    pub(crate) input: String,
    /// Its plan, as JSON.
    pub(crate) plan: String,
}

/// What is pruned: ended jobs that nobody needs any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Retention {
    /// Jobs that ended before this go, the dead apart.
    pub(crate) ended_since: Timestamp,
    /// Dead jobs that ended before this go.
    pub(crate) dead_since: Timestamp,
    /// Most ended jobs that stay, the dead apart; 0 for no bound.
    pub(crate) count: u64,
}

/// Session of the database with the oldest snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OldestSnapshot {
    pub(crate) pid: i32,
    pub(crate) application: String,
    pub(crate) user: String,
    /// Age of the transaction, in seconds.
    pub(crate) secs: u64,
}

/// Lanes and limits that are kept although nothing uses them any more.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct UnusedRecords {
    /// Numbers of lanes that have no jobs.
    pub(crate) lanes: Vec<i32>,
    /// Keys of limits that hold no job back, each with a version that shows whether somebody has
    /// written the limit since.
    pub(crate) limits: Vec<(String, String)>,
}

/// How many jobs there are and were.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Totals {
    /// Jobs that are kept now, by status in the order of [`Status`].
    pub(crate) now: [u64; 6],
    /// How often a job came into a status, ever; for `pending`, how many were submitted.
    pub(crate) ever: [u64; 6],
}

impl Totals {
    /// Ended jobs that are kept, the dead apart.
    pub(crate) fn kept(&self) -> u64 {
        [Status::Completed, Status::Failed, Status::Cancelled]
            .iter()
            .map(|status| self.now[*status as usize])
            .sum()
    }
}

/// The ready jobs of one queue that need the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LaneSummary {
    pub(crate) queue: String,
    pub(crate) needs: Needs,
    /// How many jobs wait in it.
    pub(crate) length: u64,
    /// When the first and the last of them were submitted.
    pub(crate) span: (Timestamp, Timestamp),
}

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
