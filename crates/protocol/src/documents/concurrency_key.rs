//! Concurrency key of the jobs of an action.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Concurrency key of the jobs of an action: of the jobs with equal keys, a bounded number run at
/// once, also of several actions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConcurrencyKey {
    /// Template of the key, with placeholders of the input, as `user:{{input.user}}`.
    pub key: String,
    /// Maximum number of running jobs with the same key, at least 1. Default: 1.
    #[serde(default = "one")]
    pub max_running: u64,
}

fn one() -> u64 {
    1
}
