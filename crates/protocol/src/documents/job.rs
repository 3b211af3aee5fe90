//! Jobs: one run of a plan on one input (AGQ API spec §3).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{Quantities, TaskResult};
use crate::{
    ids::{ActionId, JobId, PlanId, WorkerId},
    time::Timestamp,
};

/// Status of a job as RESP shows it (AGQ API spec §3, extended by `cancelled`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the names say it")]
pub enum Status {
    Pending,
    Running,
    Completed,
    Failed,
    Dead,
    Cancelled,
}

impl Status {
    /// Returns the word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Dead => "dead",
            Self::Cancelled => "cancelled",
        }
    }

    /// Parses the word on the wire.
    pub fn parse(word: &str) -> Option<Self> {
        let all = [Self::Pending, Self::Running, Self::Completed, Self::Failed, Self::Dead, Self::Cancelled];
        all.into_iter().find(|status| status.as_str() == word)
    }

    /// Returns true if a job of this status will not run again by itself.
    pub fn is_ended(self) -> bool {
        !matches!(self, Self::Pending | Self::Running)
    }
}

/// Job that `BRPOP queue:ready` gives a worker.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct JobDocument {
    /// The job.
    pub job_id: JobId,
    /// Action of the job.
    pub action_id: ActionId,
    /// Plan of the job.
    pub plan_id: PlanId,
    /// Document of the plan.
    pub plan: Box<RawValue>,
    /// Input of the job.
    pub inputs: Box<RawValue>,
    /// Number of this claim, from 1. An update with this number is refused for any other claim.
    pub attempt: u32,
    /// Trace of the job (`traceparent` of W3C Trace Context), if it was submitted with one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// Maximum number of bytes of the output of all tasks, if the budget of the submitter has one.
    /// A worker ends a job that exceeds the maximum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output_bytes: Option<u64>,
    /// Maximum processor time of all tasks, in milliseconds, if the budget of the submitter has
    /// one. A worker ends the job before it exceeds the maximum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_cpu_ms: Option<u64>,
    /// Envelope of the signed order that has the plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<Box<RawValue>>,
    /// Quantities of the worker that the job uses while it runs.
    #[serde(default, skip_serializing_if = "Quantities::is_empty")]
    pub resources: Quantities,
}

/// Report of a worker with `JOB.UPDATE`. Unknown fields are ignored, because workers may have
/// further fields.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct JobUpdate {
    /// `running`, `completed`, `failed`, or `cancelled` for an unstarted job. Left out to report
    /// progress only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
    /// Reporter, on a connection that has not named its worker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker_id: Option<WorkerId>,
    /// Number of the claim that the report is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// Start by the clock of the worker. agq uses its own clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// End by the clock of the worker. agq uses its own clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<Timestamp>,
    /// Failure by the clock of the worker. agq uses its own clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_at: Option<Timestamp>,
    /// Number of the running task, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current_task: Option<u32>,
    /// Progress, 0 to 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress_percent: Option<f32>,
    /// Reason of a failure, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Array of [`TaskResult`], stored as the worker sent it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_results: Option<Box<RawValue>>,
}

/// Answer of `JOB.STATUS`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct JobStatus {
    /// The job.
    pub job_id: JobId,
    /// Action of the job.
    pub action_id: ActionId,
    /// Plan of the job.
    pub plan_id: PlanId,
    /// Status of the job.
    pub status: Status,
    /// Stored state behind the status.
    pub state: String,
    /// Position of the input in the action, from 0.
    pub index: u64,
    /// Number of claims so far.
    pub attempt: u32,
    /// Queue of the job.
    pub queue: String,
    /// Priority, -100 to 100. Jobs of a higher one are claimed first.
    pub priority: i32,
    /// Quantities that its present or next attempt uses, left out if there are none.
    #[serde(default, skip_serializing_if = "Quantities::is_empty")]
    pub resources: Quantities,
    /// Time of the submission.
    pub created_at: Timestamp,
    /// Time at which a waiting job becomes available by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_at: Option<Timestamp>,
    /// Time of the last claim; null before the first.
    pub started_at: Option<Timestamp>,
    /// Time of the end; null until then.
    pub completed_at: Option<Timestamp>,
    /// Milliseconds that the job was available before its last claim. Left out while it waits, and
    /// if it is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_wait_ms: Option<u64>,
    /// Current or last worker.
    pub worker_id: Option<String>,
    /// Role and name of the key that submitted the job, as `client:alice`. Left out for the session
    /// key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Number of the running task, if the worker reported it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_task: Option<u32>,
    /// Progress, 0 to 100, if the worker reported it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress_percent: Option<f32>,
    /// Reason of the failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Input of the job.
    #[schemars(with = "serde_json::Map<String, serde_json::Value>")]
    pub inputs: Box<RawValue>,
    /// Exit code of the task that failed, otherwise of the last task that ran (RESP spec).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Stdout of the last task, when the job completed (RESP spec).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdout: Option<String>,
    /// Stderr of the task that failed, when the job failed (RESP spec).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr: Option<String>,
    /// Results of the tasks of the last ended attempt; null before its end, and during another
    /// attempt.
    #[schemars(with = "Option<Vec<TaskResult>>")]
    pub task_results: Option<Box<RawValue>>,
}

impl JobStatus {
    /// Returns the results of the tasks, or no results if `task_results` does not have the form of
    /// agw.
    pub fn results(&self) -> Vec<TaskResult> {
        let raw = self.task_results.as_deref().map_or("[]", RawValue::get);
        serde_json::from_str(raw).unwrap_or_default()
    }
}
