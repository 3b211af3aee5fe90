//! Documents of `agx provenance`.

use agenix_order::{Statement, Subject};
use agenix_protocol::{
    documents::{DsseEnvelope, TaskAdmission},
    ids::{JobId, PlanId},
};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

/// Statements of the worker about the tasks of a job, which are not verified.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ProvenanceShown {
    pub(crate) job_id: JobId,
    pub(crate) statements: Vec<TaskStatement>,
}

/// Statement about a task.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct TaskStatement {
    pub(crate) task_number: u32,
    /// Statement of in-toto.
    #[schemars(with = "Map<String, Value>")]
    pub(crate) statement: Statement,
    /// Signed envelope of the statement.
    pub(crate) envelope: DsseEnvelope,
}

/// Statements whose signatures are valid.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ProvenanceVerified {
    pub(crate) valid: bool,
    /// True if the outputs in agq are the signed ones; false if only statements were verified.
    pub(crate) compared: bool,
    pub(crate) tasks: Vec<TaskProof>,
}

/// Facts that the worker has signed about a task.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct TaskProof {
    pub(crate) plan_id: PlanId,
    pub(crate) job_id: JobId,
    pub(crate) attempt: u32,
    pub(crate) task_number: u32,
    /// Number of tasks of the plan.
    pub(crate) task_count: u32,
    pub(crate) command: String,
    pub(crate) exit_code: i32,
    /// Name of the worker whose key has signed, from the trust file.
    pub(crate) worker: String,
    /// Program, if the task was started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) program: Option<ProvenProgram>,
    /// Policy and order by which the task ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) admission: Option<TaskAdmission>,
    /// Profile of the sandbox, if the task ran in one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) profile: Option<String>,
    pub(crate) streams: Vec<ProvenStream>,
}

/// Program of a task.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ProvenProgram {
    pub(crate) uri: String,
    /// SHA-256 of the file, if the worker could read it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sha256: Option<String>,
}

/// Bytes that a task wrote.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ProvenStream {
    pub(crate) name: String,
    pub(crate) sha256: String,
    /// Number of bytes that the hash covers: the first ones of the stream.
    pub(crate) bytes: u64,
    /// Number of all bytes of the stream.
    pub(crate) total: u64,
}

impl TaskProof {
    /// Returns the facts of a statement, signed by the key of `worker`.
    pub(crate) fn of(statement: &Statement, worker: String) -> Self {
        let (identity, end) = (statement.identity(), statement.end());
        let run = &statement.predicate.build_definition.internal_parameters;
        let program = statement.dependency("program").map(|program| ProvenProgram {
            uri: program.uri.clone().unwrap_or_default(),
            sha256: program.digest.as_ref().map(|digest| digest.sha256.clone()),
        });
        let stream = |Subject { name, digest, annotations }: &Subject| ProvenStream {
            name: name.clone(),
            sha256: digest.sha256.clone(),
            bytes: annotations.bytes,
            total: annotations.total,
        };
        Self {
            plan_id: identity.plan_id.clone(),
            job_id: identity.job_id.clone(),
            attempt: identity.attempt,
            task_number: identity.task_number,
            task_count: identity.task_count,
            command: end.map(|end| end.command.clone()).unwrap_or_default(),
            exit_code: end.map(|end| end.exit_code).unwrap_or_default(),
            worker,
            program,
            admission: run.admission.clone(),
            profile: run.sandbox.as_ref().map(|sandbox| sandbox.profile.clone()),
            streams: statement.subject.iter().map(stream).collect(),
        }
    }
}
