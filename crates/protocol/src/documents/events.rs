//! Events on the channels `job:updates` and `worker:updates`. The messages of `action:updates:<id>`
//! are answers of `ACTION.STATUS`.

use serde::{Deserialize, Serialize};

use super::Status;
use crate::{
    ids::{ActionId, JobId, PlanId, WorkerId},
    time::Timestamp,
};

/// Channel of the events of all jobs.
pub const JOB_UPDATES: &str = "job:updates";
/// Channel of the events of all workers.
pub const WORKER_UPDATES: &str = "worker:updates";

/// Returns the channel of the events of an action.
pub fn action_updates(action_id: &ActionId) -> String {
    format!("action:updates:{action_id}")
}

/// Event of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobEvent {
    /// The job.
    pub job_id: JobId,
    /// Action of the job.
    pub action_id: ActionId,
    /// Plan of the job.
    pub plan_id: PlanId,
    /// Current status.
    pub status: Status,
    /// Stored state behind the status.
    pub state: String,
    /// Number of claims so far.
    pub attempt: u32,
    /// Current or last worker.
    pub worker_id: Option<String>,
    /// Time of publication.
    pub at: Timestamp,
    /// Number of the running task, if the worker reported it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_task: Option<u32>,
    /// Progress, 0 to 100, if the worker reported it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress_percent: Option<f32>,
}

/// Event of a worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerEvent {
    /// The worker.
    pub worker_id: WorkerId,
    /// `registered`, `unregistered`, `dead`, `draining`, `resumed`, `terminating` or `quarantined`.
    pub event: String,
    /// Time of publication.
    pub at: Timestamp,
}
