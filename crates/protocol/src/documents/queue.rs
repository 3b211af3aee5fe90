//! What `QUEUE.STATS` answers (AGQ API spec §6).

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::names::READY;

/// All queues and the workers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QueueStats {
    /// Jobs that could run now.
    #[serde(rename = "queue:ready")]
    pub ready: ReadyStats,
    /// Jobs that wait for a time.
    #[serde(rename = "queue:scheduled")]
    pub scheduled: ScheduledStats,
    /// The workers.
    pub workers: WorkerCounts,
    /// Every other queue that has jobs or is paused, by its key.
    #[serde(flatten)]
    pub others: BTreeMap<String, ReadyStats>,
}

/// Jobs that could run now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReadyStats {
    /// How many.
    pub length: u64,
    /// Age of the oldest; null when there is none.
    pub oldest_job_age_seconds: Option<u64>,
    /// Age of the newest; null when there is none.
    pub newest_job_age_seconds: Option<u64>,
    /// Whether it gives no jobs until QUEUE.RESUME.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
    /// The same jobs by what they need.
    pub needs: Vec<Demand>,
}

impl QueueStats {
    /// The statistics of a queue from which jobs are claimed, where it is shown.
    pub fn ready_of(&self, queue: &str) -> Option<&ReadyStats> {
        if queue == READY { Some(&self.ready) } else { self.others.get(&format!("queue:{queue}")) }
    }
}

impl Demand {
    /// What a worker must have, for people.
    pub fn wants(&self) -> Vec<String> {
        let tags = self.tags.iter().map(|tag| format!("the tag {tag}"));
        let labels = self.labels.iter().map(|(label, value)| format!("the label {label}={value}"));
        self.tools.iter().cloned().chain(tags).chain(labels).collect()
    }
}

/// Ready jobs that need the same tools, and who could run them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Demand {
    /// The commands that a worker must have.
    pub tools: Vec<String>,
    /// The pools it must be in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// The labels it must bear.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Ready jobs that need them.
    pub length: u64,
    /// Live workers that have them all.
    pub workers: u64,
}

/// Jobs that wait for a time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ScheduledStats {
    /// How many.
    pub length: u64,
    /// Seconds until the first is due; null when there is none.
    pub next_job_due_in_seconds: Option<u64>,
}

/// The workers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WorkerCounts {
    /// All that are known and were not unregistered, the dead ones too.
    pub total: u64,
    /// Those that live.
    pub active: u64,
    /// Those that live, may take jobs and hold none.
    pub idle: u64,
}
