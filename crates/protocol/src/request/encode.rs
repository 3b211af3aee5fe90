//! Encoder of requests: the inverse of the parser.

use bytes::Bytes;

use super::{ClientCommand, Request, Slice};
use crate::resp::RespVersion;

pub(super) fn words<const N: usize>(words: [&str; N]) -> Vec<Bytes> {
    words.into_iter().map(text).collect()
}

fn text(word: &str) -> Bytes {
    Bytes::copy_from_slice(word.as_bytes())
}

/// Returns the words of a command: its name, of one word or two, and its arguments.
fn command<'a>(name: &'static str, args: impl IntoIterator<Item = &'a Bytes>) -> Vec<Bytes> {
    let name = name.split(' ').map(|word| Bytes::from_static(word.as_bytes()));
    name.chain(args.into_iter().cloned()).collect()
}

fn named(name: &'static str, names: &[String]) -> Vec<Bytes> {
    command(name, &names.iter().map(|name| text(name)).collect::<Vec<_>>())
}

impl Request {
    /// Returns the arguments of the command. [`Request::parse`] parses these arguments to an equal
    /// request.
    pub fn encode(&self) -> Vec<Bytes> {
        match self {
            Self::Key(key) => key.encode(),
            Self::BlockingPop(pop) => pop.encode(),
            Self::Backup(backup) => backup.encode(),
            Self::Output(output) => output.encode(),
            Self::Subscribe { channels } => command("SUBSCRIBE", channels),
            Self::PSubscribe { patterns } => command("PSUBSCRIBE", patterns),
            Self::Unsubscribe { channels } => command("UNSUBSCRIBE", channels),
            Self::PUnsubscribe { patterns } => command("PUNSUBSCRIBE", patterns),
            Self::Publish { channel, message } => command("PUBLISH", [channel, message]),
            Self::Multi => words(["MULTI"]),
            Self::Exec => words(["EXEC"]),
            Self::Discard => words(["DISCARD"]),
            _ => self
                .encode_connection()
                .or_else(|| self.encode_work())
                .unwrap_or_else(|| self.encode_worker()),
        }
    }

    /// Encodes the commands about the connection and the server.
    fn encode_connection(&self) -> Option<Vec<Bytes>> {
        Some(match self {
            Self::Auth { key } => command("AUTH", [&key.0]),
            Self::Hello { version, auth, name } => {
                encode_hello(*version, auth.as_ref().map(|key| &key.0), name.as_ref())
            }
            Self::Client(client) => encode_client(client),
            Self::Ping { message } => command("PING", message),
            Self::Echo { message } => command("ECHO", [message]),
            Self::Select => words(["SELECT", "0"]),
            Self::Reset => words(["RESET"]),
            Self::Quit => words(["QUIT"]),
            Self::CommandInfo { names: None } => words(["COMMAND"]),
            Self::CommandInfo { names: Some(names) } => named("COMMAND INFO", names),
            Self::CommandCount => words(["COMMAND", "COUNT"]),
            Self::CommandDocs { names } => named("COMMAND DOCS", names),
            Self::Info { sections } => named("INFO", sections),
            _ => return None,
        })
    }

    /// Encodes the commands about plans, actions and jobs.
    fn encode_work(&self) -> Option<Vec<Bytes>> {
        Some(match self {
            Self::PlanSubmit { plan } => command("PLAN.SUBMIT", [plan]),
            Self::PlanGet { plan_id } => words(["PLAN.GET", plan_id.as_str()]),
            Self::PlanStatus { plan_id } => words(["PLAN.STATUS", plan_id.as_str()]),
            Self::PlanOrder { plan_id } => words(["PLAN.ORDER", plan_id.as_str()]),
            Self::PlanList { page } => command("PLAN.LIST", &page.encode()),
            Self::PlanDelete { plan_id } => words(["PLAN.DELETE", plan_id.as_str()]),
            Self::PlanApprove { plan_id, digest } => words(["PLAN.APPROVE", plan_id.as_str(), digest]),
            Self::PlanReject { plan_id, digest } => words(["PLAN.REJECT", plan_id.as_str(), digest]),
            Self::ApprovalList => words(["APPROVAL.LIST"]),
            Self::ActionSubmit { action } => command("ACTION.SUBMIT", [action]),
            Self::ActionStatus { action_id } => words(["ACTION.STATUS", action_id.as_str()]),
            Self::ActionList { page, labels } => {
                let labels = labels.iter().map(|(name, value)| format!("{name}={value}").into());
                let labels = labels.flat_map(|label: Bytes| [Bytes::from("LABEL"), label]);
                command("ACTION.LIST", &page.encode().into_iter().chain(labels).collect::<Vec<_>>())
            }
            Self::ActionAdd { action_id, inputs, at } => {
                let mut args = command("ACTION.ADD", [&text(action_id.as_str()), inputs]);
                args.extend(at.iter().flat_map(|at| [Bytes::from("AT"), at.to_string().into()]));
                args
            }
            Self::ActionClose { action_id } => words(["ACTION.CLOSE", action_id.as_str()]),
            Self::ActionCancel { action_id, unstarted: false } => {
                words(["ACTION.CANCEL", action_id.as_str()])
            }
            Self::ActionCancel { action_id, unstarted: true } => {
                words(["ACTION.CANCEL", action_id.as_str(), "UNSTARTED"])
            }
            Self::ActionRetry { action_id } => words(["ACTION.RETRY", action_id.as_str()]),
            Self::JobClaim { queues, timeout, count } => {
                let count = Bytes::from(count.to_string());
                let mut args = command("JOB.CLAIM", [&timeout.encode(), &text("COUNT"), &count]);
                args.extend(queues.iter().map(|queue| text(queue.as_str())));
                args
            }
            Self::JobStatus { job_id } => words(["JOB.STATUS", job_id.as_str()]),
            Self::JobUpdate { job_id, update } => command("JOB.UPDATE", [&text(job_id.as_str()), update]),
            Self::JobList { action_id, status, slice } => {
                let mut args = words(["JOB.LIST", action_id.as_str()]);
                args.extend(status.map(|status| text(status.as_str())));
                args.extend(slice.encode().into_iter().filter(|_| *slice != Slice::ALL));
                args
            }
            Self::JobRetry { job_id, force: false } => words(["JOB.RETRY", job_id.as_str()]),
            Self::JobRetry { job_id, force: true } => words(["JOB.RETRY", job_id.as_str(), "FORCE"]),
            Self::JobCancel { job_id } => words(["JOB.CANCEL", job_id.as_str()]),
            Self::JobForget { job_id } => words(["JOB.FORGET", job_id.as_str()]),
            Self::JobExplain { job_id } => words(["JOB.EXPLAIN", job_id.as_str()]),
            Self::JobOutput { job_id, position } => {
                command("JOB.OUTPUT", std::iter::once(&text(job_id.as_str())).chain(position))
            }
            Self::JobsSearch { search } => command("JOBS.SEARCH", &search.encode()),
            _ => return None,
        })
    }

    /// Encodes the remaining commands: workers, queues, metrics.
    fn encode_worker(&self) -> Vec<Bytes> {
        match self {
            Self::WorkerRegister { worker } => command("WORKER.REGISTER", [worker]),
            Self::WorkerHeartbeat { worker_id, stats } => {
                command("WORKER.HEARTBEAT", std::iter::once(&text(worker_id.as_str())).chain(stats))
            }
            Self::WorkerUnregister { worker_id } => words(["WORKER.UNREGISTER", worker_id.as_str()]),
            Self::WorkerAnswer { challenge_id, answer } => command("WORKER.ANSWER", [challenge_id, answer]),
            Self::WorkerOutput { request_id, output } => command("WORKER.OUTPUT", [request_id, output]),
            Self::WorkerGet { worker_id } => words(["WORKER.GET", worker_id.as_str()]),
            Self::WorkerDrain { worker_id, by } => {
                let mut args = words(["WORKER.DRAIN", worker_id.as_str()]);
                args.extend(by.iter().flat_map(|name| words(["BY", name.as_str()])));
                args
            }
            Self::WorkerTerminate { worker_id } => words(["WORKER.TERMINATE", worker_id.as_str()]),
            Self::WorkerResume { worker_id } => words(["WORKER.RESUME", worker_id.as_str()]),
            Self::WorkerVerify { capability, challenge, worker_id } => {
                let mut args = command("WORKER.VERIFY", [&text(capability), challenge]);
                args.extend(worker_id.iter().flat_map(|id| words(["WORKER", id.as_str()])));
                args
            }
            Self::BudgetGet { name } => named("BUDGET.GET", name.as_slice()),
            Self::CapabilitySearch { words: sought, limit } => {
                let mut args = named("CAPABILITY.SEARCH", sought);
                args.extend(words(["LIMIT", &limit.to_string()]));
                args
            }
            Self::CapabilityList { name_part, limit } => {
                words(["CAPABILITY.LIST", "MATCH", name_part, "LIMIT", &limit.to_string()])
            }
            Self::QueueStats { queue: None } => words(["QUEUE.STATS"]),
            Self::QueueStats { queue: Some(queue) } => words(["QUEUE.STATS", queue]),
            Self::QueuePeek { queue, count } => words(["QUEUE.PEEK", queue.as_str(), &count.to_string()]),
            Self::QueuePause { queue } => words(["QUEUE.PAUSE", queue.as_str()]),
            Self::QueueResume { queue } => words(["QUEUE.RESUME", queue.as_str()]),
            Self::ScheduleSet { schedule } => command("SCHEDULE.SET", [schedule]),
            Self::ScheduleGet { name } => words(["SCHEDULE.GET", name]),
            Self::ScheduleList { page } => command("SCHEDULE.LIST", &page.encode()),
            Self::ScheduleDelete { name } => words(["SCHEDULE.DELETE", name]),
            Self::WorkflowSubmit { workflow } => command("WORKFLOW.SUBMIT", [workflow]),
            Self::WorkflowStatus { workflow_id } => words(["WORKFLOW.STATUS", workflow_id]),
            Self::WorkflowList { page } => command("WORKFLOW.LIST", &page.encode()),
            Self::WorkflowCancel { workflow_id } => words(["WORKFLOW.CANCEL", workflow_id]),
            Self::Metrics { prometheus: true } => words(["METRICS"]),
            Self::Metrics { prometheus: false } => words(["METRICS", "json"]),
            Self::WorkerList => words(["WORKER.LIST"]),
            _ => unreachable!("the functions above encode the rest"),
        }
    }
}

fn encode_hello(version: Option<RespVersion>, auth: Option<&Bytes>, name: Option<&Bytes>) -> Vec<Bytes> {
    let mut args = vec![Bytes::from_static(b"HELLO")];
    match version {
        None => return args,
        Some(RespVersion::Two) => args.push(Bytes::from_static(b"2")),
        Some(RespVersion::Three) => args.push(Bytes::from_static(b"3")),
    }
    if let Some(key) = auth {
        args.extend([Bytes::from_static(b"AUTH"), Bytes::from_static(b"default"), key.clone()]);
    }
    if let Some(name) = name {
        args.extend([Bytes::from_static(b"SETNAME"), name.clone()]);
    }
    args
}

fn encode_client(client: &ClientCommand) -> Vec<Bytes> {
    match client {
        ClientCommand::SetName(name) => command("CLIENT SETNAME", [name]),
        ClientCommand::GetName => words(["CLIENT", "GETNAME"]),
        ClientCommand::Id => words(["CLIENT", "ID"]),
        ClientCommand::List => words(["CLIENT", "LIST"]),
        ClientCommand::Info => words(["CLIENT", "INFO"]),
        ClientCommand::SetInfo { attribute, value } => command("CLIENT SETINFO", [attribute, value]),
    }
}
