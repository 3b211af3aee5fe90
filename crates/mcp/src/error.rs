//! Failure of a tool, as a result that the model reads: what happened, and what to do next.

use agenix_client::ClientError;
use agenix_protocol::{documents::BadDocument, errors::ErrorKind, printable::printable};
use agenix_rules::rejection::Rejection;
use agenix_shell::Refusal;

pub(crate) type Result<T> = std::result::Result<T, ToolError>;

/// Failure of a tool.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem}\nNext: {help}")]
pub(crate) struct ToolError {
    problem: String,
    help: String,
    is_of_agq: bool,
}

impl ToolError {
    /// Creates an error. Texts of other programs are escaped.
    pub(crate) fn new(problem: impl AsRef<str>, help: impl Into<String>) -> Self {
        Self { problem: printable(problem.as_ref()), help: help.into(), is_of_agq: false }
    }

    /// Returns true if agq was away, failed, or rejected the command.
    pub(crate) fn is_of_agq(&self) -> bool {
        self.is_of_agq
    }

    /// Returns the error for an action that agq does not have.
    pub(crate) fn no_action(action_id: &str) -> Self {
        Self::new(
            format!("there is no action {action_id}, or it belongs to another key"),
            "use the action_id that agx_run has returned; actions that ended long ago are forgotten",
        )
    }

    /// Returns the error for a job that agq does not have.
    pub(crate) fn no_job(job_id: &str) -> Self {
        Self::new(
            format!("there is no job {job_id}, or it belongs to another key"),
            "take the job_id from agx_results or agx_status",
        )
    }
}

impl From<ClientError> for ToolError {
    fn from(error: ClientError) -> Self {
        let help = match &error {
            ClientError::Unreachable { .. } | ClientError::Tls { .. } | ClientError::StoreFailed { .. } => {
                "call the tool again later; jobs that agq has accepted are not lost"
            }
            ClientError::Unauthenticated { .. } => "a person has to give this server a valid key",
            ClientError::Unexpected(_) => "a person should check that agx and agq have the same version",
            ClientError::Rejected(reason) => advice(reason),
        };
        Self { is_of_agq: true, ..Self::new(error.outage_text(), help) }
    }
}

/// Returns what the model can do after agq has rejected a command.
fn advice(reason: &str) -> &'static str {
    match ErrorKind::of(reason) {
        ErrorKind::RefusedByPolicy => {
            "change the plan to a form that the policy allows; agq has stored nothing"
        }
        ErrorKind::InvalidInput | ErrorKind::InvalidAction => "correct the inputs; agq has stored nothing",
        ErrorKind::ApprovalExpired => "tell a person to approve the plan in time, and submit it again",
        ErrorKind::PlanRejected => {
            "a person has rejected this plan: do not run it in another form; ask the person"
        }
        ErrorKind::InvalidPlan => "correct the plan; agq has stored nothing",
        ErrorKind::MessageTooLarge | ErrorKind::TooManyInputs => {
            "divide the inputs among several calls, each with its own request_id"
        }
        ErrorKind::QueueFull => "submit it again when jobs of the queue have started",
        ErrorKind::ActionExists => "choose another request_id for another request",
        ErrorKind::BudgetUsed => "wait until the budget has room again; agx_budget shows when",
        _ if reason.starts_with("NOPERM") => "a person has to permit this for the key of this server",
        _ => "change the request according to the message",
    }
}

impl From<Refusal> for ToolError {
    fn from(refusal: Refusal) -> Self {
        Self::new(refusal.to_string(), refusal.instead())
    }
}

impl From<BadDocument> for ToolError {
    fn from(error: BadDocument) -> Self {
        Self::new(format!("invalid arguments: {error}"), "correct the argument that the message names")
    }
}

impl From<Rejection> for ToolError {
    fn from(rejection: Rejection) -> Self {
        let reason = rejection.to_string();
        let help = advice(&reason);
        Self::new(reason, help)
    }
}

#[cfg(test)]
mod tests {
    use agenix_client::ClientError;

    use super::ToolError;

    fn text(error: ClientError) -> String {
        ToolError::from(error).to_string()
    }

    #[test]
    fn error_says_what_to_do_next() {
        let away = ClientError::Unreachable { address: "h:1".into(), reason: "refused".into() };
        let expected = "cannot reach agq at h:1: refused\nNext: call the tool again later; jobs that agq has accepted are not lost";
        assert_eq!(text(away), expected);
        let reason = "the store failed: it is away".into();
        let expected = "the database of agq at h:1 is away or fails: the store failed: it is away\nNext: call the tool again later; jobs that agq has accepted are not lost";
        assert_eq!(text(ClientError::StoreFailed { address: "h:1".into(), reason }), expected);
        let rejected = |reason: &str| text(ClientError::Rejected(reason.into()));
        assert!(rejected("BUDGET used up: jobs 4 of 5").ends_with("agx_budget shows when"));
        assert!(rejected("Plan refused by policy: no").ends_with("agq has stored nothing"));
        assert!(rejected("Message too large: max 9 bytes").contains("Next: divide the inputs among several"));
        let refused = rejected("Approval of p is decided: rejected by admin:alice");
        assert!(refused.contains("Next: a person has rejected this plan"), "{refused}");
        assert!(rejected("NOPERM This key").ends_with("for the key of this server"));
    }

    #[test]
    fn text_of_other_programs_is_escaped() {
        assert!(text(ClientError::Rejected("a\u{1b}[2J".into())).starts_with("a\\x1b[2J\n"));
    }
}
