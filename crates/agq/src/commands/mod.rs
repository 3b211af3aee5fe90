//! The commands: one function each, that introduces the rules to the store. Nothing here knows a socket, and no rule
//! lives here.

mod action;
mod backup;
mod capability;
mod challenge;
mod deferred;
mod due;
mod explain;
pub(crate) mod halting;
mod identity;
mod info;
mod job;
mod keyspace;
pub(crate) mod limits;
mod metrics;
mod notice;
pub(crate) mod ojs;
mod output;
mod plan;
mod queue;
mod recorded;
pub(crate) mod schedule;
mod stats;
mod submission;
mod windows;
mod worker;
pub(crate) mod workflow;

use std::sync::Arc;

use agenix_protocol::{
    ids::{JobId, WorkerId},
    names::{claimed_queue, is_reserved},
    request::{Command, KeyCommand, Request},
    resp::Reply,
    time::Timestamp,
};
use agenix_rules::{rejection::Rejection, worker::Directive};
use bytes::Bytes;

pub(crate) use due::wake_due;
pub(crate) use job::{document as job_status, hand_back_all, hand_back_unreported, take_all};
pub(crate) use metrics::prometheus;

pub(crate) use recorded::record_refusal;
pub(crate) use submission::Abandoned;
pub(crate) use worker::{detach, start_over};

use crate::{
    app::{Caller, House},
    error::CommandError,
};

/// A command that was carried out: its reply, and what it means for the connection.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) reply: Reply,
    pub(crate) effect: Effect,
    /// The same of those right behind it, as far as they were carried out together with it.
    pub(crate) also: Vec<Done>,
}

impl Done {
    /// A reply that means nothing for the connection.
    pub(crate) fn plain(reply: Reply) -> Self {
        Self::with(reply, Effect::None)
    }

    /// A reply that means this for the connection.
    pub(crate) fn with(reply: Reply, effect: Effect) -> Self {
        Self { reply, effect, also: Vec::new() }
    }
}

/// What a command means for its connection.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    None,
    /// It ends.
    Quit,
    /// The connection speaks for this worker from now on.
    Registered(WorkerId),
    /// This worker is no more.
    Unregistered(WorkerId),
    /// A job was given to the connection.
    Claimed {
        job_id: JobId,
        holder: Arc<str>,
        attempt: u32,
    },
}

/// A command in a transaction.
#[derive(Debug)]
pub(crate) enum Queued {
    Key(KeyCommand),
    Ping(Option<Bytes>),
    Echo(Bytes),
    /// One that is refused, with this line, when its turn comes.
    Refused(String),
}

type Outcome = Result<Reply, CommandError>;

/// The write of users' keys that a request is, or the request. Nothing is recorded of such a command.
pub(crate) fn write_of_keys(request: Request) -> Result<KeyCommand, Request> {
    match request {
        Request::Key(write) if write.is_write() && !is_any_reserved(&write) => Ok(write),
        request => Err(request),
    }
}

/// Carries out writes of users' keys in one write, whatever each of them answers. They take their place in the order when this is first
/// polled.
pub(crate) async fn write_keys(house: Arc<House>, writes: Vec<KeyCommand>) -> Done {
    let count = writes.len();
    let replies = keyspace::transaction(&house, writes).await.unwrap_or_else(|error| {
        let refusal = Reply::Error(error.line());
        vec![refusal; count]
    });
    let mut replies = replies.into_iter().map(Done::plain);
    let first = replies.next().unwrap_or_else(|| Done::plain(Reply::Nil));
    Done { also: replies.collect(), ..first }
}

fn done(outcome: Result<Done, CommandError>) -> Done {
    outcome.unwrap_or_else(|error| Done::plain(Reply::Error(error.line())))
}

fn is_any_reserved(command: &KeyCommand) -> bool {
    command.names().any(|name| is_reserved(name))
}

/// Carries a command out. Writes take their place in the order when this is first polled. Right behind it come so many `twins` that
/// say the same: jobs that are there are claimed for all of them in one write.
pub(crate) async fn run(
    house: Arc<House>,
    caller: Arc<Caller>,
    command: &'static Command,
    request: Request,
    twins: usize,
) -> Done {
    let record = recorded::Record::of(&house, &caller, command, &request);
    let outcome = match request {
        Request::BlockingPop(pop) => Box::pin(queue::blocking_pop(&house, &caller, pop, 1 + twins)).await,
        Request::Key(KeyCommand::Pop { key, from, count }) => match claimed_queue(&key) {
            Some(name) => Box::pin(queue::pop(&house, &caller, &name, count)).await,
            None => on_keys(&house, KeyCommand::Pop { key, from, count }).await.map(Done::plain),
        },
        // The commands that come most have their own way: the others are apart, so that nothing is moved about with room for the
        // largest of all.
        Request::Key(command) => on_keys(&house, command).await.map(Done::plain),
        Request::WorkerRegister { worker } => Box::pin(worker::register(&house, &caller, &worker)).await,
        Request::WorkerUnregister { worker_id } => {
            Box::pin(worker::unregister(&house, &caller, worker_id)).await
        }
        Request::Backup(command) => Box::pin(backup::run(&house, command)).await.map(Done::plain),
        other => Box::pin(plain(&house, &caller, other)).await.map(Done::plain),
    };
    let done = done(outcome);
    if let Some(record) = record {
        record.write(&done.reply);
    }
    done
}

/// Carries a command out that needs no more than a short look at users' keys; `None` where it needs more, or where those are
/// elsewhere. Nothing is recorded of such a command.
pub(crate) fn at_once(house: &House, request: &Request, now: Timestamp) -> Option<Done> {
    let Request::Key(command) = request else { return None };
    if is_any_reserved(command) {
        return None;
    }
    keyspace::users_at_once(house, command, now).map(|outcome| done(outcome.map(Done::plain)))
}

/// Carries out a transaction: all of its commands on keys in one, whatever each of them answers.
pub(crate) async fn transact(house: Arc<House>, queued: Vec<Queued>) -> Done {
    let keys = queued.iter().filter_map(|queued| match queued {
        Queued::Key(command) => Some(command.clone()),
        _ => None,
    });
    let reply = match keyspace::transaction(&house, keys.collect()).await {
        Err(error) => Reply::Error(error.line()),
        Ok(replies) => {
            let mut replies = replies.into_iter();
            let answer = |queued| match queued {
                Queued::Key(_) => replies.next().unwrap_or(Reply::Nil),
                Queued::Ping(message) => pong(message),
                Queued::Echo(message) => Reply::Bulk(message),
                Queued::Refused(line) => Reply::Error(line),
            };
            Reply::Array(queued.into_iter().map(answer).collect())
        }
    };
    Done::plain(reply)
}

/// PING
pub(crate) fn pong(message: Option<Bytes>) -> Reply {
    message.map_or_else(|| Reply::Simple("PONG".into()), Reply::Bulk)
}

/// The commands that mean nothing for their connection.
async fn plain(house: &House, caller: &Caller, request: Request) -> Outcome {
    match request {
        Request::Echo { message } => Ok(Reply::Bulk(message)),
        Request::CommandInfo { names } => Ok(info::commands(names.as_deref())),
        Request::CommandCount => Ok(Reply::count(Command::all().count())),
        Request::CommandDocs { names } => Ok(info::docs(&names)),
        Request::Info { sections } => info::info(house, &sections).await,
        Request::Publish { channel, message } => publish(house, &channel, &message),
        Request::PlanSubmit { plan } => plan::submit(house, &plan).await,
        Request::PlanGet { plan_id } => plan::get(house, &plan_id).await,
        Request::PlanList { page } => plan::list(house, page).await,
        Request::PlanDelete { plan_id } => plan::delete(house, &plan_id).await,
        Request::ActionSubmit { action } => action::submit(house, &action).await,
        Request::ActionStatus { action_id } => action::status(house, &action_id).await,
        Request::ActionList { page } => action::list(house, page).await,
        Request::ActionAdd { action_id, inputs, at } => action::add(house, action_id, &inputs, at).await,
        Request::ActionClose { action_id } => action::close(house, &action_id).await,
        Request::ActionCancel { action_id, unstarted: false } => action::cancel(house, &action_id).await,
        Request::ActionCancel { action_id, unstarted: true } => {
            action::cancel_unstarted(house, &action_id).await
        }
        Request::ActionRetry { action_id } => action::retry(house, &action_id).await,
        Request::JobStatus { job_id } => job::status(house, &job_id).await,
        Request::JobUpdate { job_id, update } => job::update(house, caller, &job_id, &update).await,
        Request::JobList { action_id, status, slice } => job::list(house, &action_id, status, slice).await,
        Request::JobRetry { job_id, force } => job::retry(house, &job_id, force).await,
        Request::JobCancel { job_id } => job::cancel(house, &job_id).await,
        Request::JobExplain { job_id } => explain::explain(house, &job_id).await,
        Request::JobOutput { job_id, position } => output::show(house, &job_id, position.as_ref()).await,
        Request::JobsSearch { search } => job::search(house, search).await,
        other => workers(house, caller, other).await,
    }
}

/// The commands about workers, queues and figures.
async fn workers(house: &House, caller: &Caller, request: Request) -> Outcome {
    match request {
        Request::WorkerHeartbeat { worker_id, stats } => {
            worker::heartbeat(house, caller, &worker_id, stats).await
        }
        Request::WorkerList => worker::list(house).await,
        Request::WorkerGet { worker_id } => worker::get(house, &worker_id).await,
        Request::WorkerDrain { worker_id } => worker::tell(house, &worker_id, Some(Directive::Drain)).await,
        Request::WorkerTerminate { worker_id } => {
            worker::tell(house, &worker_id, Some(Directive::Terminate)).await
        }
        Request::WorkerResume { worker_id } => worker::tell(house, &worker_id, None).await,
        Request::WorkerVerify { capability, challenge, worker_id } => {
            challenge::verify(house, &capability, &challenge, worker_id.as_ref()).await
        }
        Request::WorkerAnswer { challenge_id, answer } => {
            challenge::answer(house, caller, &challenge_id, &answer).await
        }
        Request::WorkerOutput { request_id, output } => {
            output::bring(house, caller, &request_id, &output).await
        }
        Request::CapabilitySearch { words, limit } => capability::search(house, &words, limit).await,
        Request::QueueStats { queue } => stats::stats(house, queue.as_deref()).await,
        Request::QueuePeek { queue, count } => queue::peek(house, &queue, count).await,
        Request::QueuePause { queue } => queue::pause(house, &queue, true).await,
        Request::QueueResume { queue } => queue::pause(house, &queue, false).await,
        Request::ScheduleSet { schedule } => schedule::set_command(house, &schedule).await,
        Request::ScheduleGet { name } => schedule::get_command(house, &name).await,
        Request::ScheduleList { page } => schedule::list_command(house, &page).await,
        Request::ScheduleDelete { name } => schedule::delete_command(house, &name).await,
        Request::WorkflowSubmit { workflow } => workflow::submit_command(house, &workflow).await,
        Request::WorkflowStatus { workflow_id } => workflow::status_command(house, &workflow_id).await,
        Request::WorkflowList { page } => workflow::list_command(house, &page).await,
        Request::WorkflowCancel { workflow_id } => workflow::cancel_command(house, &workflow_id).await,
        Request::Metrics { prometheus } => metrics::metrics(house, prometheus).await,
        _ => unreachable!("`run` and the session take the rest: they mean something for their connection"),
    }
}

/// A command on keys: those of users, or windows on what agq keeps.
async fn on_keys(house: &House, command: KeyCommand) -> Outcome {
    if is_any_reserved(&command) {
        Box::pin(windows::answer(house, &command)).await
    } else {
        keyspace::users(house, command).await
    }
}

/// PUBLISH
fn publish(house: &House, channel: &Bytes, message: &Bytes) -> Outcome {
    if is_reserved(channel) {
        let key = String::from_utf8_lossy(channel).escape_debug().to_string();
        let instead = "its events come from what happens";
        return Err(Rejection::ReservedKey { key, what: "published to", instead }.into());
    }
    Ok(Reply::count(house.hub.publish(channel, message)))
}

/// A document as a bulk string.
fn json<T: serde::Serialize>(document: &T) -> Reply {
    Reply::bulk(agenix_protocol::documents::to_json(document))
}
