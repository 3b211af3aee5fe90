//! Admission of a task: the policy and the signed order by which a worker ran it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Policy and signed order by which a worker ran a task.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TaskAdmission {
    /// SHA-256 of the file of the worker's policy, as `sha256:…`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// Rule of the policy that allowed the task, as `tools.sort`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// SHA-256 of the signed bytes of the order, as `sha256:…`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<String>,
    /// Names of the signers of the order, from the trust file of the worker.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub signers: Vec<String>,
    /// Names of the signers who only approved the order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub approvers: Vec<String>,
}
