//! An action: one plan, N inputs, N jobs (seed 001 §4).

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::{
    ids::{ActionId, PlanId},
    time::Timestamp,
};

/// What a submitter sends. Each input stays the text it came as.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ActionSubmission {
    /// Its id; agq gives one where it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action_id: Option<ActionId>,
    /// The plan to run.
    pub plan_id: PlanId,
    /// One JSON object a job.
    pub inputs: Vec<Box<RawValue>>,
}

/// What `ACTION.STATUS` answers: how many jobs of the action are where.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActionStatus {
    /// The action.
    pub action_id: ActionId,
    /// Its plan.
    pub plan_id: PlanId,
    /// Jobs in all.
    pub total_jobs: u64,
    /// Waiting: for a worker, a time or a retry.
    pub pending: u64,
    /// Claimed by a worker.
    pub running: u64,
    /// All tasks succeeded.
    pub completed: u64,
    /// Failed where no retry was asked for.
    pub failed: u64,
    /// Failed after the retries, or after three lost workers.
    pub dead: u64,
    /// Cancelled.
    pub cancelled: u64,
    /// When it was submitted.
    pub created_at: Timestamp,
    /// When its last job ended; null until then.
    pub completed_jobs_at: Option<Timestamp>,
}

impl ActionStatus {
    /// Jobs that will not run again.
    pub fn ended(&self) -> u64 {
        self.completed + self.failed + self.dead + self.cancelled
    }

    /// Jobs that ended otherwise than completed.
    pub fn unsuccessful(&self) -> u64 {
        self.failed + self.dead + self.cancelled
    }
}
