//! Commands: from their arguments to a value, and back; parse beside encode.

mod arguments;
mod keyspace;
mod session;

use bytes::Bytes;

use self::{
    arguments::{id_of, status, text},
    keyspace::keyspace,
    session::{client, encode_hello, hello},
};

use crate::{
    documents::Status,
    ids::{ActionId, JobId, PlanId, WorkerId},
    names::QUEUE_READY,
    resp::RespVersion,
};

/// A command with its arguments checked for number and form. JSON documents stay bytes here: reading them is work for
/// the command that needs them.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "docs/protocol.md describes each command and its arguments")]
pub enum Request {
    Auth { key: Bytes },
    Hello { version: Option<RespVersion>, auth: Option<Bytes>, name: Option<Bytes> },
    ClientSetName { name: Bytes },
    ClientSetInfo,
    Ping { message: Option<Bytes> },
    Set { key: Bytes, value: Bytes },
    Get { key: Bytes },
    Del { keys: Vec<Bytes> },
    Exists { keys: Vec<Bytes> },
    LPush { key: Bytes, values: Vec<Bytes> },
    RPop { key: Bytes },
    LLen { key: Bytes },
    BRPop { key: Bytes, timeout: Wait },
    ZAdd { key: Bytes, score: f64, member: Bytes },
    ZRangeByScore { key: Bytes, min: f64, max: f64 },
    PlanSubmit { plan: Bytes },
    PlanGet { plan_id: PlanId },
    PlanList,
    ActionSubmit { action: Bytes },
    ActionStatus { action_id: ActionId },
    JobStatus { job_id: JobId },
    JobUpdate { job_id: JobId, update: Bytes },
    JobList { action_id: ActionId, status: Option<Status> },
    WorkerRegister { worker: Bytes },
    WorkerHeartbeat { worker_id: WorkerId, stats: Option<Bytes> },
    WorkerUnregister { worker_id: WorkerId },
    WorkerList,
    QueueStats { queue: Option<String> },
}

/// How long a blocking command waits, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Until there is something (`0` on the wire).
    Forever,
    /// At most this many milliseconds.
    Ms(u64),
}

/// How a command may share its connection with the commands before and after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// Changes the session or waits: alone on its connection.
    Alone,
    /// Reads: after every write before it.
    Read,
    /// Writes, or needs nothing: many may be on their way at once.
    Write,
}

/// Why arguments are not a command.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// No such command.
    #[error("Unknown command '{0}'")]
    Unknown(String),
    /// AUTH has texts of its own (seed 003 §4).
    #[error("AUTH requires exactly one argument")]
    AuthArguments,
    /// AUTH has texts of its own (seed 003 §4).
    #[error("AUTH key cannot be empty")]
    AuthEmpty,
    /// HELLO with a version that does not exist; the text is Redis' own.
    #[error("unsupported protocol version")]
    HelloVersion,
    /// Too few, too many or ill-formed arguments.
    #[error("Invalid arguments: {0}")]
    Arguments(String),
}

impl RequestError {
    /// The error line without its `-`.
    pub fn line(&self) -> String {
        match self {
            Self::HelloVersion => format!("NOPROTO {self}"),
            _ => format!("ERR {self}"),
        }
    }
}

/// The name of a command in capitals: what it is looked up by, and what logs may show.
pub fn name_of(args: &[Bytes]) -> String {
    let name = args.first().map(|name| String::from_utf8_lossy(name).to_ascii_uppercase());
    name.unwrap_or_default().chars().take(64).collect()
}

impl Request {
    /// Reads a command.
    pub fn parse(args: &[Bytes]) -> Result<Self, RequestError> {
        let (name, rest) = (name_of(args), args.get(1..).unwrap_or_default());
        let usage = |syntax: &str| RequestError::Arguments(format!("use {name} {syntax}"));
        Ok(match (name.as_str(), rest) {
            ("AUTH", [key]) if key.is_empty() => return Err(RequestError::AuthEmpty),
            ("AUTH", [key]) => Self::Auth { key: key.clone() },
            ("AUTH", [user, key]) if &user[..] == b"default" => Self::Auth { key: key.clone() },
            ("AUTH", _) => return Err(RequestError::AuthArguments),
            ("HELLO", options) => hello(options)?,
            ("CLIENT", [sub, rest @ ..]) => client(sub, rest)?,
            ("CLIENT", []) => return Err(usage("SETNAME|SETINFO …")),
            ("PING", []) => Self::Ping { message: None },
            ("PING", [message]) => Self::Ping { message: Some(message.clone()) },
            ("PING", _) => return Err(usage("[message]")),
            ("PLAN.SUBMIT", [plan]) => Self::PlanSubmit { plan: plan.clone() },
            ("PLAN.SUBMIT", _) => return Err(usage("<plan_json>")),
            ("PLAN.GET", [id]) => Self::PlanGet { plan_id: id_of(id)? },
            ("PLAN.GET", _) => return Err(usage("<plan_id>")),
            ("PLAN.LIST", []) => Self::PlanList,
            ("PLAN.LIST", _) => return Err(usage("without arguments")),
            ("ACTION.SUBMIT", [action]) => Self::ActionSubmit { action: action.clone() },
            ("ACTION.SUBMIT", _) => return Err(usage("<action_json>")),
            ("ACTION.STATUS", [id]) => Self::ActionStatus { action_id: id_of(id)? },
            ("ACTION.STATUS", _) => return Err(usage("<action_id>")),
            ("JOB.STATUS", [id]) => Self::JobStatus { job_id: id_of(id)? },
            ("JOB.STATUS", _) => return Err(usage("<job_id>")),
            ("JOB.UPDATE", [id, update]) => Self::JobUpdate { job_id: id_of(id)?, update: update.clone() },
            ("JOB.UPDATE", _) => return Err(usage("<job_id> <update_json>")),
            ("JOB.LIST", [id]) => Self::JobList { action_id: id_of(id)?, status: None },
            ("JOB.LIST", [id, word]) => Self::JobList { action_id: id_of(id)?, status: Some(status(word)?) },
            ("JOB.LIST", _) => return Err(usage("<action_id> [status]")),
            ("WORKER.REGISTER", [worker]) => Self::WorkerRegister { worker: worker.clone() },
            ("WORKER.REGISTER", _) => return Err(usage("<worker_json>")),
            ("WORKER.HEARTBEAT", [id]) => Self::WorkerHeartbeat { worker_id: id_of(id)?, stats: None },
            ("WORKER.HEARTBEAT", [id, stats]) => {
                Self::WorkerHeartbeat { worker_id: id_of(id)?, stats: Some(stats.clone()) }
            }
            ("WORKER.HEARTBEAT", _) => return Err(usage("<worker_id> [stats_json]")),
            ("WORKER.UNREGISTER", [id]) => Self::WorkerUnregister { worker_id: id_of(id)? },
            ("WORKER.UNREGISTER", _) => return Err(usage("<worker_id>")),
            ("WORKER.LIST", []) => Self::WorkerList,
            ("WORKER.LIST", _) => return Err(usage("without arguments")),
            ("QUEUE.STATS", []) => Self::QueueStats { queue: None },
            ("QUEUE.STATS", [queue]) => Self::QueueStats { queue: Some(text(queue)?) },
            ("QUEUE.STATS", _) => return Err(usage("[queue_name]")),
            _ => return keyspace(&name, args, rest),
        })
    }

    /// The arguments that [`Request::parse`] reads back.
    pub fn encode(&self) -> Vec<Bytes> {
        fn words<const N: usize>(words: [&str; N]) -> Vec<Bytes> {
            words.into_iter().map(|word| Bytes::copy_from_slice(word.as_bytes())).collect()
        }
        fn command<'a>(name: &'static str, args: impl IntoIterator<Item = &'a Bytes>) -> Vec<Bytes> {
            std::iter::once(Bytes::from_static(name.as_bytes())).chain(args.into_iter().cloned()).collect()
        }
        match self {
            Self::Auth { key } => command("AUTH", [key]),
            Self::Hello { version, auth, name } => encode_hello(*version, auth.as_ref(), name.as_ref()),
            Self::ClientSetName { name } => command("CLIENT", [&Bytes::from_static(b"SETNAME"), name]),
            Self::ClientSetInfo => words(["CLIENT", "SETINFO", "lib-name", "agenix"]),
            Self::Ping { message } => command("PING", message),
            Self::Set { key, value } => command("SET", [key, value]),
            Self::Get { key } => command("GET", [key]),
            Self::Del { keys } => command("DEL", keys),
            Self::Exists { keys } => command("EXISTS", keys),
            Self::LPush { key, values } => command("LPUSH", std::iter::once(key).chain(values)),
            Self::RPop { key } => command("RPOP", [key]),
            Self::LLen { key } => command("LLEN", [key]),
            Self::BRPop { key, timeout } => command("BRPOP", [key, &timeout.encode()]),
            Self::ZAdd { key, score, member } => command("ZADD", [key, &score.to_string().into(), member]),
            Self::ZRangeByScore { key, min, max } => {
                command("ZRANGEBYSCORE", [key, &min.to_string().into(), &max.to_string().into()])
            }
            Self::PlanSubmit { plan } => command("PLAN.SUBMIT", [plan]),
            Self::PlanGet { plan_id } => words(["PLAN.GET", plan_id.as_str()]),
            Self::PlanList => words(["PLAN.LIST"]),
            Self::ActionSubmit { action } => command("ACTION.SUBMIT", [action]),
            Self::ActionStatus { action_id } => words(["ACTION.STATUS", action_id.as_str()]),
            Self::JobStatus { job_id } => words(["JOB.STATUS", job_id.as_str()]),
            Self::JobUpdate { job_id, update } => {
                command("JOB.UPDATE", [&Bytes::copy_from_slice(job_id.as_str().as_bytes()), update])
            }
            Self::JobList { action_id, status: None } => words(["JOB.LIST", action_id.as_str()]),
            Self::JobList { action_id, status: Some(status) } => {
                words(["JOB.LIST", action_id.as_str(), status.as_str()])
            }
            Self::WorkerRegister { worker } => command("WORKER.REGISTER", [worker]),
            Self::WorkerHeartbeat { worker_id, stats } => {
                let id = Bytes::copy_from_slice(worker_id.as_str().as_bytes());
                command("WORKER.HEARTBEAT", std::iter::once(&id).chain(stats))
            }
            Self::WorkerUnregister { worker_id } => words(["WORKER.UNREGISTER", worker_id.as_str()]),
            Self::WorkerList => words(["WORKER.LIST"]),
            Self::QueueStats { queue: None } => words(["QUEUE.STATS"]),
            Self::QueueStats { queue: Some(queue) } => words(["QUEUE.STATS", queue]),
        }
    }

    /// How the command may share its connection.
    pub fn flow(&self) -> Flow {
        match self {
            Self::Auth { .. } | Self::Hello { .. } | Self::ClientSetName { .. } | Self::ClientSetInfo => {
                Flow::Alone
            }
            Self::BRPop { .. } | Self::WorkerRegister { .. } | Self::WorkerUnregister { .. } => Flow::Alone,
            Self::Ping { .. } | Self::Set { .. } | Self::Del { .. } | Self::LPush { .. } => Flow::Write,
            Self::RPop { key } if &key[..] == QUEUE_READY.as_bytes() => Flow::Alone,
            Self::RPop { .. } | Self::ZAdd { .. } | Self::PlanSubmit { .. } | Self::ActionSubmit { .. } => {
                Flow::Write
            }
            Self::JobUpdate { .. } | Self::WorkerHeartbeat { .. } => Flow::Write,
            Self::Get { .. } | Self::Exists { .. } | Self::LLen { .. } | Self::ZRangeByScore { .. } => {
                Flow::Read
            }
            Self::PlanGet { .. } | Self::PlanList | Self::ActionStatus { .. } | Self::JobStatus { .. } => {
                Flow::Read
            }
            Self::JobList { .. } | Self::WorkerList | Self::QueueStats { .. } => Flow::Read,
        }
    }
}

impl Wait {
    fn encode(self) -> Bytes {
        match self {
            Self::Forever => Bytes::from_static(b"0"),
            Self::Ms(ms) => format!("{}.{:03}", ms / 1000, ms % 1000).into(),
        }
    }

    fn parse(arg: &Bytes) -> Result<Self, RequestError> {
        let wrong = || RequestError::Arguments("timeout is not a number of seconds, 0 or more".into());
        let seconds: f64 = text(arg)?.parse().map_err(|_| wrong())?;
        if !(0.0..=1e12).contains(&seconds) {
            return Err(wrong());
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked just above")]
        let ms = (seconds * 1000.0).ceil() as u64;
        Ok(if ms == 0 { Self::Forever } else { Self::Ms(ms) })
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::{Request, Wait};
    use crate::{documents::Status, ids::WorkerId, resp::RespVersion};

    fn parse(line: &str) -> Result<Request, String> {
        let args: Vec<Bytes> = line.split(' ').map(|word| Bytes::copy_from_slice(word.as_bytes())).collect();
        Request::parse(&args).map_err(|error| error.line())
    }

    #[test]
    fn what_is_encoded_is_parsed_back() {
        let b = |text: &'static str| Bytes::from_static(text.as_bytes());
        let requests = [
            Request::Auth { key: b("k") },
            Request::Hello { version: Some(RespVersion::Three), auth: Some(b("k")), name: Some(b("n")) },
            Request::ClientSetName { name: b("w") },
            Request::ClientSetInfo,
            Request::Ping { message: Some(b("m")) },
            Request::LPush { key: b("l"), values: vec![b("1"), b("2")] },
            Request::BRPop { key: b("l"), timeout: Wait::Ms(1500) },
            Request::BRPop { key: b("l"), timeout: Wait::Forever },
            Request::ZAdd { key: b("z"), score: 1.5, member: b("m") },
            Request::ZRangeByScore { key: b("z"), min: f64::NEG_INFINITY, max: 1e9 },
            Request::JobUpdate { job_id: "j".parse().unwrap(), update: b("{}") },
            Request::JobList { action_id: "a".parse().unwrap(), status: Some(Status::Failed) },
            Request::WorkerHeartbeat { worker_id: WorkerId::new("w").unwrap(), stats: Some(b("{}")) },
            Request::QueueStats { queue: Some("queue:ready".into()) },
        ];
        for request in requests {
            assert_eq!(Request::parse(&request.encode()), Ok(request));
        }
    }

    #[test]
    fn errors_have_the_words_of_the_seed() {
        assert_eq!(parse("INVALID").unwrap_err(), "ERR Unknown command 'INVALID'");
        assert_eq!(parse("AUTH").unwrap_err(), "ERR AUTH requires exactly one argument");
        assert_eq!(parse("AUTH a b").unwrap_err(), "ERR AUTH requires exactly one argument");
        assert_eq!(parse("AUTH ").unwrap_err(), "ERR AUTH key cannot be empty");
        assert_eq!(parse("GET").unwrap_err(), "ERR Invalid arguments: use GET <key>");
        assert_eq!(parse("HELLO 4").unwrap_err(), "NOPROTO unsupported protocol version");
    }

    #[test]
    fn names_match_in_any_case_and_timeouts_may_be_fractions() {
        assert_eq!(parse("ping").unwrap(), Request::Ping { message: None });
        let key = Bytes::from_static(b"l");
        assert_eq!(parse("brpop l 0.0001").unwrap(), Request::BRPop { key, timeout: Wait::Ms(1) });
        assert!(parse("brpop l -1").is_err());
        assert!(parse("brpop l nan").is_err());
    }
}
