//! Programs that live workers offer.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Answer of `CAPABILITY.LIST`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CapabilityList {
    /// Number of workers that take jobs.
    pub workers: u64,
    /// Programs in the order of their names, at most the limit of the command.
    pub programs: Vec<OfferedProgram>,
    /// Number of all programs that match.
    pub total: u64,
    /// Sandbox profiles that a worker enforces, in the order of their names.
    pub profiles: Vec<String>,
}

/// Program that workers offer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OfferedProgram {
    /// Name for plans and pipelines.
    pub name: String,
    /// Number of workers that have it.
    pub workers: u64,
    /// Description of an agentic unit, left out if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}
