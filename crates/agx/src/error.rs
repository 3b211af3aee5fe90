//! Why agx did not do what it was asked, what to do next, and the exit code that says so.

use agenix_client::ClientError;
use agenix_protocol::ids::ActionId;

use crate::documents::ErrorDocument;

/// A failure for a person, and for a script.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    /// Jobs did not complete; what they are was already shown.
    #[error("{0}")]
    Jobs(String),
    /// The command line or a file is wrong.
    #[error("{what}")]
    Usage { what: String, help: String },
    /// The pipeline is wrong. `what` has several lines that mark the position.
    #[error("{what}")]
    Marked { what: String, help: String },
    /// There is no agq, or it does not let us in.
    #[error("{what}")]
    NoServer { what: String, help: String },
    /// agq said no.
    #[error("agq refused: {what}")]
    Rejected { what: String, help: String },
    /// Something that was asked for is not there.
    #[error("there is no {what} '{id}'")]
    NotThere { what: &'static str, id: String, help: String },
    /// The person stopped waiting.
    #[error("not waiting any more; action {0} goes on")]
    Detached(ActionId),
    /// The person has seen enough of what a job or an action writes.
    #[error("not following any more; {0} goes on")]
    Unfollowed(ActionId),
    /// The person did not want it any more, and it has ended.
    #[error("ended before all jobs had")]
    Interrupted,
    /// The reader of our output has gone: nothing to say, and nobody to say it to.
    #[error("nobody reads the output")]
    BrokenPipe,
}

impl CliError {
    /// The exit code, as `agx --help` documents it.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Jobs(_) => 1,
            Self::Usage { .. } | Self::Marked { .. } => 2,
            Self::NoServer { .. } => 3,
            Self::Rejected { .. } | Self::NotThere { .. } => 4,
            Self::Detached(_) | Self::Unfollowed(_) | Self::Interrupted => 130,
            Self::BrokenPipe => 141,
        }
    }

    /// One word for scripts.
    fn code(&self) -> &'static str {
        match self {
            Self::Jobs(_) => "jobs_failed",
            Self::Usage { .. } | Self::Marked { .. } => "usage",
            Self::NoServer { .. } => "no_server",
            Self::Rejected { .. } | Self::NotThere { .. } => "rejected",
            Self::Detached(_) | Self::Unfollowed(_) => "detached",
            Self::Interrupted => "interrupted",
            Self::BrokenPipe => "broken_pipe",
        }
    }

    /// What to do next.
    pub(crate) fn help(&self) -> Option<String> {
        match self {
            Self::Usage { help, .. }
            | Self::Marked { help, .. }
            | Self::NoServer { help, .. }
            | Self::Rejected { help, .. }
            | Self::NotThere { help, .. } => Some(help.clone()),
            Self::Detached(id) => {
                Some(format!("watch it again with `agx action watch {id}`; `agx action cancel {id}` ends it"))
            }
            Self::Unfollowed(id) => Some(format!("follow it again with `agx logs -f {id}`")),
            Self::Jobs(_) | Self::Interrupted | Self::BrokenPipe => None,
        }
    }

    /// The failure as a document.
    pub(crate) fn document(&self) -> ErrorDocument {
        ErrorDocument {
            code: self.code(),
            message: self.to_string(),
            help: self.help(),
            exit_code: self.exit_code(),
        }
    }

    pub(crate) fn usage(what: impl Into<String>, help: impl Into<String>) -> Self {
        Self::Usage { what: what.into(), help: help.into() }
    }

    /// Something that was asked for is not there.
    pub(crate) fn not_found(what: &'static str, id: &impl ToString, help: &str) -> Self {
        Self::NotThere { what, id: id.to_string(), help: help.into() }
    }

    /// The same, with what was meant before what to do.
    pub(crate) fn meant(self, other: &str) -> Self {
        match self {
            Self::NotThere { what, id, help } => {
                Self::NotThere { what, id, help: format!("did you mean '{other}'? {help}") }
            }
            failure => failure,
        }
    }
}

impl From<ClientError> for CliError {
    fn from(error: ClientError) -> Self {
        let what = error.to_string();
        match error {
            ClientError::Tls { help, .. } => Self::NoServer { what, help: help.into() },
            ClientError::Unreachable { reason, .. } if reason.starts_with("Too many connections") => {
                let help = "end some of them, or raise agq's --max-connections-per-ip; over a Unix socket there is no limit";
                Self::NoServer { what, help: help.into() }
            }
            ClientError::Unreachable { .. } => {
                let help = "start one with `agq`, or an agq and a worker on this machine with `agx up`, or say where it is with --agq or AGQ_ADDR: HOST:PORT, \
                            rediss://HOST:PORT for TLS, or unix:/PATH";
                Self::NoServer { what, help: help.into() }
            }
            ClientError::Unauthenticated { .. } => {
                let help = "set AGQ_SESSION_KEY or --session-key-file to a key that agq knows";
                Self::NoServer { what, help: help.into() }
            }
            ClientError::Rejected(reason) => {
                let help = help_for(&reason);
                let is_missing = |(what, says): &(&'static str, &str)| {
                    Some(Self::not_found(what, &reason.strip_prefix(says)?, help))
                };
                let missing = MISSING.iter().find_map(is_missing);
                missing.unwrap_or_else(|| Self::Rejected { what: reason.clone(), help: help.into() })
            }
            ClientError::StoreFailed(_) => {
                Self::Rejected { what, help: "look at agq's log: its disk may be full or broken".into() }
            }
            ClientError::Unexpected(_) => Self::Rejected {
                what,
                help: "is it an agq, of the version of `agx --version`? with TLS: rediss://HOST:PORT".into(),
            },
        }
    }
}

/// How agq says that something is not there.
const MISSING: [(&str, &str); 4] = [
    ("plan", "Plan not found: "),
    ("action", "Action not found: "),
    ("job", "Job not found: "),
    ("worker", "Worker not registered: "),
];

fn help_for(reason: &str) -> &'static str {
    match reason {
        _ if reason.starts_with("Plan already exists") => {
            "submit it under another plan_id, or use the one that is there"
        }
        _ if reason.starts_with("Plan not found") => {
            "see the plans with `agx plan list`, or submit it with `agx plan submit FILE`"
        }
        _ if reason.starts_with("Action not found") => "see the actions with `agx history`",
        _ if reason.starts_with("Job not found") => "see the jobs of an action with `agx job list ACTION_ID`",
        _ if reason.starts_with("Worker not registered") => "see the workers with `agx worker list`",
        _ if reason.starts_with("Action already exists") => {
            "choose another --id; an id stands for one plan and its inputs"
        }
        _ if reason.starts_with("Invalid plan schema") => {
            "mend the plan and try it with `agx plan check FILE`"
        }
        _ if reason.starts_with("Invalid action schema") => {
            "mend the inputs: each is an object with the fields that the plan's {{input.…}} name"
        }
        _ if reason.starts_with("Too many inputs") => {
            "submit them as several actions, or raise agq's --max-inputs"
        }
        _ if reason.starts_with("Message too large") => {
            "submit the inputs as several actions, or raise agq's --max-message-bytes"
        }
        _ if reason.starts_with("NOPERM") => {
            "use a key that may do this: docs/security.md says which role may do what"
        }
        _ => "see docs/protocol/README.md for what agq accepts",
    }
}

impl From<std::io::Error> for CliError {
    fn from(error: std::io::Error) -> Self {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            return Self::BrokenPipe;
        }
        Self::usage(
            format!("the output could not be written: {error}"),
            "is stdout open, and has the disk room?",
        )
    }
}
