//! Why a job is not running (JOB.EXPLAIN).

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Status;
use crate::{
    ids::{JobId, WorkerId},
    time::Timestamp,
};

/// What `JOB.EXPLAIN` answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Explanation {
    /// The job.
    pub job_id: JobId,
    /// Where it stands.
    pub status: Status,
    /// The stored state behind the status.
    pub state: String,
    /// A sentence: what it waits for, or that it waits for nothing.
    pub reason: String,
    /// What a worker must have and bring about; null for a job that waits for nothing.
    pub waits_for: Option<WaitsFor>,
    /// Jobs of its queue that are claimed before it, among those with the same needs.
    pub jobs_ahead: u64,
    /// The workers that come nearest, at most five.
    pub workers: Vec<Nearest>,
}

/// What must be there before a job runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WaitsFor {
    /// A worker that takes jobs of this queue.
    pub queue: String,
    /// -100 to 100; jobs of a higher one are claimed first.
    pub priority: i32,
    /// These programs.
    pub tools: Vec<String>,
    /// These pools.
    pub tags: Vec<String>,
    /// These labels.
    pub labels: BTreeMap<String, String>,
    /// This time; null where it has come.
    pub due_at: Option<Timestamp>,
    /// QUEUE.RESUME of its queue.
    pub paused: bool,
}

/// A worker, and what it lacks for a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Nearest {
    /// The worker.
    pub worker_id: WorkerId,
    /// `active`, `quiet`, `draining`, `terminating`, `quarantined` or `dead`.
    pub state: String,
    /// What it lacks, as `tool jq`, `tag gpu`, `label zone=eu`; empty where it could run the job.
    pub missing: Vec<String>,
    /// Jobs that it holds now.
    pub active_jobs: u64,
    /// How many it runs at once.
    pub max_concurrent_jobs: u32,
}
