//! Budgets of named keys: how much of each amount is used in the sliding window.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

/// Use of a budget, in the answer of `BUDGET.GET`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BudgetStatus {
    /// Name of the key.
    pub name: String,
    /// Length of the sliding window, in hours.
    pub per_hours: u64,
    /// Submitted jobs.
    pub jobs: AmountStatus,
    /// Submitted plans.
    pub plans: AmountStatus,
    /// Jobs that run now.
    pub running: AmountStatus,
    /// Processor time of tasks, in seconds.
    pub cpu_secs: AmountStatus,
    /// Bytes that tasks wrote to stdout and stderr.
    pub output_bytes: AmountStatus,
}

impl BudgetStatus {
    /// Returns all amounts with their names.
    pub fn amounts(&self) -> [(&'static str, &AmountStatus); 5] {
        [
            ("jobs", &self.jobs),
            ("plans", &self.plans),
            ("running", &self.running),
            ("cpu_secs", &self.cpu_secs),
            ("output_bytes", &self.output_bytes),
        ]
    }
}

/// Use of one amount of a budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct AmountStatus {
    /// Used part, reservations of running jobs included.
    pub used: u64,
    /// Maximum. Left out if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// Time at which the first used part comes back. Left out if none does so by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_at: Option<Timestamp>,
}
