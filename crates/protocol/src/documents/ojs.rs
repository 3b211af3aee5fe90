//! What travels over HTTP by the Open Job Spec (the OJS worker spec, ojs-http-binding): requests are read leniently, for workers come in any
//! language; answers leave out what is not set.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, value::RawValue};

use crate::{ids::JobId, time::Timestamp};

/// The version of the specification that is spoken.
pub const OJS_VERSION: &str = "1.0";
/// The media type of every answer but `/metrics`.
pub const OJS_MEDIA_TYPE: &str = "application/openjobspec+json";

/// A job's fields as they came.
pub type OjsDocument = BTreeMap<String, Box<RawValue>>;

/// A job as it is shown.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "the names are the specification's, and say it")]
pub struct OjsJob {
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
    /// How often it was fetched.
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
    /// As it was submitted, where that was a time.
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
    /// When it is tried again.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub next_attempt_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_delay_ms: Option<u64>,
    /// The last failure, until it succeeds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<OjsError>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<OjsError>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Value>")]
    pub result: Option<Box<RawValue>>,
    /// From 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workflow_id: Option<String>,
    /// The worker that has it, or had it last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker_id: Option<String>,
    /// The action it belongs to.
    pub action_id: String,
    /// Options and fields that agq does not know, as they came.
    #[serde(flatten)]
    #[schemars(skip)]
    pub others: OjsDocument,
}

/// A failure of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
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
    pub details: Option<Value>,
}

/// `POST workers/fetch`, `POST jobs/fetch`
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
pub struct OjsFetch {
    /// At least one, in the order in which they are looked at.
    pub queues: Vec<String>,
    /// How many jobs at most; 1 where it is not said.
    pub count: Option<u64>,
    /// Who fetches.
    pub worker_id: Option<String>,
    /// How long they are reserved.
    pub visibility_timeout_ms: Option<u64>,
    /// How long to wait for the first of them (agq's own).
    pub wait_ms: Option<u64>,
}

/// `POST workers/ack`, `POST jobs/{id}/ack`
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
pub struct OjsAck {
    /// Not needed where the path has it.
    pub job_id: Option<String>,
    /// Any JSON.
    #[schemars(with = "Option<Value>")]
    pub result: Option<Box<RawValue>>,
    /// Who says so.
    pub worker_id: Option<String>,
    /// The attempt that it is about (agq's own).
    pub attempt: Option<u32>,
}

/// `POST workers/nack`, `POST jobs/{id}/nack`
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
pub struct OjsNack {
    /// Not needed where the path has it.
    pub job_id: Option<String>,
    /// What went wrong.
    pub error: Option<OjsFault>,
    /// Whether the job is only given back.
    pub requeue: Option<bool>,
    /// Who says so.
    pub worker_id: Option<String>,
    /// The attempt that it is about (agq's own).
    pub attempt: Option<u32>,
}

/// What went wrong, as a worker says it.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the names are the specification's, and say it")]
pub struct OjsFault {
    pub code: Option<String>,
    #[serde(rename = "type")]
    pub kind: Option<String>,
    pub message: Option<String>,
    pub retryable: Option<bool>,
    pub details: Option<Value>,
}

/// `POST workers/heartbeat`
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct OjsHeartbeat {
    /// Who it is.
    pub worker_id: String,
    /// How it stands, as it says.
    pub state: Option<String>,
    /// The ids of the jobs that it has, or how many these are.
    pub active_jobs: Option<Value>,
    /// The ids of the jobs that it has.
    pub active_job_ids: Option<Vec<String>>,
    /// From now on, how long its jobs are reserved.
    pub visibility_timeout_ms: Option<u64>,
    /// `POST workers/beat`: whether it is about to end.
    pub shutdown: Option<bool>,
}

/// `POST workers/register`
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct OjsRegistration {
    /// Who it is.
    pub worker_id: String,
    /// The machine's name.
    #[serde(default)]
    pub hostname: String,
    /// Its process.
    pub pid: Option<u64>,
    /// The queues it takes jobs of.
    #[serde(default)]
    pub queues: Vec<String>,
    /// How many jobs it runs at once; 10 where it is not said.
    pub concurrency: Option<u32>,
    /// What it has, as `name` or `name:value`.
    #[serde(default)]
    pub labels: Vec<String>,
    /// When it started.
    #[schemars(with = "Option<String>")]
    pub started_at: Option<Timestamp>,
}

/// `PUT jobs/{id}/progress`
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct OjsProgress {
    /// Who says so.
    pub worker_id: Option<String>,
    /// From 0 to 1.
    pub progress: f64,
    /// For people.
    pub message: Option<String>,
    /// Anything.
    pub data: Option<Value>,
}

/// An answer that is an object made up on the spot.
pub type OjsObject = Map<String, Value>;

/// `POST jobs`: what a job may say. Read field by field, so that what is kept is kept as it came; this is its form.
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

/// The options of a job.
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
