//! Provenance of a task: an in-toto statement with a predicate of SLSA, which a worker signs.

use std::collections::BTreeMap;

use agenix_protocol::{
    blob::OutputStream,
    documents::{TaskAdmission, TaskResult, TaskSandbox, parse_object, to_json},
    ids::{JobId, PlanId},
    time::Timestamp,
};
use serde::{Deserialize, Serialize};

use crate::{
    digest::DigestSet,
    dsse::{Envelope, SignatureKind},
    error::InvalidStatement,
    key::SigningKey,
    trust::TrustFile,
};

/// Type of the payload of an envelope that has a statement.
pub const STATEMENT_PAYLOAD_TYPE: &str = "application/vnd.in-toto+json";
const STATEMENT_TYPE: &str = "https://in-toto.io/Statement/v1";
const PREDICATE_TYPE: &str = "https://slsa.dev/provenance/v1";
/// Type of the build: one task of a job.
const BUILD_TYPE: &str = concat!(env!("CARGO_PKG_REPOSITORY"), "/provenance/task/v1");

/// Statement of a worker about one task: what ran, and which bytes it wrote.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Statement {
    #[serde(rename = "_type")]
    statement_type: String,
    /// Streams of the task.
    pub subject: Vec<Subject>,
    #[serde(rename = "predicateType")]
    predicate_type: String,
    /// Provenance.
    pub predicate: Provenance,
}

/// Bytes that the task wrote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subject {
    /// Name, as `stdout`.
    pub name: String,
    /// Digest of the bytes.
    pub digest: DigestSet,
    /// Numbers of bytes.
    pub annotations: StreamBytes,
}

/// Numbers of bytes of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamBytes {
    /// Bytes that the digest covers: the first ones of the stream.
    pub bytes: u64,
    /// All bytes that the task wrote to the stream.
    pub total: u64,
}

/// Predicate of SLSA.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Provenance {
    /// Command, its program and its input.
    pub build_definition: BuildDefinition,
    /// The run.
    pub run_details: RunDetails,
}

/// Command, its program and its input.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BuildDefinition {
    build_type: String,
    /// Parameters that others chose.
    pub external_parameters: TaskIdentity,
    /// Parameters that the worker chose or found.
    pub internal_parameters: TaskRun,
    /// Program and order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resolved_dependencies: Vec<Resource>,
}

/// Identity of a task, and its input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskIdentity {
    /// Plan.
    pub plan_id: PlanId,
    /// Job.
    pub job_id: JobId,
    /// Claim of the job.
    pub attempt: u32,
    /// Number of the task, from 1.
    pub task_number: u32,
    /// Number of tasks of the plan.
    pub task_count: u32,
    /// SHA-256 of the text of the input, in hexadecimal digits.
    pub input_sha256: String,
}

/// Command of a task, and the conditions of its run, without the values of the environment.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TaskRun {
    /// Program and arguments, with all placeholders filled in. Absent if the arguments are large.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub argv: Option<Vec<String>>,
    /// Working directory, if the plan names one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Sandbox in which the task ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<TaskSandbox>,
    /// Policy and order by which the task ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admission: Option<TaskAdmission>,
}

/// File or text on which the run depends, or that describes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resource {
    /// Name, as `program`.
    pub name: String,
    /// Place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uri: Option<String>,
    /// Digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<DigestSet>,
}

/// The run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunDetails {
    /// Worker.
    pub builder: Builder,
    /// Times.
    pub metadata: RunMetadata,
    /// End of the task.
    pub byproducts: Vec<TaskEnd>,
}

/// Worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Builder {
    /// URI with the id of the worker.
    pub id: String,
    /// Versions of programs by their names.
    pub version: BTreeMap<String, String>,
}

/// Times of a run, by the clock of the worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunMetadata {
    /// URI of the run of the task.
    pub invocation_id: String,
    /// Start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_on: Option<Timestamp>,
    /// End.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_on: Option<Timestamp>,
}

/// End of a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskEnd {
    /// Name: `end`.
    pub name: String,
    /// URI of the run of the task.
    pub uri: String,
    /// Fields of the result.
    pub annotations: ExitAnnotations,
}

/// Fields of a task result about the end of the task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExitAnnotations {
    /// Command of the task.
    pub command: String,
    /// Exit code.
    pub exit_code: i32,
    /// Signal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// True if a timeout ended the task.
    pub timed_out: bool,
    /// True if the exit code does not count.
    pub ignored: bool,
}

impl Subject {
    /// Returns the name of a stream.
    pub fn name_of(stream: OutputStream) -> String {
        stream.as_str().to_owned()
    }

    /// Returns the name of the first bytes of a stream that does not fit into a task result.
    pub fn name_of_first(stream: OutputStream) -> String {
        format!("{}.first", stream.as_str())
    }
}

impl ExitAnnotations {
    /// Returns the fields of a result.
    pub fn of(result: &TaskResult) -> Self {
        let TaskResult { command, exit_code, signal, timed_out, ignored, .. } = result;
        let command = command.clone();
        Self { command, exit_code: *exit_code, signal: *signal, timed_out: *timed_out, ignored: *ignored }
    }
}

/// Facts of a worker about the run of a task, for [`Statement::of`].
#[derive(Debug, Clone)]
pub struct TaskFacts {
    /// Identity of the task.
    pub identity: TaskIdentity,
    /// Command and conditions.
    pub run: TaskRun,
    /// Program and order.
    pub dependencies: Vec<Resource>,
    /// Id of the worker.
    pub worker: String,
    /// Version of agw.
    pub version: String,
    /// Start of the task, if it was started.
    pub started: Option<Timestamp>,
    /// Run time in milliseconds.
    pub duration_ms: u64,
    /// End of the task.
    pub end: ExitAnnotations,
    /// Streams.
    pub subject: Vec<Subject>,
}

impl Statement {
    /// Returns the statement of a worker about a task.
    pub fn of(facts: TaskFacts) -> Self {
        let TaskFacts { identity, run, dependencies, worker, version, started, duration_ms, end, subject } =
            facts;
        let TaskIdentity { job_id, attempt, task_number, .. } = &identity;
        let uri = format!("agenix:job/{job_id}/attempt/{attempt}/task/{task_number}");
        let metadata = RunMetadata {
            invocation_id: uri.clone(),
            started_on: started,
            finished_on: started.map(|started| started.plus_ms(duration_ms)),
        };
        let id = format!("agenix:worker/{worker}");
        let builder = Builder { id, version: BTreeMap::from([("agw".to_owned(), version)]) };
        let byproducts = vec![TaskEnd { name: "end".into(), uri, annotations: end }];
        Self {
            statement_type: STATEMENT_TYPE.into(),
            subject,
            predicate_type: PREDICATE_TYPE.into(),
            predicate: Provenance {
                build_definition: BuildDefinition {
                    build_type: BUILD_TYPE.into(),
                    external_parameters: identity,
                    internal_parameters: run,
                    resolved_dependencies: dependencies,
                },
                run_details: RunDetails { builder, metadata, byproducts },
            },
        }
    }

    /// Returns the envelope of the statement with the signature of a key.
    pub fn sign(&self, key: &SigningKey) -> Envelope {
        let payload = to_json(self).into_bytes();
        let payload_type = STATEMENT_PAYLOAD_TYPE.into();
        let mut envelope = Envelope { payload_type, payload, signatures: Vec::new() };
        envelope.sign(key, SignatureKind::Order);
        envelope
    }

    /// Returns the statement of an envelope, and the name that the trust file gives to the key of
    /// the worker.
    ///
    /// # Errors
    ///
    /// Returns [`InvalidStatement`] for a payload of another type, without a signature of a worker
    /// of the trust file, and for other JSON.
    pub fn open(envelope: &Envelope, trust: &TrustFile) -> Result<(Self, String), InvalidStatement> {
        let statement_type = &envelope.payload_type;
        if statement_type != STATEMENT_PAYLOAD_TYPE {
            return Err(InvalidStatement::PayloadType(statement_type.chars().take(80).collect()));
        }
        let mut revoked = None;
        for signature in &envelope.signatures {
            match envelope.signer(signature, trust.worker_keys()) {
                Some((worker, SignatureKind::Order)) if !trust.is_revoked_key(&worker.key) => {
                    // Unsigned bytes are not read.
                    return Ok((Self::read(envelope)?, worker.name.clone()));
                }
                Some((worker, SignatureKind::Order)) => revoked = Some(worker.name.clone()),
                Some((_, SignatureKind::Approval)) | None => {}
            }
        }
        Err(revoked.map_or(InvalidStatement::Untrusted(envelope.hints()), InvalidStatement::RevokedKey))
    }

    /// Returns the statement of an envelope, without verification of the signatures.
    ///
    /// # Errors
    ///
    /// Returns [`InvalidStatement`] for other JSON, and for a statement of another type.
    pub fn read(envelope: &Envelope) -> Result<Self, InvalidStatement> {
        let statement: Self =
            parse_object(&envelope.payload).map_err(|error| InvalidStatement::Json(error.to_string()))?;
        for (found, expected) in [
            (&statement.statement_type, STATEMENT_TYPE),
            (&statement.predicate_type, PREDICATE_TYPE),
            (&statement.predicate.build_definition.build_type, BUILD_TYPE),
        ] {
            if found != expected {
                let found = found.chars().take(200).collect();
                return Err(InvalidStatement::OtherType { found, expected });
            }
        }
        Ok(statement)
    }

    /// Returns the identity of the task.
    pub fn identity(&self) -> &TaskIdentity {
        &self.predicate.build_definition.external_parameters
    }

    /// Returns the subject with a name.
    pub fn subject(&self, name: &str) -> Option<&Subject> {
        self.subject.iter().find(|subject| subject.name == name)
    }

    /// Returns the end of the task.
    pub fn end(&self) -> Option<&ExitAnnotations> {
        self.predicate.run_details.byproducts.first().map(|end| &end.annotations)
    }

    /// Returns the program or another dependency with a name.
    pub fn dependency(&self, name: &str) -> Option<&Resource> {
        let dependencies = &self.predicate.build_definition.resolved_dependencies;
        dependencies.iter().find(|resource| resource.name == name)
    }
}
