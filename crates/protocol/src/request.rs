//! Commands: parses their arguments to a [`Request`], and encodes a request to arguments.
//!
//! `table` has a row for each command, `command` defines the rows, and `keys` has the Redis
//! commands on keys of users.

mod arguments;
mod backup;
mod command;
mod encode;
mod keys;
mod options;
mod outputs;
mod session;
mod table;

use std::collections::BTreeMap;

use bytes::Bytes;

use self::arguments::text;
pub use self::{
    backup::BackupCommand,
    command::{AgentAccess, Command, CommandAccess, CommandKind},
    keys::{BlockingPop, Conditions, Expiry, KeyCommand, ListEnd, SetOptions, Span, ZAddOptions, integer_of},
    options::{DEFAULT_LIMIT, Page, Search, Slice},
    outputs::{OpenFile, OutputCommand, UploadKey},
    session::ClientCommand,
};
use crate::{
    documents::Status,
    ids::{ActionId, JobId, PlanId, QueueName, WorkerId},
    resp::RespVersion,
};

/// Command with checked arguments. JSON documents stay bytes for the command's handler.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "docs/protocol describes each command and its arguments")]
pub enum Request {
    Auth { key: Secret },
    Hello { version: Option<RespVersion>, auth: Option<Secret>, name: Option<Bytes> },
    Client(ClientCommand),
    Ping { message: Option<Bytes> },
    Echo { message: Bytes },
    Select,
    Reset,
    Quit,
    CommandInfo { names: Option<Vec<String>> },
    CommandCount,
    CommandDocs { names: Vec<String> },
    Info { sections: Vec<String> },
    Multi,
    Exec,
    Discard,
    Subscribe { channels: Vec<Bytes> },
    PSubscribe { patterns: Vec<Bytes> },
    Unsubscribe { channels: Vec<Bytes> },
    PUnsubscribe { patterns: Vec<Bytes> },
    Publish { channel: Bytes, message: Bytes },
    Key(KeyCommand),
    BlockingPop(BlockingPop),
    PlanSubmit { plan: Bytes },
    PlanGet { plan_id: PlanId },
    PlanStatus { plan_id: PlanId },
    PlanOrder { plan_id: PlanId },
    PlanList { page: Page },
    PlanDelete { plan_id: PlanId },
    PlanApprove { plan_id: PlanId, digest: String },
    PlanReject { plan_id: PlanId, digest: String },
    ApprovalList,
    ActionSubmit { action: Bytes },
    ActionStatus { action_id: ActionId },
    ActionList { page: Page, labels: BTreeMap<String, String> },
    ActionAdd { action_id: ActionId, inputs: Bytes, at: Option<u64> },
    ActionClose { action_id: ActionId },
    ActionCancel { action_id: ActionId, unstarted: bool },
    ActionRetry { action_id: ActionId },
    JobClaim { queues: Vec<QueueName>, timeout: BlockingWait, count: usize },
    JobStatus { job_id: JobId },
    JobUpdate { job_id: JobId, update: Bytes },
    JobList { action_id: ActionId, status: Option<Status>, slice: Slice },
    JobRetry { job_id: JobId, force: bool },
    JobCancel { job_id: JobId },
    JobForget { job_id: JobId },
    JobExplain { job_id: JobId },
    JobOutput { job_id: JobId, position: Option<Bytes> },
    JobsSearch { search: Search },
    Output(OutputCommand),
    WorkerRegister { worker: Bytes },
    WorkerHeartbeat { worker_id: WorkerId, stats: Option<Bytes> },
    WorkerUnregister { worker_id: WorkerId },
    WorkerList,
    WorkerGet { worker_id: WorkerId },
    WorkerDrain { worker_id: WorkerId, by: Option<String> },
    WorkerTerminate { worker_id: WorkerId },
    WorkerResume { worker_id: WorkerId },
    WorkerVerify { capability: String, challenge: Bytes, worker_id: Option<WorkerId> },
    WorkerAnswer { challenge_id: Bytes, answer: Bytes },
    WorkerOutput { request_id: Bytes, output: Bytes },
    CapabilitySearch { words: Vec<String>, limit: usize },
    CapabilityList { name_part: String, limit: usize },
    BudgetGet { name: Option<String> },
    QueueStats { queue: Option<String> },
    QueuePeek { queue: QueueName, count: usize },
    QueuePause { queue: QueueName },
    QueueResume { queue: QueueName },
    ScheduleSet { schedule: Bytes },
    ScheduleGet { name: String },
    ScheduleList { page: Page },
    ScheduleDelete { name: String },
    WorkflowSubmit { workflow: Bytes },
    WorkflowStatus { workflow_id: String },
    WorkflowList { page: Page },
    WorkflowCancel { workflow_id: String },
    Metrics { prometheus: bool },
    Backup(BackupCommand),
}

/// Session key, which the `Debug` output hides.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub Bytes);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Timeout of a blocking command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockingWait {
    /// Waits without a bound (`0` on the wire).
    Forever,
    /// Maximum wait in milliseconds.
    Ms(u64),
}

/// Concurrency of a command with the commands before and after it on its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Concurrency {
    /// Runs alone on its connection, because the command changes the session or blocks.
    Alone,
    /// Claims jobs. The command may overlap with the writes before it and keeps its position, and
    /// no later command starts before the claim ends.
    Claim,
    /// Reads. The command starts after every earlier write has ended.
    Read,
    /// Writes, or accesses no data. Many such commands may overlap.
    Write,
}

/// Error of arguments that are not a valid command.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// No command has the name.
    #[error("Unknown command '{0}'")]
    Unknown(String),
    /// AUTH has a wrong number of arguments. The text is that of RESP spec §4.
    #[error("AUTH requires exactly one argument")]
    AuthArguments,
    /// AUTH has an empty key. The text is that of RESP spec §4.
    #[error("AUTH key cannot be empty")]
    AuthEmpty,
    /// HELLO has an unsupported version. The text is that of Redis.
    #[error("unsupported protocol version")]
    HelloVersion,
    /// The number or form of the arguments is wrong; [`Request::parse`] returns the usage instead.
    #[error("Invalid arguments")]
    Syntax,
    /// An argument has an invalid value.
    #[error("Invalid arguments: {0}")]
    Arguments(String),
    /// Redis refuses the arguments. The text is that of Redis.
    #[error("{0}")]
    Refused(&'static str),
}

impl RequestError {
    /// Returns the error line without its `-`.
    pub fn line(&self) -> String {
        match self {
            Self::HelloVersion => format!("NOPROTO {self}"),
            _ => format!("ERR {self}"),
        }
    }
}

impl Request {
    /// Parses a command with its table row. Never returns [`RequestError::Syntax`].
    pub fn parse(args: &[Bytes]) -> Result<(&'static Command, Self), RequestError> {
        Self::parse_known(Command::of(args), args)
    }

    /// Parses a command whose row in the table is known. Errors are those of [`Self::parse`].
    pub fn parse_known(
        command: Option<&'static Command>,
        args: &[Bytes],
    ) -> Result<(&'static Command, Self), RequestError> {
        let Some(command) = command else {
            let name =
                args.first().map(|name| String::from_utf8_lossy(name).chars().take(64).collect::<String>());
            return Err(RequestError::Unknown(name.unwrap_or_default().escape_debug().to_string()));
        };
        let syntax = if command.syntax.is_empty() { "without arguments" } else { command.syntax };
        let usage = || RequestError::Arguments(format!("use {} {syntax}", command.name));
        if command.name == "AUTH" && !(2..=3).contains(&args.len()) {
            return Err(RequestError::AuthArguments);
        }
        if !command.takes(args.len()) {
            return Err(usage());
        }
        match (command.parse)(args.get(1..).unwrap_or_default()) {
            Err(RequestError::Syntax) => Err(usage()),
            parsed => parsed.map(|request| (command, request)),
        }
    }

    /// Returns the concurrency of the command on its connection.
    pub fn concurrency(&self, command: &Command) -> Concurrency {
        match command.kind {
            // The next command must wait until the effect of this command on the connection is
            // known.
            CommandKind::Write | CommandKind::Blocking if self.is_claim() => Concurrency::Claim,
            CommandKind::Session | CommandKind::Blocking | CommandKind::Steps => Concurrency::Alone,
            // LMOVE returns a value of any size, and may be repeated without bound. Many replies
            // for a client that does not read would fill the memory.
            CommandKind::Write if matches!(self, Self::Key(KeyCommand::LMove { .. })) => Concurrency::Alone,
            CommandKind::Write => Concurrency::Write,
            CommandKind::Read => Concurrency::Read,
        }
    }

    /// Returns true if the command claims jobs from a queue.
    pub fn is_claim(&self) -> bool {
        let is_queue = |key: &Bytes| crate::reserved_keys::claimed_queue(key).is_some();
        match self {
            Self::BlockingPop(pop) => pop.keys.iter().any(is_queue),
            Self::Key(KeyCommand::Pop { key, .. }) => is_queue(key),
            Self::JobClaim { .. } => true,
            _ => false,
        }
    }
}

impl BlockingWait {
    fn encode(self) -> Bytes {
        match self {
            Self::Forever => Bytes::from_static(b"0"),
            Self::Ms(ms) => format!("{}.{:03}", ms / 1000, ms % 1000).into(),
        }
    }

    fn parse(arg: &Bytes) -> Result<Self, RequestError> {
        let wrong = RequestError::Refused("timeout is not a float or out of range");
        let Some(seconds) = text(arg)?.parse().ok().filter(|seconds: &f64| seconds.abs() <= 1e12) else {
            return Err(wrong);
        };
        if seconds < 0.0 {
            return Err(RequestError::Refused("timeout is negative"));
        }
        let (ms, whole) = (seconds * 1000.0, (seconds * 1000.0).round());
        // Rounding errors of the product must not add a millisecond.
        let ms = if (ms - whole).abs() <= whole * f64::EPSILON { whole } else { ms.ceil() };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked just above")]
        let ms = ms as u64;
        Ok(if ms == 0 { Self::Forever } else { Self::Ms(ms) })
    }
}

#[cfg(test)]
mod tests;
