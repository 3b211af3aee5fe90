//! Uniqueness of the jobs of an action.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::is_default;

/// Uniqueness of the jobs of an action: a job that another one with the same key makes superfluous
/// is refused, left out, or replaces the other one.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UniqueJobs {
    /// Template of the key, with placeholders of the input, as `order:{{input.order}}`. Default:
    /// the plan and the whole input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Resolution of a conflict with an earlier job. Default: `reject`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub on_conflict: UniqueConflict,
    /// States of the Open Job Spec in which an earlier job counts. Default: those of a job that has
    /// not ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub states: Vec<String>,
    /// Duration of ISO 8601 from its submission in which an earlier job counts. Default: no bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub period: Option<String>,
}

/// Resolution of a conflict between a new job and an earlier job with the same key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum UniqueConflict {
    /// Refuses the submission.
    #[default]
    Reject,
    /// Leaves the new job out.
    Ignore,
    /// Cancels the earlier job.
    Replace,
}
