//! Errors of agx, each with advice and an exit code.

use agenix_client::ClientError;
use agenix_protocol::{errors::ErrorKind, ids::ActionId};

use crate::{docs_url::docs_url, documents::ErrorDocument};

pub(crate) type Result<T, E = CliError> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    /// Jobs did not complete, and their errors are printed already.
    #[error("{0}")]
    Jobs(String),
    /// The results of two actions differ, and the differences are printed already.
    #[error("{0}")]
    Different(String),
    /// Checks of `agx doctor` failed, and their findings are printed already.
    #[error("{0}")]
    ChecksFailed(String),
    /// A policy does not allow the command or the plan. The judgement is printed already.
    #[error("{0}")]
    NotAllowed(&'static str),
    /// Lines of an audit log are changed or missing. The finding is printed already.
    #[error("the audit log does not fit: lines were changed, or are missing")]
    AuditMisfit,
    /// A worker with this trust file would refuse the order.
    #[error("{0}")]
    NotTrusted(String),
    /// The provenance of a job does not prove its results.
    #[error("not proved: {0}")]
    Unproved(String),
    /// A language model gave no plan that passes the checks. `problem` has several lines.
    #[error("{problem}")]
    NoPlan { problem: String, help: String },
    /// The command line or a file is invalid.
    #[error("{problem}")]
    Usage { problem: String, help: String },
    /// The pipeline is invalid. `problem` has several lines that mark the position.
    #[error("{problem}")]
    Marked { problem: String, help: String },
    /// agq is unreachable or refuses the credentials.
    #[error("{problem}")]
    NoServer { problem: String, help: String },
    /// The server of a language model is unreachable, or gave no usable answer.
    #[error("{problem}")]
    NoAnswer { problem: String, help: String },
    /// agq rejected the command.
    #[error("agq refused: {problem}")]
    Rejected { problem: String, help: String },
    /// An object with this id does not exist.
    #[error("there is no {object} '{id}'")]
    NotThere { object: &'static str, id: String, help: String },
    /// The user interrupted the wait for an action.
    #[error("stopped waiting; action {0} continues")]
    Detached(ActionId),
    /// The user interrupted the output of a job or an action.
    #[error("stopped following; {0} continues")]
    Unfollowed(ActionId),
    /// The user interrupted a map, and the map has ended.
    #[error("ended before all jobs were done")]
    Interrupted,
    /// The command of `agx run` failed. `why` is `None` if the output and the code of the command
    /// show the reason.
    #[error("{}", why.as_deref().unwrap_or_default())]
    Command { exit_code: u8, why: Option<String> },
    /// A command of the user failed.
    #[error("{problem}")]
    HookFailed { problem: String, help: String },
    /// agx itself failed, in `agx run`.
    #[error("{failure}")]
    OfRun { failure: Box<CliError>, exit_code: u8 },
    /// The command has done only a part of its work, which `done` names.
    #[error("{failure}; {done}")]
    Partly { failure: Box<CliError>, done: String, help: String },
    /// The reader of stdout has closed it, so agx prints nothing more.
    #[error("stdout is closed")]
    BrokenPipe,
}

impl CliError {
    /// Returns the exit code that `agx --help` documents.
    pub(crate) fn exit_code(&self) -> u8 {
        self.codes().0
    }

    /// Returns the exit code, and the word for scripts that identifies the kind of error.
    fn codes(&self) -> (u8, &'static str) {
        match self {
            Self::Jobs(_) => (1, "jobs_failed"),
            Self::Different(_) => (1, "different"),
            Self::ChecksFailed(_) => (1, "checks_failed"),
            Self::NotAllowed(_) | Self::NoPlan { .. } => (1, "not_allowed"),
            Self::AuditMisfit => (1, "audit_misfit"),
            Self::NotTrusted(_) => (1, "not_trusted"),
            Self::Unproved(_) => (1, "not_proved"),
            Self::HookFailed { .. } => (1, "hook_failed"),
            Self::Usage { .. } | Self::Marked { .. } => (2, "usage"),
            Self::NoServer { .. } => (3, "no_server"),
            Self::NoAnswer { .. } => (3, "no_answer"),
            Self::Rejected { .. } | Self::NotThere { .. } => (4, "rejected"),
            Self::Detached(_) | Self::Unfollowed(_) => (130, "detached"),
            Self::Interrupted => (130, "interrupted"),
            Self::BrokenPipe => (141, "broken_pipe"),
            Self::Command { exit_code, .. } => (*exit_code, "command_failed"),
            Self::OfRun { failure, exit_code } => (*exit_code, failure.codes().1),
            Self::Partly { failure, .. } => failure.codes(),
        }
    }

    /// Returns the error for `agx run`, where other codes than `exit_code` are those of the
    /// command.
    pub(crate) fn of_run(self, exit_code: u8) -> Self {
        match self {
            Self::Detached(_) | Self::BrokenPipe | Self::Command { .. } | Self::OfRun { .. } => self,
            failure => Self::OfRun { failure: Box::new(failure), exit_code },
        }
    }

    /// Returns true if agq or its database was away, for longer than agx waits.
    pub(crate) fn is_outage(&self) -> bool {
        match self {
            Self::NoServer { .. } => true,
            Self::Rejected { problem, .. } => ErrorKind::of(problem) == ErrorKind::StoreFailed,
            Self::Partly { failure, .. } => failure.is_outage(),
            _ => false,
        }
    }

    /// Returns true if agq no longer has the output of a job, or cannot read it. The outputs of
    /// other jobs may be sound.
    pub(crate) fn is_of_an_output(&self) -> bool {
        match self {
            Self::Jobs(_) | Self::NotThere { object: "job", .. } => true,
            Self::Rejected { problem, .. } => {
                matches!(ErrorKind::of(problem), ErrorKind::BlobStoreFailed | ErrorKind::BlobNotFound)
            }
            _ => false,
        }
    }

    /// Returns true if the user needs no message.
    pub(crate) fn is_silent(&self) -> bool {
        matches!(self, Self::BrokenPipe | Self::Command { why: None, .. })
    }

    /// Returns true if the message has several lines.
    pub(crate) fn has_lines(&self) -> bool {
        match self {
            Self::OfRun { failure, .. } | Self::Partly { failure, .. } => failure.has_lines(),
            failure => matches!(failure, Self::Marked { .. } | Self::NoPlan { .. }),
        }
    }

    pub(crate) fn help(&self) -> Option<String> {
        match self {
            Self::Usage { help, .. }
            | Self::Marked { help, .. }
            | Self::NoPlan { help, .. }
            | Self::NoServer { help, .. }
            | Self::NoAnswer { help, .. }
            | Self::Rejected { help, .. }
            | Self::HookFailed { help, .. }
            | Self::NotThere { help, .. } => Some(help.clone()),
            Self::Detached(id) => {
                Some(format!("watch it again with `agx action watch {id}`; `agx action cancel {id}` ends it"))
            }
            Self::Unfollowed(id) => Some(format!("follow it again with `agx logs -f {id}`")),
            Self::OfRun { failure, .. } => failure.help(),
            Self::Partly { failure, help, .. } => {
                let first = failure.help().map(|first| format!("{first}; ")).unwrap_or_default();
                Some(first + help)
            }
            Self::Jobs(_)
            | Self::Different(_)
            | Self::ChecksFailed(_)
            | Self::NotAllowed(_)
            | Self::AuditMisfit
            | Self::NotTrusted(_)
            | Self::Unproved(_)
            | Self::Interrupted
            | Self::BrokenPipe
            | Self::Command { .. } => None,
        }
    }

    pub(crate) fn document(&self) -> ErrorDocument {
        let (exit_code, code) = self.codes();
        ErrorDocument { code, message: self.to_string(), help: self.help(), exit_code }
    }

    pub(crate) fn usage(problem: impl Into<String>, help: impl Into<String>) -> Self {
        Self::Usage { problem: problem.into(), help: help.into() }
    }

    /// Returns the failure of a command that has done a part of its work, which `done` names.
    pub(crate) fn after(self, done: impl Into<String>, help: impl Into<String>) -> Self {
        Self::Partly { failure: Box::new(self), done: done.into(), help: help.into() }
    }

    /// Returns the error for a missing object. `object` names its kind, for example "plan".
    pub(crate) fn not_found(object: &'static str, id: &impl ToString, help: &str) -> Self {
        Self::NotThere { object, id: id.to_string(), help: help.into() }
    }

    /// Returns the error for a command that agq rejected.
    fn rejected(reason: &str) -> Self {
        let kind = ErrorKind::of(reason);
        let help = advice(kind);
        match (missing_object(kind), reason.split_once(": ")) {
            (Some(object), Some((_, id))) => Self::not_found(object, &id, help),
            _ => Self::Rejected { problem: reason.into(), help: help.into() },
        }
    }

    /// Returns the error with a suggestion of `other` in front of the advice.
    pub(crate) fn suggesting(self, other: &str) -> Self {
        match self {
            Self::NotThere { object, id, help } => {
                Self::NotThere { object, id, help: format!("did you mean '{other}'? {help}") }
            }
            failure => failure,
        }
    }
}

impl From<ClientError> for CliError {
    fn from(error: ClientError) -> Self {
        let help = match &error {
            ClientError::Tls { help, .. } => help,
            error if let Some(help) = error.limit_help() => help,
            ClientError::Unreachable { reason, .. } if is_nobody_there(reason) => {
                "nothing is running there: start one with `agq`, or an agq and a worker on this machine with `agx up`, or give \
                 its address with --agq or AGQ_ADDR: HOST:PORT, rediss://HOST:PORT for TLS, or unix:/PATH"
            }
            ClientError::Unreachable { .. } => {
                "start one with `agq`, or an agq and a worker on this machine with `agx up`, or give its address with --agq or \
                 AGQ_ADDR: HOST:PORT, rediss://HOST:PORT for TLS, or unix:/PATH"
            }
            ClientError::Unauthenticated { .. } => {
                "set AGQ_SESSION_KEY or --session-key-file to a key that agq knows"
            }
            ClientError::Rejected(reason) => return Self::rejected(reason),
            ClientError::StoreFailed { .. } => {
                "look at agq's log: its database may be away, or its disk full or broken"
            }
            ClientError::Unexpected(_) => {
                "is it an agq, of the version of `agx --version`? with TLS: rediss://HOST:PORT"
            }
        };
        let (problem, help) = (error.to_string(), help.to_owned());
        match error {
            ClientError::StoreFailed { .. } | ClientError::Unexpected(_) => Self::Rejected { problem, help },
            _ => Self::NoServer { problem, help },
        }
    }
}

/// Returns true if no process listens at the address: the port is closed, or there is no socket.
fn is_nobody_there(reason: &str) -> bool {
    ["Connection refused", "No such file or directory"].iter().any(|text| reason.contains(text))
}

/// Returns the kind of the object that agq does not have, if `kind` is the error of one.
fn missing_object(kind: ErrorKind) -> Option<&'static str> {
    match kind {
        ErrorKind::PlanNotFound => Some("plan"),
        ErrorKind::ActionNotFound => Some("action"),
        ErrorKind::JobNotFound => Some("job"),
        ErrorKind::WorkerNotRegistered => Some("worker"),
        ErrorKind::WorkflowNotFound => Some("workflow"),
        _ => None,
    }
}

/// Advice about a workflow that does not exist.
pub(crate) const WORKFLOW_HELP: &str = "see the workflows with `agx workflow list`";

fn advice(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::PlanExists => "submit it under another plan_id, or use the existing one",
        ErrorKind::PlanNotFound => {
            "see the plans with `agx plan list`, or submit it with `agx plan submit FILE`"
        }
        ErrorKind::ActionNotFound => "see the actions with `agx history`",
        ErrorKind::JobNotFound => "see the jobs of an action with `agx job list ACTION_ID`",
        ErrorKind::RetriesExceeded => "the job is dead: `agx job retry --force JOB_ID` retries it",
        ErrorKind::JobNotFailed => {
            "only failed jobs are retried, and with --force also dead and cancelled ones"
        }
        ErrorKind::WorkflowNotFound => WORKFLOW_HELP,
        ErrorKind::WorkerNotRegistered => "see the workers with `agx worker list`",
        ErrorKind::ActionExists => "choose another --id; an id stands for one plan and its inputs",
        ErrorKind::InvalidPlan => "fix the plan, and check it with `agx plan check FILE`",
        ErrorKind::RefusedByPolicy => {
            "change the plan as the reason says, or ask the owner of agq to change its policy"
        }
        ErrorKind::ApprovalExpired => {
            "delete the plan with `agx plan delete PLAN_ID`, and submit it again, so that agq asks again"
        }
        ErrorKind::PlanRejected => "ask the person who has rejected the plan",
        ErrorKind::InvalidAction | ErrorKind::InvalidInput => {
            "fix the inputs: each is an object with the fields that the plan's {{input.…}} name"
        }
        ErrorKind::TooManyInputs => "submit them as several actions, or raise agq's --max-inputs",
        ErrorKind::QueueFull => "try again when jobs of the queue have started, or submit fewer inputs",
        ErrorKind::BudgetUsed => "`agx budget` shows the budget of your key, and when it has room again",
        ErrorKind::MessageTooLarge => {
            "submit the inputs as several actions, or raise agq's --max-message-bytes"
        }
        ErrorKind::NotPermitted => {
            concat!("use a key that may do this; the roles are in ", docs_url!("security.md"))
        }
        _ => concat!("agq accepts the commands of ", docs_url!("protocol/README.md")),
    }
}

impl From<std::io::Error> for CliError {
    fn from(error: std::io::Error) -> Self {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            return Self::BrokenPipe;
        }
        Self::usage(
            format!("the output could not be written: {error}"),
            "check that stdout is open and that the disk is not full",
        )
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Error, ErrorKind};

    use super::{CliError, ClientError};

    #[test]
    fn damaged_or_missing_output_is_the_failure_of_one_job() {
        let is_of_one = |reason: &str| CliError::from(ClientError::Rejected(reason.into())).is_of_an_output();
        assert!(is_of_one("the blob store failed: the file 5d/8f of a blob is damaged"));
        assert!(is_of_one("Blob not found: 5d8f"));
        assert!(is_of_one("Job not found: j"));
        for of_all in ["NOPERM not permitted", "Action not found: a", "the store failed: it is away"] {
            assert!(!is_of_one(of_all), "{of_all}");
        }
        assert!(!CliError::from(Error::from(ErrorKind::BrokenPipe)).is_of_an_output());
        assert!(!CliError::from(Error::from(ErrorKind::StorageFull)).is_of_an_output());
    }

    #[test]
    fn refusal_has_the_advice_that_helps() {
        let of = |reason: &str| CliError::from(ClientError::Rejected(reason.into()));
        assert!(of("Max retries exceeded").help().unwrap().contains("`agx job retry --force JOB_ID`"));
        assert!(of("Job not in failed status").help().unwrap().contains("--force"));
        let workflow = of("Workflow not found: w");
        assert_eq!(workflow.to_string(), "there is no workflow 'w'");
        assert_eq!(workflow.help().unwrap(), "see the workflows with `agx workflow list`");
        let fast = ClientError::Unreachable {
            address: "a:1".into(),
            reason: "Too many commands: max 100 a second".into(),
        };
        assert!(CliError::from(fast).help().unwrap().contains("--max-commands-per-second"));
    }
}
