//! Explanation of a job that does not run (JOB.EXPLAIN).

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Quantities, Status};
use crate::{
    ids::{JobId, WorkerId},
    time::Timestamp,
};

/// Answer of `JOB.EXPLAIN`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Explanation {
    /// The job.
    pub job_id: JobId,
    /// Status of the job.
    pub status: Status,
    /// Stored state behind the status.
    pub state: String,
    /// Reason why the job does not run, in a sentence.
    pub reason: String,
    /// Conditions for a run; null for a job that waits for nothing.
    pub waits_for: Option<WaitsFor>,
    /// Number of jobs of its queue with the same needs that are claimed before it.
    pub jobs_ahead: u64,
    /// Workers that are nearest to running the job, at most five.
    pub workers: Vec<Nearest>,
}

/// Conditions that have to hold before a job runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WaitsFor {
    /// Queue from which a worker has to claim.
    pub queue: String,
    /// Priority, -100 to 100. Jobs of a higher one are claimed first.
    pub priority: i32,
    /// Programs that the worker has to offer.
    pub tools: Vec<String>,
    /// Pools that the worker has to be in.
    pub tags: Vec<String>,
    /// Labels that the worker has to have.
    pub labels: BTreeMap<String, String>,
    /// Sandbox profile that the worker has to offer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<String>,
    /// Quantities that the worker has to have free; left out if the job needs none.
    #[serde(default, skip_serializing_if = "Quantities::is_empty")]
    pub resources: Quantities,
    /// Earliest time of a run; null if it has passed.
    pub due_at: Option<Timestamp>,
    /// True if the queue has to be resumed with QUEUE.RESUME.
    pub paused: bool,
}

/// Worker, compared with the needs of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Nearest {
    /// The worker.
    pub worker_id: WorkerId,
    /// `active`, `quiet`, `draining`, `terminating`, `quarantined` or `dead`.
    pub state: String,
    /// Missing needs, as `tool jq`, `tag gpu`, `label zone=eu`, or `sandbox profile reader: …` with
    /// the reason and the remedy; empty if the worker could run the job.
    pub missing: Vec<String>,
    /// Number of jobs that the worker holds now.
    pub active_jobs: u64,
    /// Maximum number of concurrent jobs.
    pub max_concurrent_jobs: u32,
}
