//! Capabilities of workers and needs of jobs: a job goes only to a worker that covers all its
//! needs.

use std::collections::{BTreeMap, HashSet};

use agenix_protocol::documents::WorkerRegistration;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Needs of a job. Durable and positional: append, never reorder.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Needs {
    /// Programs, sorted, without duplicates.
    pub tools: Vec<String>,
    /// Pools, sorted, without duplicates: tags of the worker with any value but false or null.
    pub tags: Vec<String>,
    /// Tags of the worker with exactly these values.
    pub labels: BTreeMap<String, String>,
    /// Key of the limit that applies to the job. Jobs of a limit wait in a lane of their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
}

/// Capabilities of a claimant.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Abilities {
    /// Capabilities that a registered worker declared: programs, agentic units and tags.
    Worker { commands: HashSet<String>, tags: Map<String, Value> },
    /// Every capability. A connection without a registered worker claims any job.
    Anything,
    /// No capability. A worker that takes no jobs claims nothing.
    Nothing,
}

impl Abilities {
    /// Returns the capabilities that a worker declared.
    pub fn of(registration: &WorkerRegistration) -> Self {
        let commands = registration.capabilities.commands().cloned().collect();
        Self::Worker { commands, tags: registration.tags.clone() }
    }

    /// Returns true if the abilities cover `needs`.
    pub fn cover(&self, needs: &Needs) -> bool {
        match self {
            Self::Anything => true,
            Self::Nothing => false,
            Self::Worker { commands, tags } => {
                needs.tools.iter().all(|tool| commands.contains(tool))
                    && needs.tags.iter().all(|tag| has_tag(tags, tag))
                    && needs.labels.iter().all(|(label, value)| has_label(tags, label, value))
            }
        }
    }

    /// Returns the missing needs, as `tool jq`, `tag gpu`, `label zone=eu`.
    pub fn missing(&self, needs: &Needs) -> Vec<String> {
        let Self::Worker { commands, tags } = self else { return Vec::new() };
        let tools =
            needs.tools.iter().filter(|tool| !commands.contains(*tool)).map(|tool| format!("tool {tool}"));
        let pools = needs.tags.iter().filter(|tag| !has_tag(tags, tag)).map(|tag| format!("tag {tag}"));
        let labels = needs.labels.iter().filter(|(label, value)| !has_label(tags, label, value));
        tools.chain(pools).chain(labels.map(|(label, value)| format!("label {label}={value}"))).collect()
    }
}

fn has_tag(tags: &Map<String, Value>, tag: &str) -> bool {
    tags.get(tag).is_some_and(|value| !matches!(value, Value::Null | Value::Bool(false)))
}

fn has_label(tags: &Map<String, Value>, label: &str, value: &str) -> bool {
    match tags.get(label) {
        Some(Value::String(text)) => text == value,
        // Labels compare with texts of numbers and booleans, never with objects or arrays.
        Some(Value::Number(number)) => number.to_string() == value,
        Some(Value::Bool(is_set)) => is_set.to_string() == value,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use agenix_protocol::documents::parse;

    use super::{Abilities, Needs};

    fn worker() -> Abilities {
        let registration = br#"{"worker_id":"w","capabilities":["sort","uniq"],"tags":{"gpu":true,"slow":false,"zone":"eu","cores":4}}"#;
        Abilities::of(&parse(registration).unwrap())
    }

    fn needs(tools: &[&str], tags: &[&str], labels: &[(&str, &str)]) -> Needs {
        let texts = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let labels = labels.iter().map(|(label, value)| ((*label).to_owned(), (*value).to_owned())).collect();
        Needs { tools: texts(tools), tags: texts(tags), labels, limit: None }
    }

    #[test]
    fn abilities_have_to_cover_every_need() {
        assert!(worker().cover(&needs(&["sort", "uniq"], &["gpu"], &[("zone", "eu"), ("cores", "4")])));
        assert!(worker().cover(&Needs::default()));
        for without in
            [needs(&["jq"], &[], &[]), needs(&[], &["slow"], &[]), needs(&[], &[], &[("zone", "us")])]
        {
            assert!(!worker().cover(&without), "{without:?}");
            assert!(Abilities::Anything.cover(&without));
        }
        assert!(!Abilities::Nothing.cover(&Needs::default()));
    }

    #[test]
    fn missing_needs_are_named() {
        let missing = worker().missing(&needs(&["sort", "jq"], &["tpu"], &[("zone", "us")]));
        assert_eq!(missing, ["tool jq", "tag tpu", "label zone=us"]);
    }
}
