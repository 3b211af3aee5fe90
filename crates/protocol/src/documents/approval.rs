//! Approvals: plans that a policy lets run only after a person has approved them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    ids::{ActionId, PlanId},
    time::Timestamp,
};

/// State of an approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalState {
    /// A person has to decide. Jobs of the plan are staged.
    Waiting,
    /// Jobs of the plan run.
    Approved,
    /// Jobs of the plan are cancelled, and no further ones are accepted.
    Rejected,
    /// Nobody decided in time. The effect is that of a rejection.
    Expired,
}

impl ApprovalState {
    /// Returns the word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Approved => "approved",
            Self::Rejected => "rejected",
            Self::Expired => "expired",
        }
    }
}

/// Jobs that an approval is about.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalScope {
    /// All jobs of the plan.
    #[default]
    Plan,
    /// Actions of the plan with many jobs. All others run.
    LargeActions,
}

impl ApprovalScope {
    fn is_plan(&self) -> bool {
        *self == Self::Plan
    }
}

/// Approval of a plan, requested or decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Approval {
    /// The plan.
    pub plan_id: PlanId,
    /// SHA-256 of the plan and of the policy that asks, in hexadecimal digits. A decision names it.
    pub digest: String,
    /// SHA-256 of the policy that asks, in hexadecimal digits.
    pub policy: String,
    /// Role and name of the key that submitted the plan, as `agent:robot`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submitted_by: Option<String>,
    /// Reasons of the policy, each with its place.
    pub reasons: Vec<String>,
    /// Jobs that the approval is about.
    #[serde(default, skip_serializing_if = "ApprovalScope::is_plan")]
    pub scope: ApprovalScope,
    /// State.
    pub state: ApprovalState,
    /// Time of the submission of the plan.
    pub requested_at: Timestamp,
    /// Time at which the request ends without a decision; null for never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// Role and name of the key that decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_by: Option<String>,
    /// Time of the decision, or of the end without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_at: Option<Timestamp>,
    /// Actions whose jobs waited for the decision.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub actions: Vec<ActionId>,
    /// Roles and names of other keys that submitted large actions. They cannot approve either.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub submitters: Vec<String>,
    /// True if the decision has been applied to these actions.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub settled: bool,
}
