//! A worker: how it introduces itself, and how it is shown (worker spec §2 and §3, AGQ API spec §5).

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use crate::{
    ids::{JobId, WorkerId},
    time::Timestamp,
};

/// What `WORKER.REGISTER` takes. Fields that are not known are left alone: workers come in any language.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkerRegistration {
    /// Its id, unique among the workers that live.
    pub worker_id: WorkerId,
    /// The machine's name.
    #[serde(default)]
    pub hostname: String,
    /// OS and architecture, as `linux-x86_64`.
    #[serde(default)]
    pub platform: String,
    /// The version of its program.
    #[serde(default)]
    pub agw_version: String,
    /// What it can run.
    pub capabilities: Capabilities,
    /// How many jobs it runs at once.
    #[serde(default = "one")]
    pub max_concurrent_jobs: u32,
    /// Anything else about it.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub tags: Map<String, Value>,
    /// What its agentic units say of themselves (`--describe`), by their names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub descriptions: BTreeMap<String, String>,
    /// A random name of this run of the worker: the same run may register again, another may not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// The jobs that it has, when it comes back: what agq thinks that it has besides these goes to others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_job_ids: Option<Vec<JobId>>,
}

impl WorkerRegistration {
    /// A worker of which nothing but its id is known.
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
        }
    }
}

fn one() -> u32 {
    1
}

/// What a worker can run. The AGQ API spec writes an array of tools, the worker spec an object; both are read, the object is written.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct Capabilities {
    /// Programs on its PATH.
    pub tools: Vec<String>,
    /// Agentic units (`agx-*`).
    pub agentic_units: Vec<String>,
}

impl Capabilities {
    /// Every command the worker can run.
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

/// A worker as `WORKER.LIST` shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WorkerStatus {
    /// The worker.
    pub worker_id: WorkerId,
    /// `active`, `quiet`, `draining`, `terminating`, `quarantined` or `dead`.
    pub state: String,
    /// The machine's name.
    pub hostname: String,
    /// OS and architecture.
    pub platform: String,
    /// The version of its program.
    pub agw_version: String,
    /// What it can run.
    pub capabilities: Capabilities,
    /// How many jobs it runs at once.
    pub max_concurrent_jobs: u32,
    /// Jobs that it holds now.
    pub active_jobs: u64,
    /// Jobs of its that took longer than they may: it may hang.
    #[serde(default)]
    pub timed_out_jobs: u64,
    /// Why it gets no jobs, where it is quarantined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quarantine_reason: Option<String>,
    /// When it registered.
    pub registered_at: Timestamp,
    /// When it was last heard of.
    pub last_seen_at: Timestamp,
    /// What its last heartbeat said.
    pub stats: Option<Value>,
    /// Anything else about it.
    #[serde(default)]
    pub tags: Map<String, Value>,
}

#[cfg(test)]
mod tests {
    use super::WorkerRegistration;
    use crate::documents::parse;

    #[test]
    fn both_forms_of_capabilities() {
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
