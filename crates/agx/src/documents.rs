//! Documents that agx itself adds to `--json`. `json_schema` lists all kinds of documents.

mod provenance;
mod scale;

use std::collections::BTreeMap;

use agenix_policy::Judgement;
use agenix_protocol::{
    blob::BlobHash,
    documents::{
        ActionStatus, ApprovalState, MissingProperty, Plan, PlanSandbox, QueueStats, Status, WorkerStatus,
    },
    ids::{ActionId, JobId, PlanId, QueueName, WorkerId},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub(crate) use self::{
    provenance::{ProvenanceShown, ProvenanceVerified, TaskProof, TaskStatement},
    scale::{ScaleDirection, ScaleOutcome, ScaleStep},
};

/// A stored or deleted plan.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct PlanRef {
    pub(crate) plan_id: PlanId,
}

/// A valid plan.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct PlanChecked {
    /// Always true, because an invalid plan is an error.
    pub(crate) valid: bool,
    pub(crate) plan_id: Option<PlanId>,
    /// Number of tasks.
    pub(crate) tasks: usize,
    /// Commands that a worker must have, sorted.
    pub(crate) tools: Vec<String>,
    pub(crate) tags: Vec<String>,
    pub(crate) labels: BTreeMap<String, String>,
    /// Sandbox of all tasks, if the plan asks for one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sandbox: Option<PlanSandbox>,
    /// Judgement of the policy of `--policy`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) judgement: Option<Judgement>,
    /// Treatment of the plan by a worker with the trust file of `--trust`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) signature: Option<PlanSignature>,
}

/// Plan that a language model wrote, and that passed the checks.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct PlanAsked {
    pub(crate) plan: Plan,
    pub(crate) check: PlanChecked,
    /// Host that was asked, with its port.
    pub(crate) host: String,
    pub(crate) model: String,
    /// Number of refused plans before this one.
    pub(crate) repairs: u32,
}

/// Treatment of a plan by a worker with a trust file, if the signer of `--as` signs it.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub(crate) struct PlanSignature {
    /// Signer; null for a plan that nobody has signed.
    pub(crate) signer: Option<String>,
    /// True if the plan runs outside of the sandbox.
    pub(crate) full_trust: bool,
    /// Sandbox profile of the signer.
    pub(crate) profile: Option<String>,
    /// Number of approvals that the order needs.
    pub(crate) approvals: usize,
    /// Signers who may approve.
    pub(crate) approvers: Vec<String>,
    /// Field of inputs without a type, for which the worker refuses the order.
    pub(crate) unbound_input: Option<String>,
}

/// A key that signs orders.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct KeyShown {
    pub(crate) name: String,
    /// Id of the key, which envelopes have as a hint.
    pub(crate) keyid: String,
    /// Public key, as trust files name it.
    pub(crate) public_key: String,
    /// Public key before the last rotation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) previous: Option<String>,
}

/// A key that another one has replaced.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct KeyRotated {
    pub(crate) name: String,
    /// New public key.
    pub(crate) public_key: String,
    /// Old public key.
    pub(crate) previous: String,
    /// DSSE envelope in which the old key signs the new one.
    #[schemars(with = "serde_json::Map<String, serde_json::Value>")]
    pub(crate) statement: serde_json::Value,
}

/// A signed order.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct PlanSigned {
    /// DSSE envelope, as `PLAN.SUBMIT` takes it.
    #[schemars(with = "serde_json::Map<String, serde_json::Value>")]
    pub(crate) order: serde_json::Value,
}

/// A valid order.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct PlanVerified {
    /// Always true, because an order that is not valid is an error.
    pub(crate) valid: bool,
    pub(crate) plan_id: Option<PlanId>,
    /// Names of the signers who lend the plan their rights.
    pub(crate) signers: Vec<String>,
    /// Names of the signers who only approve.
    pub(crate) approvers: Vec<String>,
    /// Sandbox profile that the trust file grants; null for plans that run outside of the sandbox.
    pub(crate) profile: Option<String>,
    /// Terms of the order.
    #[schemars(with = "serde_json::Map<String, serde_json::Value>")]
    pub(crate) terms: serde_json::Value,
}

/// A valid policy.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct PolicyChecked {
    /// Always true, because an invalid policy is an error.
    pub(crate) valid: bool,
    /// Tools that plans may run, sorted.
    pub(crate) tools: Vec<String>,
    /// Number of examples in the file, all of which hold.
    pub(crate) examples: usize,
}

/// Verification of the hash chain of an audit log.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct AuditVerified {
    /// True if no line shows a change, and a line has the hash of `--head`.
    pub(crate) fits: bool,
    /// Number of lines with a hash that fit.
    pub(crate) lines: u64,
    /// Number of lines before them that have no hash.
    pub(crate) unchained_lines: u64,
    /// Number of lines that were only written in part.
    pub(crate) torn_lines: u64,
    /// Hash of the line before the first one: 64 zeros if the chain begins with it.
    pub(crate) begins_after: Option<String>,
    /// Hash of the end, or of the last line that fits.
    pub(crate) head: Option<String>,
    /// Number of lines after the hash of `--head`, if a line has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lines_after_head: Option<u64>,
    /// First line that does not fit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) misfit: Option<AuditMisfit>,
}

/// Line of an audit log that does not follow the line before.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct AuditMisfit {
    pub(crate) file: String,
    /// Number of the line in its file, counted from 1.
    pub(crate) line: u64,
    pub(crate) reason: String,
}

/// A submitted action.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ActionSubmitted {
    pub(crate) action_id: ActionId,
    pub(crate) jobs_created: u64,
}

/// An open action with further inputs.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ActionExtended {
    pub(crate) action_id: ActionId,
    /// Number of inputs of the command.
    pub(crate) jobs_created: u64,
    /// Number of jobs that the action has now.
    pub(crate) total_jobs: u64,
}

/// An action that takes no more inputs.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ActionClosed {
    pub(crate) action_id: ActionId,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ActionCancelled {
    pub(crate) action_id: ActionId,
    /// Number of jobs that were cancelled.
    pub(crate) cancelled: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ActionRetried {
    pub(crate) action_id: ActionId,
    /// Number of jobs that are retried.
    pub(crate) retried: u64,
}

/// Result of the job of one input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct JobResultSummary {
    pub(crate) status: Status,
    /// First bytes of stdout.
    pub(crate) stdout: String,
    /// BLAKE3 hash of the whole stdout, if it is larger.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) stdout_blob: Option<BlobHash>,
}

/// An input whose jobs ended differently, or that only one of the actions has.
#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct ResultDifference {
    pub(crate) input: String,
    pub(crate) before: Option<JobResultSummary>,
    pub(crate) after: Option<JobResultSummary>,
}

/// A cancelled, forgotten or retried job.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct JobRef {
    pub(crate) job_id: JobId,
}

/// A command that `agx map --dry-run` would run.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct MapCommand {
    /// Number of the job, counted from 1.
    pub(crate) seq: u64,
    pub(crate) command: String,
    /// Workers that could run the job now, if agq was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) workers: Option<Vec<WorkerId>>,
    /// Sandbox of the tasks, if the command asks for one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sandbox: Option<PlanSandbox>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct QueueRef {
    pub(crate) queue: QueueName,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct WorkerRef {
    pub(crate) worker_id: WorkerId,
}

/// Overview of workers, queues and actions; only `agq`, and that null, if no agq is named.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub(crate) struct OverviewDocument {
    /// Address of agq.
    pub(crate) agq: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) workers: Option<Vec<WorkerStatus>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) queues: Option<QueueStats>,
    /// Running actions, and the latest ended ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) actions: Option<Vec<ActionStatus>>,
}

/// One check of `agx doctor`.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Finding")]
pub(crate) struct DoctorFinding {
    pub(crate) what: &'static str,
    pub(crate) is_well: bool,
    pub(crate) found: String,
    /// Advice.
    pub(crate) help: Option<String>,
    /// Properties of a sandbox on this machine, in the check of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sandbox: Option<MachineSandbox>,
}

/// Properties of a sandbox on this machine.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct MachineSandbox {
    /// Way in which a sandbox keeps its processes together: `namespaces` or `subreaper`; null if no
    /// sandbox can start.
    pub(crate) regime: Option<String>,
    /// True if the machine can enforce the profile `reader`.
    #[serde(default)]
    pub(crate) enforces_reader: bool,
    /// Properties that the machine enforces, with the mechanism of each.
    pub(crate) enforced: BTreeMap<String, String>,
    /// Properties that the machine cannot enforce.
    pub(crate) missing: BTreeMap<String, MissingProperty>,
}

/// Processes that `agx up` started.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Up {
    pub(crate) profile: String,
    pub(crate) agq: String,
    /// Directory of data, logs and key.
    pub(crate) directory: String,
    /// First line that agq printed.
    pub(crate) says: String,
    /// Number of registered workers.
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
    /// True if a worker was started on this machine.
    pub(crate) worker: bool,
}

/// A decision about a plan that waited for approval.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct PlanDecided {
    pub(crate) plan_id: PlanId,
    pub(crate) state: ApprovalState,
    /// Number of jobs that were released or cancelled.
    pub(crate) jobs: u64,
}

/// A profile or schedule that is in use or removed.
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

/// An error.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ErrorDocument {
    /// Word for scripts; docs/agx.md lists all of them.
    pub(crate) code: &'static str,
    pub(crate) message: String,
    /// Advice.
    pub(crate) help: Option<String>,
    pub(crate) exit_code: u8,
}
