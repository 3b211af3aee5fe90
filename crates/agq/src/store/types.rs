//! Records, rules and results that the traits of a store exchange with their callers.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use agenix_protocol::{
    documents::Status,
    ids::{ActionId, JobId, PlanId},
    time::Timestamp,
};
use agenix_rules::{
    action::Action,
    capability::{Abilities, Needs},
    job::{Job, JobParams, JobState, NewJob, RuleOutcome},
    worker::Worker,
};
use serde::{Deserialize, Serialize};

use super::{DocumentKind, RuleResult};

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

/// Identity of a lane: ready jobs of one queue that need the same capabilities. The redb store keeps
/// it encoded by the position of its fields.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct LaneKey {
    pub(crate) queue: String,
    pub(crate) needs: Needs,
}
