//! Who may be offered what: a job goes only to a worker that has everything it needs (design, decision 7).

use std::collections::{BTreeMap, HashSet};

use agenix_protocol::documents::WorkerRegistration;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// What a job needs of a worker. Durable and positional: append, never reorder.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Needs {
    /// Programs, sorted, each once.
    pub tools: Vec<String>,
    /// Pools, sorted, each once: tags that the worker has, with any value but false or null.
    pub tags: Vec<String>,
    /// Tags that the worker has with exactly this value.
    pub labels: BTreeMap<String, String>,
    /// The key of the limit that its jobs stand under: those under one limit wait apart from the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
}

/// What a claimant can run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Abilities {
    /// What a registered worker declared.
    Worker {
        /// Programs and agentic units.
        commands: HashSet<String>,
        /// Anything else about it.
        tags: Map<String, Value>,
    },
    /// Whatever comes: a connection that registered no worker speaks for itself.
    Anything,
    /// Nothing: a worker that is to take no jobs.
    Nothing,
}

impl Abilities {
    /// What a worker declared.
    pub fn of(registration: &WorkerRegistration) -> Self {
        let commands = registration.capabilities.commands().cloned().collect();
        Self::Worker { commands, tags: registration.tags.clone() }
    }

    /// Whether a job with these needs may be offered.
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

    /// What a worker lacks, as `tool jq`, `tag gpu`, `label zone=eu`.
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
        // `4` and `true` are meant by their texts; an object's text is nobody's label.
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
        let told = br#"{"worker_id":"w","capabilities":["sort","uniq"],"tags":{"gpu":true,"slow":false,"zone":"eu","cores":4}}"#;
        Abilities::of(&parse(told).unwrap())
    }

    fn needs(tools: &[&str], tags: &[&str], labels: &[(&str, &str)]) -> Needs {
        let texts = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let labels = labels.iter().map(|(label, value)| ((*label).to_owned(), (*value).to_owned())).collect();
        Needs { tools: texts(tools), tags: texts(tags), labels, limit: None }
    }

    #[test]
    fn every_need_must_be_met() {
        assert!(worker().cover(&needs(&["sort", "uniq"], &["gpu"], &[("zone", "eu"), ("cores", "4")])));
        assert!(worker().cover(&Needs::default()));
        for lacking in
            [needs(&["jq"], &[], &[]), needs(&[], &["slow"], &[]), needs(&[], &[], &[("zone", "us")])]
        {
            assert!(!worker().cover(&lacking), "{lacking:?}");
            assert!(Abilities::Anything.cover(&lacking));
        }
        assert!(!Abilities::Nothing.cover(&Needs::default()));
    }

    #[test]
    fn what_is_missing_is_named() {
        let missing = worker().missing(&needs(&["sort", "jq"], &["tpu"], &[("zone", "us")]));
        assert_eq!(missing, ["tool jq", "tag tpu", "label zone=us"]);
    }
}
