//! Actions: one plan, N inputs, N jobs (AGQ API spec §4).

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{ConcurrencyKey, Halt, MemoryFactor, Quantities, StartRate, UniqueJobs, is_default};
use crate::{
    ids::{ActionId, PlanId, QueueName, ShareName},
    time::Timestamp,
};

/// Document of ACTION.SUBMIT. Each input keeps the text of the submitter.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ActionSubmission {
    /// Id of the action. Default: agq generates one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action_id: Option<ActionId>,
    /// Plan to run.
    pub plan_id: PlanId,
    /// Inputs, one JSON object for each job.
    #[serde(default)]
    pub inputs: Vec<Box<RawValue>>,
    /// Queue of the jobs. Default: `ready`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueName>,
    /// Priority, -100 to 100. Jobs of a higher one are claimed first.
    #[serde(default, skip_serializing_if = "is_default")]
    pub priority: i32,
    /// Earliest time of a run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_at: Option<Timestamp>,
    /// Earliest time of a run, in seconds from the submission.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_secs: Option<f64>,
    /// True to allow further inputs until the action is closed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub open: bool,
    /// Condition under which agq starts no more of its jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub halt: Option<Halt>,
    /// Maximum number of running jobs, at least 1. Default: no bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_running: Option<u64>,
    /// Maximum rate at which its jobs start. Default: no bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<StartRate>,
    /// Concurrency key of its jobs, instead of the two bounds of the action. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<ConcurrencyKey>,
    /// Uniqueness of its jobs. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unique: Option<UniqueJobs>,
    /// Share of the queue that its jobs belong to. Default: that of the submitter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<ShareName>,
    /// Labels of the submitter, by their names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Quantities that one job uses while it runs, instead of those of the same names in the plan.
    /// An amount of 0 removes that of the plan.
    #[serde(default, skip_serializing_if = "Quantities::is_empty")]
    pub resources: Quantities,
    /// Factor by which a retry wants more memory if the kernel has killed a task for lack of
    /// memory, instead of that of the plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_memory_factor: Option<MemoryFactor>,
}

impl ActionSubmission {
    /// Returns an action with default options.
    pub fn new(plan_id: PlanId, inputs: Vec<Box<RawValue>>) -> Self {
        let (action_id, queue, run_at, delay_secs) = (None, None, None, None);
        Self {
            action_id,
            plan_id,
            inputs,
            queue,
            priority: 0,
            run_at,
            delay_secs,
            open: false,
            halt: None,
            max_running: None,
            rate: None,
            concurrency: None,
            unique: None,
            share: None,
            labels: BTreeMap::new(),
            resources: Quantities::default(),
            retry_memory_factor: None,
        }
    }
}

/// Answer of `ACTION.STATUS`: numbers of jobs by status.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ActionStatus {
    /// The action.
    pub action_id: ActionId,
    /// Plan of the action.
    pub plan_id: PlanId,
    /// Number of all jobs.
    pub total_jobs: u64,
    /// Number of jobs that wait for a worker, a time or a retry.
    pub pending: u64,
    /// Number of jobs that a worker has claimed.
    pub running: u64,
    /// Number of jobs whose tasks all succeeded.
    pub completed: u64,
    /// Number of jobs that failed, in a plan without retries.
    pub failed: u64,
    /// Number of jobs that failed after the retries, or after three lost workers.
    pub dead: u64,
    /// Number of cancelled jobs.
    pub cancelled: u64,
    /// Queue of the jobs.
    pub queue: String,
    /// Priority, -100 to 100. Jobs of a higher one are claimed first.
    pub priority: i32,
    /// True if further inputs may be added.
    pub open: bool,
    /// Time of the submission.
    pub created_at: Timestamp,
    /// Time of the end of the last job; null until then.
    pub completed_jobs_at: Option<Timestamp>,
    /// Number of claimed jobs whose start their workers have reported, left out if 0. A worker
    /// claims jobs ahead, and does not report the start of short jobs.
    #[serde(default, skip_serializing_if = "is_default")]
    pub started: u64,
    /// Halt policy, left out if the action has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub halt: Option<Halt>,
    /// Halt of the action, left out if its policy was not met.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub halted: Option<HaltedStatus>,
    /// Maximum number of running jobs, left out if there is no bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_running: Option<u64>,
    /// Maximum rate at which its jobs start, left out if there is no bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<StartRate>,
    /// Quantities that replace those of the plan, left out if there are none.
    #[serde(default, skip_serializing_if = "Quantities::is_empty")]
    pub resources: Quantities,
    /// Factor of the memory of retries that replaces that of the plan, left out if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_memory_factor: Option<MemoryFactor>,
    /// Concurrency key of its jobs, left out if they have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<ConcurrencyKey>,
    /// Uniqueness of its jobs, left out if it was not asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unique: Option<UniqueJobs>,
    /// Share of the queue that its jobs belong to, left out if the submitter named none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<ShareName>,
    /// Labels of the submitter, left out if there are none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Role and name of the key that submitted the action, as `client:alice`. Left out for the
    /// session key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
}

/// Halt of an action. No further job of it starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HaltedStatus {
    /// Time at which the halt policy was met.
    pub at: Timestamp,
    /// Policy, and the number of jobs that met it.
    pub reason: String,
}

impl ActionStatus {
    /// Returns the number of jobs that will not run again.
    pub fn ended(&self) -> u64 {
        self.completed + self.failed + self.dead + self.cancelled
    }

    /// Returns the number of jobs that ended without success.
    pub fn unsuccessful(&self) -> u64 {
        self.failed + self.dead + self.cancelled
    }
}
