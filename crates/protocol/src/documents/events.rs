//! What is published when something happens: on `job:updates` and `worker:updates`. On `action:updates:<id>` it is the
//! action's status.

use serde::{Deserialize, Serialize};

use super::Status;
use crate::{
    ids::{ActionId, JobId, PlanId, WorkerId},
    time::Timestamp,
};

/// The channel of every job's events.
pub const JOB_UPDATES: &str = "job:updates";
/// The channel of every worker's events.
pub const WORKER_UPDATES: &str = "worker:updates";

/// The channel of an action's events.
pub fn action_updates(action_id: &ActionId) -> String {
    format!("action:updates:{action_id}")
}

/// Something happened to a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobEvent {
    /// The job.
    pub job_id: JobId,
    /// The action it belongs to.
    pub action_id: ActionId,
    /// The plan it runs.
    pub plan_id: PlanId,
    /// Where it stands now.
    pub status: Status,
    /// The stored state behind the status.
    pub state: String,
    /// How often it was claimed.
    pub attempt: u32,
    /// The worker that has it, or had it last.
    pub worker_id: Option<String>,
    /// When agq published this.
    pub at: Timestamp,
    /// The task that runs now, as far as the worker said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_task: Option<u32>,
    /// 0 to 100, as far as the worker said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress_percent: Option<f32>,
}

/// Something happened to a worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerEvent {
    /// The worker.
    pub worker_id: WorkerId,
    /// `registered`, `unregistered`, `dead`, `draining`, `resumed`, `terminating` or `quarantined`.
    pub event: String,
    /// When.
    pub at: Timestamp,
}
