//! Bounds of a submission on when and where its jobs run.

use agenix_protocol::{
    documents::{ConcurrencyKey, MemoryFactor, Quantities, StartRate, UniqueJobs},
    ids::ShareName,
};
use serde::{Deserialize, Serialize};

/// Bounds of a submission on when and where its jobs run. Stored as a JSON object, so that versions
/// may add fields in any order.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SchedulingOptions {
    /// Maximum rate at which the jobs start; `None` for no bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<StartRate>,
    /// Quantities that one job uses, instead of those of the same names in the plan.
    #[serde(skip_serializing_if = "Quantities::is_empty")]
    pub resources: Quantities,
    /// Share of the queue that the jobs belong to; `None` for that of the owner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<ShareName>,
    /// Factor by which a retry after a lack of memory wants more memory, instead of that of the
    /// plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_memory_factor: Option<MemoryFactor>,
    /// Concurrency key of the jobs; `None` for no key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<ConcurrencyKey>,
    /// Uniqueness of the jobs; `None` if they need not be unique.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unique: Option<UniqueJobs>,
    /// Hash of the submitted inputs, if the action may have been stored without some of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inputs_hash: Option<String>,
}

impl SchedulingOptions {
    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Serialization of a value as a string that has its JSON.
pub(super) mod json_text {
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de, de::DeserializeOwned, ser};

    pub(crate) fn serialize<T: Serialize, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
        serde_json::to_string(value).map_err(ser::Error::custom)?.serialize(to)
    }

    pub(crate) fn deserialize<'de, T: DeserializeOwned, D: Deserializer<'de>>(
        from: D,
    ) -> Result<T, D::Error> {
        serde_json::from_str(&String::deserialize(from)?).map_err(de::Error::custom)
    }
}
