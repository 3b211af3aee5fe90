//! The records of the house: plans, actions, jobs, workers; and the indexes ready, due and held.

use std::sync::Arc;

use agenix_protocol::{
    documents::Status,
    ids::{ActionId, JobId, PlanId, WorkerId},
    time::Timestamp,
};
use agenix_rules::{
    action::{Action, Tally},
    capability::Abilities,
    job::{Job, NewJob, Outcome},
    worker::Worker,
};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};

use super::{Answer, Arrivals, Promise, Ruled};

/// Decides what becomes of a job, given the job as it is now. May be asked more than once.
pub(crate) type JobRule = Box<dyn Fn(Option<&Job>) -> Ruled<Outcome> + Send + Sync>;
/// Decides what becomes of a worker: `None` leaves the record as it is. May be asked more than once.
pub(crate) type WorkerRule = Box<dyn Fn(Option<&Worker>) -> Ruled<Option<Worker>> + Send + Sync>;

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
    /// The queue its jobs wait in.
    pub(crate) queue: String,
    /// The commands that a worker must have for its jobs, sorted.
    pub(crate) needs: Vec<String>,
    pub(crate) max_retries: u32,
    pub(crate) timeout_ms: u64,
    /// In the order of the inputs.
    pub(crate) jobs: Vec<NewJob>,
}

/// What became of something that was to be added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Added {
    /// It is there now.
    New,
    /// The very same was there before.
    Same,
    /// Its id belongs to something else.
    Differs,
}

/// A job with what is kept beside it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct StoredJob {
    pub(crate) job: Job,
    /// Its input, as JSON.
    pub(crate) input: String,
    /// What its worker reported of its tasks, as JSON.
    pub(crate) results: Option<String>,
}

/// Someone who waits for a job.
#[derive(Debug, Clone)]
pub(crate) struct Claimant {
    /// A worker's id or a connection's name.
    pub(crate) holder: Arc<str>,
    pub(crate) abilities: Arc<Abilities>,
}

/// A job that was just given to a claimant.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Claim {
    pub(crate) job: Job,
    /// Its input, as JSON.
    pub(crate) input: String,
    /// Its plan, as JSON.
    pub(crate) plan: String,
}

/// The ready jobs of one queue that need the same commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lane {
    pub(crate) queue: String,
    pub(crate) needs: Vec<String>,
    /// How many jobs wait in it.
    pub(crate) length: u64,
    /// When the first and the last of them were submitted.
    pub(crate) span: Option<(Timestamp, Timestamp)>,
}

/// The records and their indexes. See the module above for what a call promises.
pub(crate) trait Records: Send + Sync + 'static {
    /// Adds a plan; never replaces one.
    fn add_plan(&self, plan: StoredPlan) -> Answer<bool>;
    /// Reads a plan.
    fn plan(&self, plan_id: &PlanId) -> Answer<Option<StoredPlan>>;
    /// All plans, in the order of their ids.
    fn plans(&self) -> Answer<Vec<PlanId>>;

    /// Adds an action with all its jobs, ready to be claimed; or nothing.
    fn add_action(&self, action: NewAction) -> Answer<Added>;
    /// Reads an action and where its jobs are.
    fn action(&self, action_id: &ActionId) -> Answer<Option<(Action, Tally)>>;
    /// The jobs of an action in the order of its inputs, all or those of one status.
    fn jobs_of(&self, action_id: &ActionId, status: Option<Status>) -> Answer<Vec<JobId>>;

    /// Reads a job.
    fn job(&self, job_id: &JobId) -> Answer<Option<StoredJob>>;
    /// Applies a rule to a job, and moves its indexes and its action's tally along. `results` are kept when the rule
    /// changed the job.
    fn decide(
        &self,
        job_id: &JobId,
        promise: Promise,
        results: Option<Bytes>,
        rule: JobRule,
    ) -> Answer<Ruled<()>>;
    /// Gives each claimant, in order, the oldest ready job that it can run. `None` where there is none.
    fn claim(&self, claimants: Vec<Claimant>, now: Timestamp) -> Answer<Vec<Option<Claim>>>;
    /// The active jobs of a holder.
    fn held_by(&self, holder: &str) -> Answer<Vec<JobId>>;
    /// Everyone who holds jobs.
    fn holders(&self) -> Answer<Vec<String>>;
    /// Jobs whose time has come, the earliest first, at most `limit`.
    fn due(&self, now: Timestamp, limit: usize) -> Answer<Vec<JobId>>;
    /// How many jobs wait for a time, and when the first of them becomes available.
    fn scheduled(&self) -> Answer<(u64, Option<Timestamp>)>;
    /// The lanes that have jobs.
    fn lanes(&self) -> Answer<Vec<Lane>>;

    /// Applies a rule to a worker.
    fn decide_worker(&self, worker_id: &WorkerId, promise: Promise, rule: WorkerRule) -> Answer<Ruled<()>>;
    /// Removes a worker; whether there was one.
    fn remove_worker(&self, worker_id: &WorkerId) -> Answer<bool>;
    /// Reads a worker.
    fn worker(&self, worker_id: &WorkerId) -> Answer<Option<Worker>>;
    /// All workers with the number of jobs that each holds, in the order of their ids.
    fn workers(&self) -> Answer<Vec<(Worker, u64)>>;

    /// Answers when every write before it is visible.
    fn settled(&self) -> Answer<()>;
    /// Answers when everything visible is on disk.
    fn sync(&self) -> Answer<()>;
    /// Answers when the store cannot go on, with the reason: only starting again can help then.
    fn failure(&self) -> BoxFuture<'static, String>;
    /// Where the store announces that there is something to take.
    fn arrivals(&self) -> Arc<Arrivals>;
}
