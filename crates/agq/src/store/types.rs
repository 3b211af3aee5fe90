//! Records, rules and results that the traits of a store exchange with their callers.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use agenix_protocol::{
    blob::BlobHash,
    documents::{Quantities, Status},
    ids::{ActionId, JobId, PlanId},
    time::Timestamp,
};
use agenix_rules::{
    action::Action,
    budget::SubmissionCharge,
    capability::{ClaimantCapabilities, Needs},
    fair_share::ShareTerms,
    job::{Job, JobParams, JobState, NewJob, RuleOutcome},
    owner::Owner,
    worker::Worker,
};
use serde::{Deserialize, Serialize};

use super::{DocumentChange, DocumentKind, RuleResult, StoreFuture};

/// Future of a call whose rule can reject it.
pub(crate) type RuleFuture<T> = StoreFuture<RuleResult<T>>;
/// Result of an operation in a transaction, with its rejection inside.
pub(crate) type Ruled<T, E> = Result<RuleResult<T>, E>;

/// Rule that decides about a job, given its current record (`None` if it does not exist). May be
/// called more than once for one write.
pub(crate) type JobRule = Box<dyn Fn(Option<&Job>) -> RuleResult<RuleOutcome> + Send + Sync>;
pub(crate) type JobFilter = Box<dyn Fn(&Job) -> bool + Send>;
/// Rule that decides about a worker; `None` leaves the record unchanged. May be called more than
/// once for one write.
pub(crate) type WorkerRule = Box<dyn Fn(Option<&Worker>) -> RuleResult<Option<Worker>> + Send + Sync>;

/// Rule that decides about an action; `None` leaves the record unchanged. May be called more than
/// once for one write.
pub(crate) type ActionRule = Box<dyn Fn(Option<&Action>) -> RuleResult<Option<Action>> + Send + Sync>;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredPlan {
    pub(crate) plan_id: PlanId,
    /// Document of the plan, as JSON that includes the id.
    pub(crate) json: String,
    pub(crate) created_at: Timestamp,
    /// Owner, if a named key submitted the plan. Always written, because only the last field of a
    /// record may be left out.
    #[serde(default)]
    pub(crate) owner: Option<Owner>,
    /// Envelope of the signed order that has the plan, as it was submitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) order: Option<String>,
}

impl StoredPlan {
    /// Returns a plan that nobody has signed.
    pub(crate) fn unsigned(plan_id: PlanId, json: String, created_at: Timestamp) -> Self {
        Self { plan_id, json, created_at, owner: None, order: None }
    }
}

/// Plan that is about to be stored.
#[derive(Debug)]
pub(crate) struct NewPlan {
    pub(crate) record: StoredPlan,
    /// Charge of the plan to the budget of the submitter, if the submitter has one.
    pub(crate) charge: Option<SubmissionCharge>,
    /// Change of the approval of the plan, in the same transaction.
    pub(crate) approval: DocumentChange,
}

impl From<StoredPlan> for NewPlan {
    /// Returns a plan that needs neither a budget nor an approval.
    fn from(record: StoredPlan) -> Self {
        Self { record, charge: None, approval: DocumentChange::Keep }
    }
}

#[derive(Debug)]
pub(crate) struct NewAction {
    pub(crate) action: Action,
    /// Capabilities that a worker must offer for the jobs.
    pub(crate) needs: Needs,
    pub(crate) terms: JobParams,
    /// Jobs in the order of the inputs.
    pub(crate) jobs: Vec<NewJob>,
    /// Documents stored with the action: kind, id, text. Empty if a job has settings of its own.
    pub(crate) documents: Vec<(DocumentKind, String, String)>,
    /// Blobs that the inputs of jobs name. Each must have a record.
    pub(crate) input_blobs: Vec<(JobId, BTreeSet<BlobHash>)>,
    /// Charge of the jobs to the budget of the submitter, if the submitter has one.
    pub(crate) charge: Option<SubmissionCharge>,
}

impl NewAction {
    /// Returns an action with `jobs`, without needs, parameters and documents of its own, and
    /// without a charge.
    pub(crate) fn new(action: Action, jobs: Vec<NewJob>) -> Self {
        Self {
            action,
            needs: Needs::default(),
            terms: JobParams::default(),
            jobs,
            documents: Vec::new(),
            input_blobs: Vec::new(),
            charge: None,
        }
    }

    /// Returns true if the action may be stored without some of its jobs, for which others stand.
    pub(crate) fn may_leave_out(&self) -> bool {
        self.action.wishes.scheduling.inputs_hash.is_some()
    }

    /// Returns the blobs that the inputs name.
    pub(crate) fn blobs(&self) -> BTreeSet<BlobHash> {
        self.input_blobs.iter().flat_map(|(_, blobs)| blobs).copied().collect()
    }

    /// Returns the plan of the action, and the plans that jobs have for themselves.
    pub(crate) fn plans(&self) -> BTreeSet<&PlanId> {
        let own = self.jobs.iter().filter_map(|job| Some(&job.own.as_ref()?.plan_id));
        std::iter::once(&self.action.plan_id).chain(own).collect()
    }
}

/// Jobs to append to an open action, all or none.
#[derive(Debug)]
pub(crate) struct AppendJobs {
    pub(crate) action_id: ActionId,
    /// Index of the first job among the inputs of the action, if the submitter sent one. Jobs that
    /// already exist from this index on must have the same inputs.
    pub(crate) at: Option<u64>,
    pub(crate) needs: Needs,
    pub(crate) terms: JobParams,
    pub(crate) jobs: Vec<NewJob>,
    pub(crate) now: Timestamp,
    /// Charge of the added jobs to the budget of the submitter, if the submitter has one.
    pub(crate) charge: Option<SubmissionCharge>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AddOutcome {
    New,
    /// An equal record existed before; nothing changed.
    Same,
    /// The id belongs to a different record; nothing changed.
    Differs,
    /// The action was added without these jobs, which other jobs stand for. If other jobs stand for
    /// every job, nothing was added.
    Stands(Vec<Duplicate>),
}

/// Job that was not added, because an existing job is a duplicate of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Duplicate {
    pub(crate) job_id: JobId,
    /// Existing job that stands for the submitted one.
    pub(crate) by: JobId,
}

/// Number of kept jobs in each state, in the order of [`JobState`], by queue.
pub(crate) type QueueCounts = BTreeMap<String, [u64; 8]>;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct StoredJob {
    pub(crate) job: Job,
    pub(crate) queue: String,
    pub(crate) needs: Needs,
    /// Input of the job, as JSON.
    pub(crate) input: String,
    /// Report of the worker about the tasks, as JSON.
    pub(crate) results: Option<String>,
}

/// Results in a report that changes a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReportedResults {
    /// Results of the tasks, as JSON.
    pub(crate) json: String,
    /// Blobs that the results name.
    pub(crate) blobs: BTreeSet<BlobHash>,
    /// Needs of the next attempt, if the report leads to one that needs other amounts.
    pub(crate) next_needs: Option<Box<Needs>>,
}

impl ReportedResults {
    /// Returns results that name no blobs.
    pub(crate) fn without_blobs(json: String) -> Self {
        Self { json, blobs: BTreeSet::new(), next_needs: None }
    }

    /// Returns the needs of the next attempt, if `after` waits for it and needs other amounts.
    pub(crate) fn needs_of_retry(&self, after: &Job) -> Option<&Needs> {
        self.next_needs.as_deref().filter(|_| after.state == JobState::Retryable)
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct JobChange {
    pub(crate) before: Job,
    pub(crate) after: Job,
}

impl JobChange {
    /// Returns the former holder, if the change ended the claim of the job.
    pub(crate) fn released_holder(&self) -> Option<&str> {
        let had = self.before.state == JobState::Active && self.after.state != JobState::Active;
        self.before.holder.as_deref().filter(|_| had)
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Claimant {
    /// Id of a worker, or name of a connection.
    pub(crate) holder: Arc<str>,
    pub(crate) capabilities: Arc<ClaimantCapabilities>,
    /// Queues to claim from, in order of preference.
    pub(crate) queues: Arc<[String]>,
    /// Terms of the shares of these queues.
    pub(crate) share_terms: Arc<ShareTerms>,
    /// Visibility timeout for jobs of the Open Job Spec, in milliseconds, if the client set one.
    pub(crate) visibility_ms: Option<u64>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Claim {
    pub(crate) job: Job,
    pub(crate) queue: String,
    /// Input of the job, as JSON.
    pub(crate) input: String,
    /// Plan of the job, as JSON.
    pub(crate) plan: String,
    /// Envelope of the signed order that has the plan.
    pub(crate) order: Option<String>,
    /// Quantities that the job uses while it runs.
    pub(crate) resources: Option<Box<Quantities>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Retention {
    /// Ended jobs other than dead ones are removed if they ended before this time.
    pub(crate) ended_since: Timestamp,
    /// Dead jobs are removed if they ended before this time.
    pub(crate) dead_since: Timestamp,
    /// Maximum number of ended jobs that are kept, not counting dead ones; 0 for no bound.
    pub(crate) count: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OldestSnapshot {
    pub(crate) pid: i32,
    pub(crate) application: String,
    pub(crate) user: String,
    /// Age of the transaction, in seconds.
    pub(crate) secs: u64,
}

/// Lanes and limits that are stored although nothing uses them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct UnusedRecords {
    /// Numbers of lanes that have no jobs.
    pub(crate) lanes: Vec<i32>,
    /// Keys of limits that hold no job back, each with a version that every write changes.
    pub(crate) limits: Vec<(String, String)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Totals {
    /// Number of kept jobs by status, in the order of [`Status`].
    pub(crate) now: [u64; 6],
    /// Number of entries into each status since the start of the store; for `pending`, of jobs.
    pub(crate) ever: [u64; 6],
}

impl Totals {
    /// Returns the number of kept ended jobs, not counting dead ones.
    pub(crate) fn kept(&self) -> u64 {
        [Status::Completed, Status::Failed, Status::Cancelled]
            .iter()
            .map(|status| self.now[*status as usize])
            .sum()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LaneSummary {
    pub(crate) queue: String,
    pub(crate) needs: Needs,
    pub(crate) length: u64,
    /// Earliest and latest time at which a ready job of the lane was submitted.
    pub(crate) span: (Timestamp, Timestamp),
}

/// Identity of a lane: ready jobs of one queue with equal needs. The redb store encodes the key by
/// the position of its fields, so their order must not change.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct LaneKey {
    pub(crate) queue: String,
    pub(crate) needs: Needs,
}
