//! Kinds of agq's error lines, for clients that react to some kinds.
//!
//! An error of the wire is a text. The beginning of the text is part of the protocol, and clients
//! compare it only in this module.

/// Kind of an error line of agq.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// An id names another plan.
    PlanExists,
    /// The plan does not exist.
    PlanNotFound,
    /// The plan is invalid.
    InvalidPlan,
    /// The policy of agq does not allow the plan.
    RefusedByPolicy,
    /// Nobody has approved the plan in time.
    ApprovalExpired,
    /// A person has rejected the plan.
    PlanRejected,
    /// An id names another action.
    ActionExists,
    /// The action does not exist.
    ActionNotFound,
    /// The action takes no more inputs, because its halt policy was met.
    ActionHalted,
    /// One input of the action is invalid.
    InvalidInput,
    /// The action is invalid.
    InvalidAction,
    /// The action would have too many inputs.
    TooManyInputs,
    /// The queue has no room for the jobs, and the command may succeed when jobs have started.
    QueueFull,
    /// The budget of the key has no room for the jobs or plans.
    BudgetUsed,
    /// The job does not exist.
    JobNotFound,
    /// The job is dead, and `JOB.RETRY` has no `FORCE`.
    RetriesExceeded,
    /// The job has no state from which it can be retried.
    JobNotFailed,
    /// The workflow does not exist.
    WorkflowNotFound,
    /// The worker is not registered.
    WorkerNotRegistered,
    /// The worker did not send the output of a job in time.
    OutputNotAvailable,
    /// The worker does not hold the job.
    NotHolder,
    /// The report is about an earlier attempt.
    StaleAttempt,
    /// The job does not run.
    JobNotActive,
    /// The chunk does not follow the bytes that agq has received, for example after a restart.
    UploadOffset,
    /// agq does not accept the bytes of an upload.
    InvalidUpload,
    /// agq cannot read the file of the worker.
    UnreadableFile,
    /// The report names a blob that agq does not have.
    BlobNotFound,
    /// The storage of blobs failed, and the command may succeed later.
    BlobStoreFailed,
    /// The command is too large. agq closes the connection.
    MessageTooLarge,
    /// The address has too many connections. agq closes the new connection.
    TooManyConnections,
    /// The client sends commands too fast. agq closes the connection.
    TooManyCommands,
    /// The command did not arrive completely in time. agq closes the connection.
    CommandIncomplete,
    /// The key may not use the command.
    NotPermitted,
    /// The connection has no valid key.
    NotAuthenticated,
    /// The store failed, and the command may succeed later.
    StoreFailed,
    /// Any other error.
    Other,
}

/// Beginnings of error lines. Of two beginnings where one begins with the other, the longer comes
/// first.
const PREFIXES: [(&str, ErrorKind); 35] = [
    ("Plan already exists", ErrorKind::PlanExists),
    ("Plan not found", ErrorKind::PlanNotFound),
    ("Invalid plan schema", ErrorKind::InvalidPlan),
    ("Plan refused by policy", ErrorKind::RefusedByPolicy),
    ("Action already exists", ErrorKind::ActionExists),
    ("Action not found", ErrorKind::ActionNotFound),
    ("Action has halted", ErrorKind::ActionHalted),
    ("Invalid action schema: inputs[", ErrorKind::InvalidInput),
    ("Invalid action schema", ErrorKind::InvalidAction),
    ("Too many inputs", ErrorKind::TooManyInputs),
    ("Queue is full", ErrorKind::QueueFull),
    ("BUDGET", ErrorKind::BudgetUsed),
    ("Job not found", ErrorKind::JobNotFound),
    ("Max retries exceeded", ErrorKind::RetriesExceeded),
    ("Job not in failed status", ErrorKind::JobNotFailed),
    ("Workflow not found", ErrorKind::WorkflowNotFound),
    ("Worker not registered", ErrorKind::WorkerNotRegistered),
    ("Output not available", ErrorKind::OutputNotAvailable),
    ("Stale attempt", ErrorKind::StaleAttempt),
    ("Job is not active", ErrorKind::JobNotActive),
    ("Invalid upload: offset", ErrorKind::UploadOffset),
    ("Invalid upload: it has", ErrorKind::UploadOffset),
    ("Invalid upload", ErrorKind::InvalidUpload),
    ("Unreadable file", ErrorKind::UnreadableFile),
    ("Blob not found", ErrorKind::BlobNotFound),
    ("the blob store failed", ErrorKind::BlobStoreFailed),
    ("Message too large", ErrorKind::MessageTooLarge),
    ("Too many connections", ErrorKind::TooManyConnections),
    ("Too many commands", ErrorKind::TooManyCommands),
    ("a command was not complete within", ErrorKind::CommandIncomplete),
    ("NOPERM", ErrorKind::NotPermitted),
    ("NOAUTH", ErrorKind::NotAuthenticated),
    ("WRONGPASS", ErrorKind::NotAuthenticated),
    ("Invalid session key", ErrorKind::NotAuthenticated),
    ("the store failed", ErrorKind::StoreFailed),
];

impl ErrorKind {
    /// Returns the kind of an error line, with or without its `ERR`.
    ///
    /// # Examples
    ///
    /// ```
    /// use agenix_protocol::errors::ErrorKind;
    ///
    /// assert_eq!(ErrorKind::of("ERR Plan not found: sort"), ErrorKind::PlanNotFound);
    /// assert_eq!(ErrorKind::of("ERR syntax error"), ErrorKind::Other);
    /// ```
    pub fn of(line: &str) -> Self {
        let text = line.strip_prefix("ERR ").unwrap_or(line);
        // The text begins with the id of the worker.
        if text.starts_with("Worker ") && text.contains(" cannot update job claimed by ") {
            return Self::NotHolder;
        }
        // The text begins with the id of the plan.
        let decided = text.strip_prefix("Approval of ").and_then(|rest| rest.split_once(" is decided: "));
        match decided.map(|(_, how)| how) {
            Some(how) if how.starts_with("expired") => return Self::ApprovalExpired,
            Some(how) if how.starts_with("rejected") => return Self::PlanRejected,
            _ => {}
        }
        let known = PREFIXES.iter().find(|(prefix, _)| text.starts_with(prefix));
        known.map_or(Self::Other, |&(_, kind)| kind)
    }
}

#[cfg(test)]
mod tests {
    use super::{ErrorKind, PREFIXES};

    #[test]
    fn error_kinds_follow_from_every_prefix() {
        for (prefix, kind) in PREFIXES {
            assert_eq!(ErrorKind::of(prefix), kind, "{prefix}");
            assert_eq!(ErrorKind::of(&format!("ERR {prefix} x")), kind, "{prefix}");
        }
    }

    #[test]
    fn error_kind_of_an_input_differs_from_that_of_the_action() {
        let of = ErrorKind::of;
        assert_eq!(of("Invalid action schema: inputs[3].line contains a NUL byte"), ErrorKind::InvalidInput);
        let index = "Invalid action schema: AT is 4, but the action has 3 inputs";
        assert_eq!(of(index), ErrorKind::InvalidAction);
        assert_eq!(of("Action is not open: a"), ErrorKind::Other);
    }
}
