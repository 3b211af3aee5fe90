//! Workers: registration and status (worker spec §2 and §3, AGQ API spec §5).

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use super::{Quantities, WorkerSandbox};
use crate::{
    ids::{JobId, WorkerId},
    time::Timestamp,
};

/// Document of `WORKER.REGISTER`. Unknown fields are ignored, because workers may have further
/// fields.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkerRegistration {
    /// Id of the worker, unique among live workers.
    pub worker_id: WorkerId,
    /// Host name.
    #[serde(default)]
    pub hostname: String,
    /// OS and architecture, as `linux-x86_64`.
    #[serde(default)]
    pub platform: String,
    /// Version of the program of the worker.
    #[serde(default)]
    pub agw_version: String,
    /// Capabilities of the worker.
    pub capabilities: Capabilities,
    /// Maximum number of concurrent jobs.
    #[serde(default = "one")]
    pub max_concurrent_jobs: u32,
    /// Tags of the worker.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub tags: Map<String, Value>,
    /// Descriptions of the worker's agentic units (`--describe`), by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub descriptions: BTreeMap<String, String>,
    /// Random name of this run of the worker. The same run may register again, and another run may
    /// not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// Ids of the jobs of the worker, when it registers again. The worker's other jobs go to other
    /// workers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_job_ids: Option<Vec<JobId>>,
    /// Sandbox of the worker, if it runs jobs in one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<WorkerSandbox>,
    /// Quantities that the worker's jobs may use at once. Jobs that need quantities go only to
    /// workers that offer such quantities.
    #[serde(default, skip_serializing_if = "Quantities::is_empty")]
    pub resources: Quantities,
}

impl WorkerRegistration {
    /// Returns the registration of a worker with default values.
    pub fn of(worker_id: WorkerId) -> Self {
        Self {
            worker_id,
            hostname: String::new(),
            platform: String::new(),
            agw_version: String::new(),
            capabilities: Capabilities::default(),
            max_concurrent_jobs: 1,
            tags: Map::new(),
            descriptions: BTreeMap::new(),
            instance: None,
            active_job_ids: None,
            sandbox: None,
            resources: Quantities::default(),
        }
    }
}

fn one() -> u32 {
    1
}

/// Capabilities of a worker. The AGQ API spec has an array of tools, and the worker spec an object.
/// Both are accepted, and the object is written.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct Capabilities {
    /// Programs on the PATH of the worker.
    pub tools: Vec<String>,
    /// Agentic units (`agx-*`).
    pub agentic_units: Vec<String>,
}

impl Capabilities {
    /// Returns every command that the worker can run.
    pub fn commands(&self) -> impl Iterator<Item = &String> {
        self.tools.iter().chain(&self.agentic_units)
    }
}

impl<'de> Deserialize<'de> for Capabilities {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "an array of names, or an object with 'tools' and 'agentic_units'")]
        enum Form {
            Array(Vec<String>),
            Object {
                tools: Vec<String>,
                #[serde(default)]
                agentic_units: Vec<String>,
            },
        }
        Ok(match Form::deserialize(from)? {
            Form::Array(tools) => Self { tools, agentic_units: Vec::new() },
            Form::Object { tools, agentic_units } => Self { tools, agentic_units },
        })
    }
}

/// Worker as `WORKER.LIST` shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WorkerStatus {
    /// The worker.
    pub worker_id: WorkerId,
    /// `active`, `quiet`, `draining`, `terminating`, `quarantined` or `dead`.
    pub state: String,
    /// Host name.
    pub hostname: String,
    /// OS and architecture.
    pub platform: String,
    /// Version of the program of the worker.
    pub agw_version: String,
    /// Capabilities of the worker.
    pub capabilities: Capabilities,
    /// Maximum number of concurrent jobs.
    pub max_concurrent_jobs: u32,
    /// Number of jobs that the worker holds now.
    pub active_jobs: u64,
    /// Number of its jobs that exceeded their timeout: the worker may hang.
    #[serde(default)]
    pub timed_out_jobs: u64,
    /// Reason of the quarantine, if the worker is quarantined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quarantine_reason: Option<String>,
    /// Time of the registration.
    pub registered_at: Timestamp,
    /// Time of the last sign of life.
    pub last_seen_at: Timestamp,
    /// Statistics of the last heartbeat.
    pub stats: Option<Value>,
    /// Tags of the worker.
    #[serde(default)]
    pub tags: Map<String, Value>,
    /// Sandbox of the worker, if it runs jobs in one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<WorkerSandbox>,
    /// Quantities that the worker offers; left out if it offers none.
    #[serde(default, skip_serializing_if = "Quantities::is_empty")]
    pub resources: Quantities,
    /// Quantities that the jobs of the worker use now; left out if they use none.
    #[serde(default, skip_serializing_if = "Quantities::is_empty")]
    pub used_resources: Quantities,
    /// Program that has drained the worker; left out if no program has given its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drained: Option<DrainMark>,
}

/// Program that has drained a worker, and the time.
// Stored in the record of a worker. Durable, positional: append only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DrainMark {
    /// Name that the program gave itself.
    pub by: String,
    /// Time of the last `WORKER.DRAIN` of the program.
    pub at: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::WorkerRegistration;
    use crate::documents::parse;

    #[test]
    fn capabilities_are_parsed_in_both_forms() {
        let array = br#"{"worker_id":"w","capabilities":["sort"],"max_concurrent_jobs":4}"#;
        let object =
            br#"{"worker_id":"w","hostname":"h","capabilities":{"tools":["sort"]},"max_concurrent_jobs":4}"#;
        let (array, object) =
            (parse::<WorkerRegistration>(array).unwrap(), parse::<WorkerRegistration>(object).unwrap());
        assert_eq!(array.capabilities, object.capabilities);
        let wrong =
            parse::<WorkerRegistration>(br#"{"worker_id":"w","capabilities":7}"#).unwrap_err().to_string();
        assert!(wrong.starts_with("capabilities: an array of names, or an object"), "{wrong}");
    }
}
