//! An action: one plan, N inputs, N jobs (AGQ API spec §4).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::Halt;
use crate::{
    ids::{ActionId, PlanId, QueueName},
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
    #[serde(default)]
    pub inputs: Vec<Box<RawValue>>,
    /// The queue its jobs wait in (default `ready`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueName>,
    /// -100 to 100; jobs of a higher one are claimed first.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub priority: i32,
    /// When its jobs may run at the earliest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_at: Option<Timestamp>,
    /// The same, in seconds from its submission.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_secs: Option<f64>,
    /// Whether more inputs may be added until it is closed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub open: bool,
    /// Condition under which agq starts no more of its jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub halt: Option<Halt>,
}

impl ActionSubmission {
    /// An action without wishes: agq names it, and its jobs run as soon as they can.
    pub fn new(plan_id: PlanId, inputs: Vec<Box<RawValue>>) -> Self {
        let (action_id, queue, run_at, delay_secs) = (None, None, None, None);
        Self { action_id, plan_id, inputs, queue, priority: 0, run_at, delay_secs, open: false, halt: None }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
fn is_zero(number: &i32) -> bool {
    *number == 0
}

/// What `ACTION.STATUS` answers: how many jobs of the action are where.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
    /// The queue its jobs wait in.
    pub queue: String,
    /// -100 to 100; jobs of a higher one are claimed first.
    pub priority: i32,
    /// Whether more inputs may be added.
    pub open: bool,
    /// When it was submitted.
    pub created_at: Timestamp,
    /// When its last job ended; null until then.
    pub completed_jobs_at: Option<Timestamp>,
    /// Number of claimed jobs whose start their workers have reported, left out if 0. A worker
    /// claims jobs ahead, and does not report the start of short jobs.
    #[serde(default, skip_serializing_if = "is_none_started")]
    pub started: u64,
    /// Its halt policy, left out if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub halt: Option<Halt>,
    /// Its halt, left out if its policy was not met.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub halted: Option<HaltedStatus>,
}

/// The halt of an action: no further job of it starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HaltedStatus {
    /// When its halt policy was met.
    pub at: Timestamp,
    /// The policy, and the number of jobs that met it.
    pub reason: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
fn is_none_started(count: &u64) -> bool {
    *count == 0
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
