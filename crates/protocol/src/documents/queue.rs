//! Answer of `QUEUE.STATS` (AGQ API spec §6).

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Quantities, amount_text, sandbox::is_zero};
use crate::reserved_keys::READY;

/// Statistics of all queues and of the workers.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct QueueStats {
    /// Jobs of the default queue that could run now.
    #[serde(rename = "queue:ready")]
    pub ready: ReadyStats,
    /// Jobs that wait for a time.
    #[serde(rename = "queue:scheduled")]
    pub scheduled: ScheduledStats,
    /// Numbers of workers.
    pub workers: WorkerCounts,
    /// Other queues that have jobs or are paused, by their keys.
    #[serde(flatten)]
    pub others: BTreeMap<String, ReadyStats>,
}

/// Jobs of a queue that could run now.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct ReadyStats {
    /// Number of jobs.
    pub length: u64,
    /// Age of the oldest job, in seconds; null without jobs.
    pub oldest_job_age_seconds: Option<u64>,
    /// Age of the newest job, in seconds; null without jobs.
    pub newest_job_age_seconds: Option<u64>,
    /// True if the queue is paused until QUEUE.RESUME.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
    /// Jobs by their needs.
    pub needs: Vec<Demand>,
    /// Number of jobs that their limits and budgets hold back; left out if it is 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub held_back: u64,
}

impl QueueStats {
    /// Returns the statistics of a queue from which jobs are claimed, if they are included.
    pub fn ready_of(&self, queue: &str) -> Option<&ReadyStats> {
        if queue == READY { Some(&self.ready) } else { self.others.get(&format!("queue:{queue}")) }
    }
}

impl Demand {
    /// Returns the needs, for people.
    pub fn wants(&self) -> Vec<String> {
        let tags = self.tags.iter().map(|tag| format!("the tag {tag}"));
        let labels = self.labels.iter().map(|(label, value)| format!("the label {label}={value}"));
        let sandbox = self.sandbox.iter().map(|profile| format!("the sandbox profile {profile}"));
        let resources = self.resources.iter();
        let resources = resources.map(|(name, amount)| format!("{name} {}", amount_text(name, amount)));
        self.tools.iter().cloned().chain(tags).chain(labels).chain(sandbox).chain(resources).collect()
    }
}

/// Ready jobs with the same needs, and the workers that could run them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Demand {
    /// Programs that a worker has to offer.
    pub tools: Vec<String>,
    /// Pools that a worker has to be in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Labels that a worker has to have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Sandbox profile that a worker has to offer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<String>,
    /// Quantities that one job uses; left out if it uses none.
    #[serde(default, skip_serializing_if = "Quantities::is_empty")]
    pub resources: Quantities,
    /// Number of ready jobs with these needs.
    pub length: u64,
    /// Number of live workers that cover the needs.
    pub workers: u64,
    /// Number of the jobs that their limits and budgets hold back; left out if it is 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub held_back: u64,
}

/// Jobs that wait for a time.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct ScheduledStats {
    /// Number of jobs.
    pub length: u64,
    /// Seconds until the first job is due; null without jobs.
    pub next_job_due_in_seconds: Option<u64>,
}

/// Numbers of workers.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct WorkerCounts {
    /// Number of all known workers that were not unregistered, dead ones included.
    pub total: u64,
    /// Number of live workers.
    pub active: u64,
    /// Number of live workers that may take jobs and hold none.
    pub idle: u64,
}

#[cfg(test)]
mod tests {
    use super::Demand;
    use crate::documents::parse;

    #[test]
    fn wants_are_needs_in_words() {
        let json = br#"{"tools":["jq"],"tags":["gpu"],"labels":{"zone":"eu"},"sandbox":"reader","resources":{"cpus":0.5},"length":1,"workers":0}"#;
        let demand: Demand = parse(json).unwrap();
        assert_eq!(
            demand.wants(),
            ["jq", "the tag gpu", "the label zone=eu", "the sandbox profile reader", "cpus 0.5"]
        );
    }
}
