//! Keys of clients in the config file: `"name" = "sha256:…"`, or a table with a budget and shares.

use std::{collections::BTreeSet, fmt};

use agenix_protocol::ids::ShareName;
use agenix_rules::{
    budget::{Budget, BudgetOptions},
    fair_share::KeyShares,
};
use secrecy::SecretString;
use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, Visitor, value::MapAccessDeserializer},
};

use super::share_weight::ShareWeight;

/// Key of a client, with its budget and its shares.
#[derive(Debug, Clone)]
pub(super) struct ClientEntry {
    pub(super) key: SecretString,
    pub(super) budget: Option<Budget>,
    pub(super) shares: KeyShares,
}

/// Value of a client that is a table.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClientTable {
    key: SecretString,
    budget: Option<BudgetOptions>,
    weight: Option<ShareWeight>,
    #[serde(default)]
    shares: BTreeSet<ShareName>,
}

impl<'de> Deserialize<'de> for ClientEntry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ClientEntryVisitor)
    }
}

struct ClientEntryVisitor;

impl<'de> Visitor<'de> for ClientEntryVisitor {
    type Value = ClientEntry;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key, or a table with a key")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<ClientEntry, E> {
        Ok(ClientEntry { key: key.to_owned().into(), budget: None, shares: KeyShares::default() })
    }

    fn visit_map<A: MapAccess<'de>>(self, table: A) -> Result<ClientEntry, A::Error> {
        let ClientTable { key, budget, weight, shares } =
            ClientTable::deserialize(MapAccessDeserializer::new(table))?;
        let shares = KeyShares { weight: weight.map(ShareWeight::get), named: shares };
        Ok(ClientEntry { key, budget: budget.map(Budget::from), shares })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use agenix_rules::budget::Budget;
    use secrecy::ExposeSecret;

    use super::ClientEntry;

    fn read(value: &str) -> Result<(String, Option<Budget>), String> {
        let mut table: BTreeMap<String, ClientEntry> =
            toml::from_str(&format!("one = {value}")).map_err(|error| error.message().to_owned())?;
        let ClientEntry { key, budget, .. } = table.remove("one").unwrap();
        Ok((key.expose_secret().to_owned(), budget))
    }

    #[test]
    fn client_has_a_key_or_a_table_with_a_key_and_a_budget() {
        assert_eq!(read("'k'"), Ok(("k".into(), None)));
        assert_eq!(read("{ key = 'k' }"), Ok(("k".into(), None)));
        let budget =
            Budget { per_hours: 24, jobs: Some(10), output_bytes: Some(20 << 30), ..Budget::default() };
        let value = "{ key = 'k', budget = { per = '24h', jobs = 10, output_bytes = '20GiB' } }";
        assert_eq!(read(value), Ok(("k".into(), Some(budget))));
    }

    #[test]
    fn client_with_other_fields_or_a_wrong_budget_is_refused() {
        for (value, words) in [
            ("{ key = 'k', weight = 0 }", "weight is 0: use 1 to 1000"),
            ("{ key = 'k', shares = ['a b'] }", "share 'a b' is not valid"),
            ("{ key = 'k', queues = ['q'] }", "unknown field `queues`"),
            ("{ budget = { per = '24h' } }", "missing field `key`"),
            ("{ key = 'k', budget = { jobs = 1 } }", "missing field `per`"),
            ("{ key = 'k', budget = { per = '24m' } }", "per is '24m'"),
            ("{ key = 'k', budget = { per = '24h', cpu = 1 } }", "unknown field `cpu`"),
            ("7", "a key, or a table with a key"),
        ] {
            let error = read(value).unwrap_err();
            assert!(error.contains(words), "{value}: {error}");
        }
    }
}
