//! Table of commands with a row for each, except the commands on keys of users.

use std::{
    collections::{BTreeMap, HashMap},
    sync::LazyLock,
};

use bytes::Bytes;

use super::{
    BlockingWait, Request, RequestError, Secret,
    arguments::{check_queues, count, id_of, is_word, queue, status, text, texts},
    backup,
    command::{AgentAccess, Command, CommandAccess, CommandKind},
    keys::{KEY_COMMANDS, integer_of},
    options::{Page, Search, Slice, is_slice},
    outputs, session,
};
use crate::documents::is_profile_name;

/// Returns a row without keys.
const fn row(
    name: &'static str,
    arity: i8,
    kind: CommandKind,
    access: CommandAccess,
    syntax: &'static str,
    summary: &'static str,
    parse: fn(&[Bytes]) -> Result<Request, RequestError>,
) -> Command {
    let agent = AgentAccess::Refused;
    Command { name, arity, kind, access, agent, keys: (0, 0, 0), syntax, summary, parse }
}

use CommandAccess::{Admin, Client, Everyone, Worker};
use CommandKind::{Read, Session, Steps, Write};

/// Default number of jobs of QUEUE.PEEK.
const DEFAULT_PEEK: usize = 10;
/// Default number of programs of CAPABILITY.LIST.
const DEFAULT_PROGRAMS: usize = 100;
/// Default number of results of CAPABILITY.SEARCH.
const DEFAULT_FOUND: usize = 10;

#[rustfmt::skip]
pub(super) static COMMANDS: &[Command] = &[
    row("AUTH", -2, Session, Everyone, "<session_key>", "Authenticates the client.", auth).for_agents(),
    row("HELLO", -1, Session, Everyone, "[2|3 [AUTH default <session_key>] [SETNAME <name>]]",
        "Chooses the version of RESP, and may authenticate.", session::hello).for_agents(),
    row("CLIENT", -2, Session, Everyone, "SETNAME <name>|GETNAME|ID|LIST|INFO|SETINFO <attribute> <value>",
        "Names and shows connections.", session::client).for_agents(),
    row("PING", -1, Write, Everyone, "[message]", "Returns PONG, or the message.", |args| match args {
        [] => Ok(Request::Ping { message: None }),
        [message] => Ok(Request::Ping { message: Some(message.clone()) }),
        _ => Err(RequestError::Syntax),
    }).for_agents(),
    row("ECHO", 2, Write, Everyone, "<message>", "Returns the message.",
        |args| Ok(Request::Echo { message: args[0].clone() })).for_agents(),
    row("SELECT", 2, Session, Everyone, "0", "Selects the database; there is only database 0.", |args| match &args[0][..] {
        b"0" => Ok(Request::Select),
        index => Err(RequestError::Refused(match integer_of(index) {
            Some(_) => "DB index is out of range",
            None => "value is not an integer or out of range",
        })),
    }).for_agents(),
    row("RESET", 1, Session, Everyone, "", "Resets the connection to its first state.", |_| Ok(Request::Reset)).for_agents(),
    row("QUIT", -1, Session, Everyone, "", "Closes the connection.", |_| Ok(Request::Quit)).for_agents(),
    row("COMMAND", -1, Read, Everyone, "[COUNT|INFO [name ...]|DOCS [name ...]]", "Describes the commands.",
        session::command).for_agents(),
    row("INFO", -1, Read, Everyone, "[section ...]", "Describes the server.",
        |args| Ok(Request::Info { sections: texts(args)? })),
    row("MULTI", 1, Session, Client, "", "Begins a transaction.", |_| Ok(Request::Multi)),
    row("EXEC", 1, Session, Client, "", "Executes a transaction.", |_| Ok(Request::Exec)),
    row("DISCARD", 1, Session, Client, "", "Discards a transaction.", |_| Ok(Request::Discard)),
    row("SUBSCRIBE", -2, Session, Everyone, "<channel> [channel ...]", "Subscribes to channels.",
        |args| Ok(Request::Subscribe { channels: args.to_vec() })),
    row("PSUBSCRIBE", -2, Session, Everyone, "<pattern> [pattern ...]", "Subscribes to channels that match a pattern.",
        |args| Ok(Request::PSubscribe { patterns: args.to_vec() })),
    row("UNSUBSCRIBE", -1, Session, Everyone, "[channel ...]", "Unsubscribes from channels.",
        |args| Ok(Request::Unsubscribe { channels: args.to_vec() })),
    row("PUNSUBSCRIBE", -1, Session, Everyone, "[pattern ...]", "Unsubscribes from patterns.",
        |args| Ok(Request::PUnsubscribe { patterns: args.to_vec() })),
    row("PUBLISH", 3, Read, Client, "<channel> <message>", "Sends a message to the subscribers of a channel.",
        |args| Ok(Request::Publish { channel: args[0].clone(), message: args[1].clone() })),

    row("PLAN.SUBMIT", 2, Steps, Client, "<plan_json>", "Stores a plan.",
        |args| Ok(Request::PlanSubmit { plan: args[0].clone() })).for_owners(),
    row("PLAN.GET", 2, Read, Everyone, "<plan_id>", "Shows a plan.",
        |args| Ok(Request::PlanGet { plan_id: id_of(&args[0])? })).for_owners(),
    row("PLAN.STATUS", 2, Read, Client, "<plan_id>", "Shows who stored a plan, and when.",
        |args| Ok(Request::PlanStatus { plan_id: id_of(&args[0])? })).for_owners(),
    row("PLAN.ORDER", 2, Read, Everyone, "<plan_id>", "Shows the signed order of a plan.",
        |args| Ok(Request::PlanOrder { plan_id: id_of(&args[0])? })).for_owners(),
    row("PLAN.LIST", -1, Read, Client, "[pattern] [LIMIT <count>] [OFFSET <start>]", "Lists plans.",
        |args| Ok(Request::PlanList { page: Page::parse(args)? })).for_owners(),
    row("PLAN.DELETE", 2, Write, Client, "<plan_id>", "Removes a plan that no active job needs.",
        |args| Ok(Request::PlanDelete { plan_id: id_of(&args[0])? })).for_owners(),
    row("PLAN.APPROVE", 3, Steps, Admin, "<plan_id> <digest>", "Approves a plan: its staged jobs run.",
        |args| Ok(Request::PlanApprove { plan_id: id_of(&args[0])?, digest: text(&args[1])? })),
    row("PLAN.REJECT", 3, Steps, Admin, "<plan_id> <digest>", "Rejects a plan: its staged jobs are cancelled.",
        |args| Ok(Request::PlanReject { plan_id: id_of(&args[0])?, digest: text(&args[1])? })),
    row("APPROVAL.LIST", 1, Read, Client, "", "Shows the plans that need an approval, with its state.",
        |_| Ok(Request::ApprovalList)),
    row("ACTION.SUBMIT", 2, Write, Client, "<action_json>", "Creates a job for each input of a plan.",
        |args| Ok(Request::ActionSubmit { action: args[0].clone() })).for_owners(),
    row("ACTION.STATUS", 2, Read, Client, "<action_id>", "Counts the jobs of an action by status.",
        |args| Ok(Request::ActionStatus { action_id: id_of(&args[0])? })).for_owners(),
    row("ACTION.LIST", -1, Read, Client, "[pattern] [LABEL <name>=<value> ...] [LIMIT <count>] [OFFSET <start>]",
        "Lists actions.", action_list).for_owners(),
    row("ACTION.ADD", -3, Steps, Client, "<action_id> <inputs_json> [AT <index>]", "Adds inputs to an open action.",
        |args| Ok(Request::ActionAdd { action_id: id_of(&args[0])?, inputs: args[1].clone(), at: at(&args[2..])? })).for_owners(),
    row("ACTION.CLOSE", 2, Steps, Client, "<action_id>", "Closes an action: it gets no more inputs.",
        |args| Ok(Request::ActionClose { action_id: id_of(&args[0])? })).for_owners(),
    row("ACTION.CANCEL", -2, Steps, Client, "<action_id> [UNSTARTED]", "Cancels every job of an action that has not ended.",
        |args| match args {
            [id] => Ok(Request::ActionCancel { action_id: id_of(id)?, unstarted: false }),
            [id, word] if is_word(word, "UNSTARTED") => {
                Ok(Request::ActionCancel { action_id: id_of(id)?, unstarted: true })
            }
            _ => Err(RequestError::Syntax),
        }).for_owners(),
    row("ACTION.RETRY", 2, Steps, Client, "<action_id>", "Retries the failed and dead jobs of an action.",
        |args| Ok(Request::ActionRetry { action_id: id_of(&args[0])? })).for_owners(),
    row("JOB.CLAIM", -5, CommandKind::Blocking, Everyone, "<timeout_seconds> COUNT <count> <queue_name> [queue_name ...]",
        "Takes jobs from queues, and waits for one.", job_claim),
    row("JOB.STATUS", 2, Read, Everyone, "<job_id>", "Shows a job and its results.",
        |args| Ok(Request::JobStatus { job_id: id_of(&args[0])? })).for_owners(),
    row("JOB.UPDATE", 3, Write, Worker, "<job_id> <update_json>", "Reports on a job.",
        |args| Ok(Request::JobUpdate { job_id: id_of(&args[0])?, update: args[1].clone() })),
    row("JOB.LIST", -2, Read, Client, "<action_id> [status] [LIMIT <count>] [OFFSET <start>]",
        "Lists the jobs of an action.", job_list).for_owners(),
    row("JOB.RETRY", -2, Steps, Client, "<job_id> [FORCE]", "Retries a failed job.", |args| match args {
        [id] => Ok(Request::JobRetry { job_id: id_of(id)?, force: false }),
        [id, force] if is_word(force, "FORCE") => Ok(Request::JobRetry { job_id: id_of(id)?, force: true }),
        _ => Err(RequestError::Syntax),
    }).for_owners(),
    row("JOB.CANCEL", 2, Write, Client, "<job_id>", "Cancels a job.",
        |args| Ok(Request::JobCancel { job_id: id_of(&args[0])? })).for_owners(),
    row("JOB.FORGET", 2, Write, Client, "<job_id>", "Removes an ended job with its results.",
        |args| Ok(Request::JobForget { job_id: id_of(&args[0])? })).for_owners(),
    row("JOB.EXPLAIN", 2, Read, Client, "<job_id>", "Explains why a job is not running.",
        |args| Ok(Request::JobExplain { job_id: id_of(&args[0])? })).for_owners(),
    row("JOB.OUTPUT", -2, CommandKind::Blocking, Client, "<job_id> [position_json]", "Returns the output of a running job's tasks.",
        |args| match args {
            [id] => Ok(Request::JobOutput { job_id: id_of(id)?, position: None }),
            [id, position] => Ok(Request::JobOutput { job_id: id_of(id)?, position: Some(position.clone()) }),
            _ => Err(RequestError::Syntax),
        }).for_owners(),
    row("JOB.RESULT", -4, CommandKind::Blocking, Client, "<job_id> <task_number> stdout|stderr [offset length]",
        "Returns bytes of the output of a job.", outputs::result).for_owners(),
    row("JOB.FILE", 4, Read, Client, "<job_id> <task_number> stdout|stderr",
        "Returns the file of a large output of a job.", outputs::file).for_owners(),
    row("JOB.INPUT", 6, Steps, Worker, "<job_id> <attempt> <blake3> <offset> <length>",
        "Returns bytes of a blob that the input of a job names.", outputs::input),
    row("INPUT.WRITE", 4, Steps, Client, "<upload_id> <offset> <bytes>", "Writes a chunk of an input.", outputs::write_input).for_owners(),
    row("INPUT.COMMIT", 4, Steps, Client, "<upload_id> <length> <blake3>", "Stores an input as a blob.", outputs::commit_input).for_owners(),
    row("JOBS.SEARCH", -1, Read, Client,
        "[status] [plan_id] [STATUS <status>] [PLAN <id>] [ACTION <id>] [WORKER <id>] [SINCE <time>] [UNTIL <time>] [LIMIT <n>]",
        "Finds jobs, the newest first.", |args| Ok(Request::JobsSearch { search: Search::parse(args)? })).for_owners(),
    row("WORKER.REGISTER", 2, Steps, Worker, "<worker_json>", "Registers a worker.",
        |args| Ok(Request::WorkerRegister { worker: args[0].clone() })),
    row("WORKER.HEARTBEAT", -2, Write, Worker, "<worker_id> [stats_json]", "Renews the registration of a worker.", |args| match args {
        [id] => Ok(Request::WorkerHeartbeat { worker_id: id_of(id)?, stats: None }),
        [id, stats] => Ok(Request::WorkerHeartbeat { worker_id: id_of(id)?, stats: Some(stats.clone()) }),
        _ => Err(RequestError::Syntax),
    }),
    row("WORKER.UNREGISTER", 2, Steps, Worker, "<worker_id>", "Unregisters a worker.",
        |args| Ok(Request::WorkerUnregister { worker_id: id_of(&args[0])? })),
    row("WORKER.ANSWER", 3, Write, Worker, "<challenge_id> <answer_json>", "Answers a challenge.",
        |args| Ok(Request::WorkerAnswer { challenge_id: args[0].clone(), answer: args[1].clone() })),
    row("WORKER.OUTPUT", 3, Write, Worker, "<request_id> <output_json>", "Delivers the output of a job's tasks.",
        |args| Ok(Request::WorkerOutput { request_id: args[0].clone(), output: args[1].clone() })),
    row("OUTPUT.WRITE", 7, Steps, Worker, "<job_id> <attempt> <task_number> stdout|stderr <offset> <bytes>",
        "Writes a chunk of the output of a job.", outputs::write),
    row("OUTPUT.COPY", -10, Steps, Worker,
        "<job_id> <attempt> <task_number> stdout|stderr <offset> <length> <descriptor> <device> <inode> [KEEP]",
        "Copies a part of the output of a job from a file that the worker has open.", outputs::copy),
    row("OUTPUT.COMMIT", 7, Steps, Worker, "<job_id> <attempt> <task_number> stdout|stderr <length> <blake3>",
        "Stores the output of a job as a blob.", outputs::commit),
    row("WORKER.LIST", 1, Read, Client, "", "Shows all workers.", |_| Ok(Request::WorkerList)),
    row("WORKER.GET", 2, Read, Client, "<worker_id>", "Shows a worker.",
        |args| Ok(Request::WorkerGet { worker_id: id_of(&args[0])? })),
    row("WORKER.DRAIN", -2, Steps, Admin, "<worker_id> [BY <name>]", "Drains a worker: it claims no more jobs.", drain),
    row("WORKER.TERMINATE", 2, Steps, Admin, "<worker_id>", "Tells a worker to complete its jobs and exit.",
        |args| Ok(Request::WorkerTerminate { worker_id: id_of(&args[0])? })),
    row("WORKER.RESUME", 2, Steps, Admin, "<worker_id>", "Permits a worker to claim jobs again.",
        |args| Ok(Request::WorkerResume { worker_id: id_of(&args[0])? })),
    row("WORKER.VERIFY", -3, CommandKind::Blocking, Admin, "<capability> <challenge_json> [WORKER <worker_id>]",
        "Challenges workers to prove a capability.", verify),
    row("CAPABILITY.SEARCH", -2, Read, Client, "<word> [word ...] [LIMIT <n>]",
        "Finds agentic units by their descriptions.", capability_search).for_agents(),
    row("CAPABILITY.LIST", -1, Read, Client, "[MATCH <text>] [LIMIT <n>]",
        "Lists the programs of live workers.", capability_list).for_agents(),
    row("BUDGET.GET", -1, Read, Client, "[name]", "Shows how much of budgets is used.", |args| match args {
        [] => Ok(Request::BudgetGet { name: None }),
        [name] => Ok(Request::BudgetGet { name: Some(text(name)?) }),
        _ => Err(RequestError::Syntax),
    }).for_agents(),
    row("QUEUE.STATS", -1, Read, Everyone, "[queue_name]", "Counts jobs and workers.", |args| match args {
        [] => Ok(Request::QueueStats { queue: None }),
        [queue] => Ok(Request::QueueStats { queue: Some(text(queue)?) }),
        _ => Err(RequestError::Syntax),
    }),
    row("QUEUE.PEEK", -2, Read, Client, "<queue_name> [count]", "Shows the next jobs of a queue.", |args| match args {
        [name] => Ok(Request::QueuePeek { queue: queue(name)?, count: DEFAULT_PEEK }),
        [name, most] => Ok(Request::QueuePeek { queue: queue(name)?, count: count(most)? }),
        _ => Err(RequestError::Syntax),
    }),
    row("QUEUE.PAUSE", 2, Write, Admin, "<queue_name>", "Pauses a queue: its jobs do not start.",
        |args| Ok(Request::QueuePause { queue: queue(&args[0])? })),
    row("QUEUE.RESUME", 2, Write, Admin, "<queue_name>", "Resumes a paused queue.",
        |args| Ok(Request::QueueResume { queue: queue(&args[0])? })),

    row("SCHEDULE.SET", 2, Steps, Client, "<schedule_json>", "Submits an action or a job repeatedly.",
        |args| Ok(Request::ScheduleSet { schedule: args[0].clone() })),
    row("SCHEDULE.GET", 2, Read, Client, "<name>", "Shows a schedule.",
        |args| Ok(Request::ScheduleGet { name: text(&args[0])? })),
    row("SCHEDULE.LIST", -1, Read, Client, "[pattern] [LIMIT <count>] [OFFSET <start>]", "Lists schedules.",
        |args| Ok(Request::ScheduleList { page: Page::parse(args)? })),
    row("SCHEDULE.DELETE", 2, Steps, Client, "<name>", "Removes a schedule.",
        |args| Ok(Request::ScheduleDelete { name: text(&args[0])? })),
    row("WORKFLOW.SUBMIT", 2, Steps, Client, "<workflow_json>", "Starts a workflow: actions in sequence.",
        |args| Ok(Request::WorkflowSubmit { workflow: args[0].clone() })),
    row("WORKFLOW.STATUS", 2, Read, Client, "<workflow_id>", "Shows a workflow.",
        |args| Ok(Request::WorkflowStatus { workflow_id: text(&args[0])? })),
    row("WORKFLOW.LIST", -1, Read, Client, "[pattern] [LIMIT <count>] [OFFSET <start>]", "Lists workflows.",
        |args| Ok(Request::WorkflowList { page: Page::parse(args)? })),
    row("WORKFLOW.CANCEL", 2, Steps, Client, "<workflow_id>", "Cancels a workflow.",
        |args| Ok(Request::WorkflowCancel { workflow_id: text(&args[0])? })),
    row("METRICS", -1, Read, Client, "[prometheus|json]", "Returns metrics.", |args| match args {
        [] => Ok(Request::Metrics { prometheus: true }),
        [format] if is_word(format, "prometheus") => Ok(Request::Metrics { prometheus: true }),
        [format] if is_word(format, "json") => Ok(Request::Metrics { prometheus: false }),
        _ => Err(RequestError::Syntax),
    }),
    row("BACKUP", -2, Steps, Admin, "BEGIN|READ <backup_id> <offset>|BLOB <backup_id> <blake3> <offset>|END <backup_id>",
        "Reads a snapshot of the database, and its blobs.", backup::parse),
];

impl Command {
    /// Finds a command by its name in capitals.
    pub fn find(name: &str) -> Option<&'static Self> {
        static BY_NAME: LazyLock<HashMap<&str, &Command>> =
            LazyLock::new(|| Command::all().map(|command| (command.name, command)).collect());
        BY_NAME.get(name).copied()
    }

    /// Returns the command that `args` begin with, in any case.
    pub fn of(args: &[Bytes]) -> Option<&'static Self> {
        let name = args.first()?;
        // The buffer is longer than every name.
        let mut capitals = [0; 32];
        let capitals = capitals.get_mut(..name.len())?;
        capitals.copy_from_slice(name);
        capitals.make_ascii_uppercase();
        Self::find(std::str::from_utf8(capitals).ok()?)
    }

    /// Returns all commands.
    pub fn all() -> impl Iterator<Item = &'static Self> {
        COMMANDS.iter().chain(KEY_COMMANDS)
    }
}

/// Parses AUTH, whose errors have texts of their own (RESP spec §4).
fn auth(args: &[Bytes]) -> Result<Request, RequestError> {
    let key = match args {
        [key] => key,
        [user, key] if &user[..] == b"default" => key,
        _ => return Err(RequestError::AuthArguments),
    };
    if key.is_empty() { Err(RequestError::AuthEmpty) } else { Ok(Request::Auth { key: Secret(key.clone()) }) }
}

fn at(args: &[Bytes]) -> Result<Option<u64>, RequestError> {
    match args {
        [] => Ok(None),
        [word, index] if is_word(word, "AT") => Ok(Some(count(index)? as u64)),
        _ => Err(RequestError::Syntax),
    }
}

fn job_claim(args: &[Bytes]) -> Result<Request, RequestError> {
    match args {
        [timeout, word, most, queues @ ..] if is_word(word, "COUNT") => {
            let (timeout, count) = (BlockingWait::parse(timeout)?, count(most)?);
            if count == 0 {
                return Err(RequestError::Refused("value is out of range, must be positive"));
            }
            check_queues(queues.len())?;
            let queues = queues.iter().map(queue).collect::<Result<_, _>>()?;
            Ok(Request::JobClaim { queues, timeout, count })
        }
        _ => Err(RequestError::Syntax),
    }
}

fn action_list(args: &[Bytes]) -> Result<Request, RequestError> {
    let (mut labels, mut others) = (BTreeMap::new(), Vec::new());
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        if !is_word(arg, "LABEL") {
            others.push(arg.clone());
            continue;
        }
        let label = text(args.next().ok_or(RequestError::Syntax)?)?;
        let (name, value) = label.split_once('=').ok_or(RequestError::Syntax)?;
        if labels.insert(name.to_owned(), value.to_owned()).is_some() {
            return Err(RequestError::Syntax);
        }
    }
    Ok(Request::ActionList { page: Page::parse(&others)?, labels })
}

fn job_list(args: &[Bytes]) -> Result<Request, RequestError> {
    let action_id = id_of(&args[0])?;
    let (status, rest) = match &args[1..] {
        [word, rest @ ..] if !is_slice(word) => (Some(status(word)?), rest),
        rest => (None, rest),
    };
    // The default is the whole list (AGQ API spec §3).
    Ok(Request::JobList { action_id, status, slice: Slice::parse(rest, Slice::ALL.limit)? })
}

fn drain(args: &[Bytes]) -> Result<Request, RequestError> {
    let by = match &args[1..] {
        [] => None,
        [word, name] if is_word(word, "BY") => Some(text(name)?),
        _ => return Err(RequestError::Syntax),
    };
    if let Some(name) = by.as_deref().filter(|name| !is_profile_name(name)) {
        let rule = "use 1 to 64 lower-case letters, digits and '-', '_'";
        return Err(RequestError::Arguments(format!("BY '{}' is not a name: {rule}", name.escape_debug())));
    }
    Ok(Request::WorkerDrain { worker_id: id_of(&args[0])?, by })
}

fn verify(args: &[Bytes]) -> Result<Request, RequestError> {
    let worker_id = match &args[2..] {
        [] => None,
        [word, id] if is_word(word, "WORKER") => Some(id_of(id)?),
        _ => return Err(RequestError::Syntax),
    };
    Ok(Request::WorkerVerify { capability: text(&args[0])?, challenge: args[1].clone(), worker_id })
}

fn capability_search(args: &[Bytes]) -> Result<Request, RequestError> {
    let (words, limit) = match args {
        [words @ .., word, most] if is_word(word, "LIMIT") => (words, count(most)?),
        words => (words, DEFAULT_FOUND),
    };
    if words.is_empty() {
        return Err(RequestError::Syntax);
    }
    Ok(Request::CapabilitySearch { words: texts(words)?, limit })
}

fn capability_list(args: &[Bytes]) -> Result<Request, RequestError> {
    let (mut name_part, mut limit, mut rest) = (String::new(), DEFAULT_PROGRAMS, args);
    while let [word, value, later @ ..] = rest {
        match () {
            () if is_word(word, "MATCH") => name_part = text(value)?,
            () if is_word(word, "LIMIT") => limit = count(value)?,
            () => return Err(RequestError::Syntax),
        }
        rest = later;
    }
    if !rest.is_empty() {
        return Err(RequestError::Syntax);
    }
    Ok(Request::CapabilityList { name_part, limit })
}
