//! JSON documents of the wire: submissions, jobs for workers, reports of workers, and answers to
//! queries.

mod action;
mod admission;
mod approval;
mod backup;
mod budget;
mod capability;
mod concurrency_key;
mod directives;
mod envelope;
mod events;
mod explain;
mod halt;
mod input_type;
mod job;
mod memory_factor;
mod ojs;
mod output;
mod plan;
mod plans;
mod quantities;
mod queue;
mod resource_use;
mod resource_variable;
mod sandbox;
mod secret;
mod start_rate;
mod strict;
mod task_result;
mod unique_jobs;
mod worker;

use serde::de::DeserializeOwned;

pub use action::{ActionStatus, ActionSubmission, HaltedStatus};
pub use admission::TaskAdmission;
pub use approval::{Approval, ApprovalScope, ApprovalState};
pub use backup::{BACKUP_CHUNK_BYTES, BackupBegun};
pub use budget::{AmountStatus, BudgetStatus};
pub use capability::{CapabilityList, OfferedProgram};
pub use concurrency_key::ConcurrencyKey;
pub use directives::{Challenge, ChallengeAnswer, Directives};
pub use envelope::{DsseEnvelope, DsseSignature};
pub use events::{JOB_UPDATES, JobEvent, WORKER_UPDATES, WorkerEvent, action_updates};
pub use explain::{Explanation, Nearest, WaitsFor};
pub use halt::{Halt, HaltCondition, HaltParseError, HaltThreshold};
pub use input_type::InputType;
pub use job::{JobDocument, JobStatus, JobUpdate, Status};
pub use memory_factor::{BadMemoryFactor, MemoryFactor};
pub use ojs::{
    OJS_MEDIA_TYPE, OJS_VERSION, OjsAck, OjsDocument, OjsEnqueue, OjsError, OjsFault, OjsFetch, OjsHeartbeat,
    OjsJob, OjsNack, OjsObject, OjsOptions, OjsProgress, OjsRegistration,
};
pub use output::{
    JobOutput, OutputCall, OutputChunk, OutputPosition, OutputRequest, TaskOutput, TaskPosition, TaskStream,
    WithdrawCall,
};
pub use plan::{PROGRAM_PATHS, Plan, PlanStatus, Requires, STDERR_TO_STDOUT, Task};
pub use plans::PlanCache;
pub use quantities::{
    BadQuantity, CPUS, GPUS, HUNDREDTHS, MAX_AMOUNT, MAX_CPUS, MAX_MEMORY_BYTES, MAX_RESOURCES, MEMORY,
    Quantities, amount_text, parse_amount,
};
pub use queue::{Demand, QueueStats, ReadyStats, ScheduledStats, WorkerCounts};
pub use resource_use::{MemoryLimit, MemoryLimitKind, ResourceUse};
pub use resource_variable::{SameVariable, check_resource_variables, resource_variable};
pub use sandbox::{
    MissingProperty, PlanSandbox, TaskSandbox, WorkerSandbox, is_profile_name, profile_of_sandbox_tag,
    sandbox_tag,
};
pub use secret::{secret_of_tag, secret_tag};
pub use start_rate::{BadStartRate, StartRate};
pub use strict::{MAX_DEPTH, check_depth, check_fields};
pub use task_result::{CapturedOutput, TaskResult};
pub use unique_jobs::{UniqueConflict, UniqueJobs};
pub use worker::{Capabilities, DrainMark, WorkerRegistration, WorkerStatus};

/// Error of a document: the place, and then the reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadDocument(String);

/// Parses JSON. The error names the place: ``tasks[1].comand: unknown field `comand` …``.
pub fn parse<T: DeserializeOwned>(json: &[u8]) -> Result<T, BadDocument> {
    // Tracking the place of a field is slow, so only an invalid document is parsed with the
    // tracking.
    serde_json::from_slice(json).or_else(|_| parse_with_place(json))
}

fn parse_with_place<T: DeserializeOwned>(json: &[u8]) -> Result<T, BadDocument> {
    let mut from = serde_json::Deserializer::from_slice(json);
    let value = serde_path_to_error::deserialize(&mut from).map_err(|error| {
        let path = error.path().to_string();
        let reason = error.into_inner();
        if path == "." || path == "?" {
            BadDocument(reason.to_string())
        } else {
            BadDocument(format!("{path}: {reason}"))
        }
    })?;
    from.end().map_err(|error| BadDocument(error.to_string()))?;
    Ok(value)
}

/// Parses a JSON object. For other JSON, the error demands an object, and names no field.
pub fn parse_object<T: DeserializeOwned>(json: &[u8]) -> Result<T, BadDocument> {
    if json.trim_ascii_start().first() != Some(&b'{') {
        return Err(BadDocument("it is not a JSON object, which begins with {".into()));
    }
    parse(json)
}

/// Returns a document as JSON text.
pub fn to_json<T: serde::Serialize>(document: &T) -> String {
    serde_json::to_string(document).expect("documents have text keys and no fallible parts")
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Returns true if a JSON text is an object. Reads only the first character of the text.
pub fn is_object(json: &str) -> bool {
    json.trim_start().starts_with('{')
}
