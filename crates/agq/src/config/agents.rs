//! Keys of agents in the config file: `"name" = "sha256:…"`, or a table with terms.

use std::{collections::BTreeSet, fmt};

use agenix_protocol::ids::{QueueName, ShareName};
use agenix_rules::{
    budget::{Budget, BudgetOptions},
    fair_share::KeyShares,
    owner::AgentTerms,
};
use secrecy::SecretString;
use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, Visitor, value::MapAccessDeserializer},
};

use super::share_weight::ShareWeight;

/// Key of an agent, with its terms.
#[derive(Debug, Clone)]
pub(super) struct AgentEntry {
    pub(super) key: SecretString,
    pub(super) terms: AgentTerms,
    pub(super) budget: Option<Budget>,
    pub(super) shares: KeyShares,
}

/// Value of an agent that is a table.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AgentTable {
    key: SecretString,
    queues: Option<BTreeSet<QueueName>>,
    budget: Option<BudgetOptions>,
    weight: Option<ShareWeight>,
    #[serde(default)]
    shares: BTreeSet<ShareName>,
}

impl<'de> Deserialize<'de> for AgentEntry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AgentEntryVisitor)
    }
}

struct AgentEntryVisitor;

impl<'de> Visitor<'de> for AgentEntryVisitor {
    type Value = AgentEntry;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key, or a table with a key")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<AgentEntry, E> {
        Ok(AgentEntry {
            key: key.to_owned().into(),
            terms: AgentTerms::default(),
            budget: None,
            shares: KeyShares::default(),
        })
    }

    fn visit_map<A: MapAccess<'de>>(self, table: A) -> Result<AgentEntry, A::Error> {
        let AgentTable { key, queues, budget, weight, shares } =
            AgentTable::deserialize(MapAccessDeserializer::new(table))?;
        if queues.as_ref().is_some_and(BTreeSet::is_empty) {
            return Err(Error::custom("queues is empty: name a queue, or leave it out for all queues"));
        }
        let shares = KeyShares { weight: weight.map(ShareWeight::get), named: shares };
        Ok(AgentEntry { key, terms: AgentTerms { queues }, budget: budget.map(Budget::from), shares })
    }
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret;

    use super::AgentEntry;

    fn read(value: &str) -> Result<(String, Option<Vec<String>>), String> {
        let table: std::collections::BTreeMap<String, AgentEntry> =
            toml::from_str(&format!("one = {value}")).map_err(|error| error.message().to_owned())?;
        let AgentEntry { key, terms, .. } = table["one"].clone();
        let queues = terms.queues.map(|queues| queues.into_iter().map(String::from).collect());
        Ok((key.expose_secret().to_owned(), queues))
    }

    #[test]
    fn agent_has_a_key_or_a_table_with_a_key() {
        assert_eq!(read("'k'"), Ok(("k".into(), None)));
        assert_eq!(read("{ key = 'k' }"), Ok(("k".into(), None)));
        let queues = Some(vec!["agents".into(), "slow".into()]);
        assert_eq!(read("{ key = 'k', queues = ['slow', 'agents'] }"), Ok(("k".into(), queues)));
    }

    #[test]
    fn agent_with_other_fields_or_without_a_key_is_refused() {
        for (value, words) in [
            ("{ key = 'k', queue = 'agents' }", "unknown field `queue`"),
            ("{ queues = ['agents'] }", "missing field `key`"),
            ("{ key = 'k', queues = [] }", "queues is empty"),
            ("{ key = 'k', budget = { per = '5m' } }", "per is '5m'"),
            ("{ key = 'k', queues = ['a b'] }", "a b"),
            ("7", "a key, or a table with a key"),
        ] {
            let error = read(value).unwrap_err();
            assert!(error.contains(words), "{value}: {error}");
        }
    }
}
