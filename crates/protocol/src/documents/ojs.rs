//! Documents of the Open Job Spec over HTTP (the OJS worker spec, ojs-http-binding). Requests may
//! have unknown fields, because workers are written in any language. Answers leave out missing
//! values.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, value::RawValue};

use crate::{ids::JobId, time::Timestamp};

/// Supported version of the specification.
pub const OJS_VERSION: &str = "1.0";
/// Media type of every answer but `/metrics`.
pub const OJS_MEDIA_TYPE: &str = "application/openjobspec+json";

/// Fields of a job, each as the submitter wrote it.
pub type OjsDocument = BTreeMap<String, Box<RawValue>>;

/// Job as agq shows it.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "the names are the specification's, and say it")]
pub struct OjsJob {
    pub specversion: &'static str,
    #[schemars(with = "String")]
    pub id: JobId,
    #[serde(rename = "type")]
    pub job_type: String,
    pub state: &'static str,
    pub queue: String,
    #[schemars(with = "Value")]
    pub args: Box<RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Value>")]
    pub meta: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Value>")]
    pub tags: Option<Box<RawValue>>,
    pub priority: i32,
    /// Number of times the job was fetched.
    pub attempt: u32,
    pub max_attempts: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub visibility_timeout_ms: Option<u64>,
    #[schemars(with = "String")]
    pub created_at: Timestamp,
    #[schemars(with = "String")]
    pub enqueued_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub scheduled_at: Option<Timestamp>,
    /// Expiry as submitted, if it was a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub started_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub completed_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub cancelled_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub discarded_at: Option<Timestamp>,
    /// Time of the next attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub next_attempt_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_delay_ms: Option<u64>,
    /// Last failure, until the job succeeds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<OjsError>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<OjsError>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Value>")]
    pub result: Option<Box<RawValue>>,
    /// Progress, from 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workflow_id: Option<String>,
    /// Current or last worker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker_id: Option<String>,
    /// Action of the job.
    pub action_id: String,
    /// Options and fields that agq does not know, as submitted.
    #[serde(flatten)]
    #[schemars(skip)]
    pub others: OjsDocument,
}

/// Failure of a job.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the names are the specification's, and say it")]
pub struct OjsError {
    pub code: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub message: String,
    pub attempt: u32,
    #[schemars(with = "String")]
    pub occurred_at: Timestamp,
    pub retryable: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Value>")]
    pub details: Option<Box<RawValue>>,
}

/// Request of `POST workers/fetch` and `POST jobs/fetch`.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
pub struct OjsFetch {
    /// Queues in the order in which they are tried, at least one.
    pub queues: Vec<String>,
    /// Maximum number of jobs; default 1.
    pub count: Option<u64>,
    /// Worker that fetches.
    pub worker_id: Option<String>,
    /// Visibility timeout of the jobs, in milliseconds.
    pub visibility_timeout_ms: Option<u64>,
    /// Maximum wait for the first job, in milliseconds (extension of agq).
    pub wait_ms: Option<u64>,
}

/// Request of `POST workers/ack` and `POST jobs/{id}/ack`.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
pub struct OjsAck {
    /// Job, not needed if the path names it.
    pub job_id: Option<String>,
    /// Result, any JSON.
    #[schemars(with = "Option<Value>")]
    pub result: Option<Box<RawValue>>,
    /// Worker that reports.
    pub worker_id: Option<String>,
    /// Attempt of the report (extension of agq).
    pub attempt: Option<u32>,
}

/// Request of `POST workers/nack` and `POST jobs/{id}/nack`.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
pub struct OjsNack {
    /// Job, not needed if the path names it.
    pub job_id: Option<String>,
    /// Error of the attempt.
    pub error: Option<OjsFault>,
    /// True to give the job back without a failure.
    pub requeue: Option<bool>,
    /// Worker that reports.
    pub worker_id: Option<String>,
    /// Attempt of the report (extension of agq).
    pub attempt: Option<u32>,
}

/// Error as a worker reports it.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the names are the specification's, and say it")]
pub struct OjsFault {
    pub code: Option<String>,
    #[serde(rename = "type")]
    pub kind: Option<String>,
    pub message: Option<String>,
    pub retryable: Option<bool>,
    #[schemars(with = "Option<Value>")]
    pub details: Option<Box<RawValue>>,
}

/// Request of `POST workers/heartbeat`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct OjsHeartbeat {
    /// The worker.
    pub worker_id: String,
    /// State of the worker, as the worker reports it.
    pub state: Option<String>,
    /// Ids of the running jobs, or their number.
    pub active_jobs: Option<Value>,
    /// Ids of the running jobs.
    pub active_job_ids: Option<Vec<String>>,
    /// Visibility timeout of its jobs from now on, in milliseconds.
    pub visibility_timeout_ms: Option<u64>,
    /// True if the worker is about to exit (`POST workers/beat`).
    pub shutdown: Option<bool>,
}

/// Request of `POST workers/register`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct OjsRegistration {
    /// The worker.
    pub worker_id: String,
    /// Host name.
    #[serde(default)]
    pub hostname: String,
    /// Process id.
    pub pid: Option<u64>,
    /// Queues of the worker.
    #[serde(default)]
    pub queues: Vec<String>,
    /// Maximum number of concurrent jobs; default 10.
    pub concurrency: Option<u32>,
    /// Labels, as `name` or `name:value`.
    #[serde(default)]
    pub labels: Vec<String>,
    /// Time of the start of the worker.
    #[schemars(with = "Option<String>")]
    pub started_at: Option<Timestamp>,
}

/// Request of `PUT jobs/{id}/progress` and `POST workers/progress`. The request has a number or
/// `data`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct OjsProgress {
    /// Job, not needed if the path names it.
    pub job_id: Option<String>,
    /// Worker that reports.
    pub worker_id: Option<String>,
    /// Progress, from 0 to 1.
    pub progress: Option<f64>,
    /// Progress, from 0 to 100, if `progress` is missing.
    pub percentage: Option<f64>,
    /// Text for people.
    pub message: Option<String>,
    /// Further data, any JSON.
    #[schemars(with = "Option<Value>")]
    pub data: Option<Box<RawValue>>,
}

/// JSON object without a type of its own.
pub type OjsObject = Map<String, Value>;

/// Schema of the request of `POST jobs`. The fields are parsed one by one, so that unknown fields
/// are stored as submitted.
#[derive(Debug, Clone, JsonSchema)]
#[expect(dead_code, reason = "the names are the specification's, and only the form is of use")]
pub struct OjsEnqueue {
    #[schemars(rename = "type", regex(pattern = r"^[a-z][a-z0-9_-]*(\.[a-z][a-z0-9_-]*)*$"))]
    job_type: String,
    args: Vec<Value>,
    id: Option<String>,
    meta: Option<OjsObject>,
    options: Option<OjsOptions>,
}

/// Options of a job.
#[derive(Debug, Clone, JsonSchema)]
#[expect(dead_code, reason = "the names are the specification's, and only the form is of use")]
pub struct OjsOptions {
    #[schemars(regex(pattern = r"^[a-z0-9][a-z0-9.-]*$"), length(max = 128))]
    queue: Option<String>,
    #[schemars(range(min = -100, max = 100))]
    priority: Option<i32>,
    timeout_ms: Option<u64>,
    visibility_timeout_ms: Option<u64>,
    scheduled_at: Option<String>,
    delay_until: Option<String>,
    expires_at: Option<String>,
    pending: Option<bool>,
    tags: Option<Vec<String>>,
    retry: Option<OjsObject>,
    unique: Option<OjsObject>,
    rate_limit: Option<OjsObject>,
    metadata: Option<OjsObject>,
}
