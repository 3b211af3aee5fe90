//! What `--json` shows beside what agq itself says: the data of each kind of document. `schema` has all kinds.

use std::{collections::BTreeMap, path::PathBuf};

use agenix_protocol::{
    documents::{ActionStatus, QueueStats, Status, WorkerStatus},
    ids::{ActionId, JobId, PlanId, QueueName, WorkerId},
};
use schemars::JsonSchema;
use serde::Serialize;

/// A plan that is stored, or gone.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct PlanRef {
    pub(crate) plan_id: PlanId,
}

/// A plan that was found good.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct PlanChecked {
    /// True: what is wrong is an error.
    pub(crate) valid: bool,
    pub(crate) plan_id: Option<PlanId>,
    /// How many it has.
    pub(crate) tasks: usize,
    /// The commands that a worker must have, sorted.
    pub(crate) tools: Vec<String>,
    pub(crate) tags: Vec<String>,
    pub(crate) labels: BTreeMap<String, String>,
}

/// An action that was taken.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ActionSubmitted {
    pub(crate) action_id: ActionId,
    pub(crate) jobs_created: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ActionCancelled {
    pub(crate) action_id: ActionId,
    /// Jobs that had not ended.
    pub(crate) cancelled: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ActionRetried {
    pub(crate) action_id: ActionId,
    /// Jobs that wait again.
    pub(crate) retried: u64,
}

/// How the job of an input ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct JobResultSummary {
    pub(crate) status: Status,
    pub(crate) stdout: String,
}

/// An input whose jobs ended differently, or that only one action has.
#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct ResultDifference {
    pub(crate) input: String,
    pub(crate) before: Option<JobResultSummary>,
    pub(crate) after: Option<JobResultSummary>,
}

/// A job that was cancelled, or is tried again.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct JobRef {
    pub(crate) job_id: JobId,
}

/// A command that `agx map --dry-run` would run.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct MapCommand {
    /// The number of the job, from 1.
    pub(crate) seq: u64,
    pub(crate) command: String,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct QueueRef {
    pub(crate) queue: QueueName,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct WorkerRef {
    pub(crate) worker_id: WorkerId,
}

/// How everything stands; only `agq`, and that null, where none is named.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub(crate) struct OverviewDocument {
    /// Its address.
    pub(crate) agq: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) workers: Option<Vec<WorkerStatus>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) queues: Option<QueueStats>,
    /// Those that run, and the last that ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) actions: Option<Vec<ActionStatus>>,
}

/// What `agx doctor` looked at.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Finding {
    pub(crate) what: &'static str,
    pub(crate) is_well: bool,
    pub(crate) found: String,
    /// What to do about it.
    pub(crate) help: Option<String>,
}

/// What `agx up` has started.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Up {
    pub(crate) profile: String,
    pub(crate) agq: String,
    /// Where data, logs and key are.
    pub(crate) directory: PathBuf,
    /// What agq said when it listened.
    pub(crate) says: String,
    /// How many are registered.
    pub(crate) workers: usize,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Down {
    pub(crate) profile: String,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Joined {
    pub(crate) profile: String,
    pub(crate) agq: String,
    /// Whether a worker was started here.
    pub(crate) worker: bool,
}

/// A profile, or a schedule, that is used or gone.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct NameRef {
    pub(crate) name: String,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ProfileSet {
    pub(crate) name: String,
    pub(crate) agq: String,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ProfileListed {
    pub(crate) name: String,
    pub(crate) agq: String,
    pub(crate) in_use: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ScheduleSet {
    pub(crate) name: String,
    pub(crate) next_run_at: String,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct WorkflowBegun {
    pub(crate) workflow_id: String,
    pub(crate) steps: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct WorkflowRef {
    pub(crate) workflow_id: String,
}

/// What went wrong.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ErrorDocument {
    /// For scripts; docs/agx.md has them all.
    pub(crate) code: &'static str,
    pub(crate) message: String,
    /// What to do next.
    pub(crate) help: Option<String>,
    pub(crate) exit_code: u8,
}
