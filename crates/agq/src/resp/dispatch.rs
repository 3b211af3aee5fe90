//! The commands: one function each, that introduces the rules to the store. Nothing here knows a socket, and no rule
//! lives here.

use std::sync::Arc;

use agenix_protocol::{
    names::{claimed_queue, is_reserved},
    request::{Command, KeyCommand, Request},
    resp::Reply,
    time::Timestamp,
};
use agenix_rules::{rejection::Rejection, worker::Directive};
use bytes::Bytes;

use super::{
    audit,
    handlers::{
        action, backup, capability, challenge, info, job, keyspace, metrics, output, plan, queue, schedule,
        virtual_keys, worker, workflow,
    },
    outcome::{CommandOutcome, CommandResult},
};
use crate::{
    app::{AppState, Caller},
    error::CommandError,
};

/// A command in a transaction.
#[derive(Debug)]
pub(crate) enum QueuedCommand {
    Key(KeyCommand),
    Ping(Option<Bytes>),
    Echo(Bytes),
    /// One that is refused, with this line, when its turn comes.
    Refused(String),
}

/// The write of users' keys that a request is, or the request. Nothing is recorded of such a command.
pub(crate) fn write_of_keys(request: Request) -> Result<KeyCommand, Request> {
    match request {
        Request::Key(write) if write.is_write() && !is_any_reserved(&write) => Ok(write),
        request => Err(request),
    }
}

/// Carries out writes of users' keys in one write, whatever each of them answers. They take their place in the order when this is first
/// polled.
pub(crate) async fn write_keys(app: Arc<AppState>, writes: Vec<KeyCommand>) -> CommandOutcome {
    let count = writes.len();
    let replies = keyspace::transaction(&app, writes).await.unwrap_or_else(|error| {
        let refusal = Reply::Error(error.line());
        vec![refusal; count]
    });
    let mut replies = replies.into_iter().map(CommandOutcome::plain);
    let first = replies.next().unwrap_or_else(|| CommandOutcome::plain(Reply::Nil));
    CommandOutcome { also: replies.collect(), ..first }
}

fn done(outcome: Result<CommandOutcome, CommandError>) -> CommandOutcome {
    outcome.unwrap_or_else(|error| CommandOutcome::plain(Reply::Error(error.line())))
}

fn is_any_reserved(command: &KeyCommand) -> bool {
    command.names().any(|name| is_reserved(name))
}

/// Carries a command out. Writes take their place in the order when this is first polled. Right behind it come so many `twins` that
/// say the same: jobs that are there are claimed for all of them in one write.
pub(crate) async fn run(
    app: Arc<AppState>,
    caller: Arc<Caller>,
    command: &'static Command,
    request: Request,
    twins: usize,
) -> CommandOutcome {
    let record = audit::AuditedCommand::of(&app, &caller, command, &request);
    let outcome = match request {
        Request::BlockingPop(pop) => Box::pin(queue::blocking_pop(&app, &caller, pop, 1 + twins)).await,
        Request::Key(KeyCommand::Pop { key, from, count }) => match claimed_queue(&key) {
            Some(name) => Box::pin(queue::pop(&app, &caller, &name, count)).await,
            None => on_keys(&app, KeyCommand::Pop { key, from, count }).await.map(CommandOutcome::plain),
        },
        // The commands that come most have their own way: the others are apart, so that nothing is moved about with room for the
        // largest of all.
        Request::Key(command) => on_keys(&app, command).await.map(CommandOutcome::plain),
        Request::WorkerRegister { worker } => Box::pin(worker::register(&app, &caller, &worker)).await,
        Request::WorkerUnregister { worker_id } => {
            Box::pin(worker::unregister(&app, &caller, worker_id)).await
        }
        Request::Backup(command) => Box::pin(backup::run(&app, command)).await.map(CommandOutcome::plain),
        other => Box::pin(plain(&app, &caller, other)).await.map(CommandOutcome::plain),
    };
    let done = done(outcome);
    if let Some(record) = record {
        record.write(&done.reply);
    }
    done
}

/// Carries a command out that needs no more than a short look at users' keys; `None` where it needs more, or where those are
/// elsewhere. Nothing is recorded of such a command.
pub(crate) fn at_once(app: &AppState, request: &Request, now: Timestamp) -> Option<CommandOutcome> {
    let Request::Key(command) = request else { return None };
    if is_any_reserved(command) {
        return None;
    }
    keyspace::users_at_once(app, command, now).map(|outcome| done(outcome.map(CommandOutcome::plain)))
}

/// Carries out a transaction: all of its commands on keys in one, whatever each of them answers.
pub(crate) async fn exec(app: Arc<AppState>, queued: Vec<QueuedCommand>) -> CommandOutcome {
    let keys = queued.iter().filter_map(|queued| match queued {
        QueuedCommand::Key(command) => Some(command.clone()),
        _ => None,
    });
    let reply = match keyspace::transaction(&app, keys.collect()).await {
        Err(error) => Reply::Error(error.line()),
        Ok(replies) => {
            let mut replies = replies.into_iter();
            let answer = |queued| match queued {
                QueuedCommand::Key(_) => replies.next().unwrap_or(Reply::Nil),
                QueuedCommand::Ping(message) => pong(message),
                QueuedCommand::Echo(message) => Reply::Bulk(message),
                QueuedCommand::Refused(line) => Reply::Error(line),
            };
            Reply::Array(queued.into_iter().map(answer).collect())
        }
    };
    CommandOutcome::plain(reply)
}

/// PING
pub(crate) fn pong(message: Option<Bytes>) -> Reply {
    message.map_or_else(|| Reply::Simple("PONG".into()), Reply::Bulk)
}

/// The commands that mean nothing for their connection.
async fn plain(app: &AppState, caller: &Caller, request: Request) -> CommandResult {
    match request {
        Request::Echo { message } => Ok(Reply::Bulk(message)),
        Request::CommandInfo { names } => Ok(info::commands(names.as_deref())),
        Request::CommandCount => Ok(Reply::count(Command::all().count())),
        Request::CommandDocs { names } => Ok(info::docs(&names)),
        Request::Info { sections } => info::info(app, &sections).await,
        Request::Publish { channel, message } => publish(app, &channel, &message),
        Request::PlanSubmit { plan } => plan::submit(app, &plan).await,
        Request::PlanGet { plan_id } => plan::get(app, &plan_id).await,
        Request::PlanList { page } => plan::list(app, page).await,
        Request::PlanDelete { plan_id } => plan::delete(app, &plan_id).await,
        Request::ActionSubmit { action } => action::submit(app, &action).await,
        Request::ActionStatus { action_id } => action::status(app, &action_id).await,
        Request::ActionList { page } => action::list(app, page).await,
        Request::ActionAdd { action_id, inputs, at } => action::add(app, action_id, &inputs, at).await,
        Request::ActionClose { action_id } => action::close(app, &action_id).await,
        Request::ActionCancel { action_id, unstarted } => action::cancel(app, &action_id, unstarted).await,
        Request::ActionRetry { action_id } => action::retry(app, &action_id).await,
        Request::JobStatus { job_id } => job::status(app, &job_id).await,
        Request::JobUpdate { job_id, update } => job::update(app, caller, &job_id, &update).await,
        Request::JobList { action_id, status, slice } => job::list(app, &action_id, status, slice).await,
        Request::JobRetry { job_id, force } => job::retry(app, &job_id, force).await,
        Request::JobCancel { job_id } => job::cancel(app, &job_id).await,
        Request::JobExplain { job_id } => job::explain(app, &job_id).await,
        Request::JobOutput { job_id, position } => output::show(app, &job_id, position.as_ref()).await,
        Request::JobsSearch { search } => job::search(app, search).await,
        other => workers(app, caller, other).await,
    }
}

/// The commands about workers, queues and figures.
async fn workers(app: &AppState, caller: &Caller, request: Request) -> CommandResult {
    match request {
        Request::WorkerHeartbeat { worker_id, stats } => {
            worker::heartbeat(app, caller, &worker_id, stats).await
        }
        Request::WorkerList => worker::list(app).await,
        Request::WorkerGet { worker_id } => worker::get(app, &worker_id).await,
        Request::WorkerDrain { worker_id } => {
            worker::set_directive(app, &worker_id, Some(Directive::Drain)).await
        }
        Request::WorkerTerminate { worker_id } => {
            worker::set_directive(app, &worker_id, Some(Directive::Terminate)).await
        }
        Request::WorkerResume { worker_id } => worker::set_directive(app, &worker_id, None).await,
        Request::WorkerVerify { capability, challenge, worker_id } => {
            challenge::verify(app, &capability, &challenge, worker_id.as_ref()).await
        }
        Request::WorkerAnswer { challenge_id, answer } => {
            challenge::answer(app, caller, &challenge_id, &answer).await
        }
        Request::WorkerOutput { request_id, output } => {
            output::bring(app, caller, &request_id, &output).await
        }
        Request::CapabilitySearch { words, limit } => capability::search(app, &words, limit).await,
        Request::QueueStats { queue } => queue::stats(app, queue.as_deref()).await,
        Request::QueuePeek { queue, count } => queue::peek(app, &queue, count).await,
        Request::QueuePause { queue } => queue::pause(app, &queue, true).await,
        Request::QueueResume { queue } => queue::pause(app, &queue, false).await,
        Request::ScheduleSet { schedule } => schedule::set(app, &schedule).await,
        Request::ScheduleGet { name } => schedule::get(app, &name).await,
        Request::ScheduleList { page } => schedule::list(app, &page).await,
        Request::ScheduleDelete { name } => schedule::delete(app, &name).await,
        Request::WorkflowSubmit { workflow } => workflow::submit(app, &workflow).await,
        Request::WorkflowStatus { workflow_id } => workflow::status(app, &workflow_id).await,
        Request::WorkflowList { page } => workflow::list(app, &page).await,
        Request::WorkflowCancel { workflow_id } => workflow::cancel(app, &workflow_id).await,
        Request::Metrics { prometheus } => metrics::metrics(app, prometheus).await,
        _ => unreachable!("`run` and the session take the rest: they mean something for their connection"),
    }
}

/// A command on keys: those of users, or windows on what agq keeps.
async fn on_keys(app: &AppState, command: KeyCommand) -> CommandResult {
    if is_any_reserved(&command) {
        Box::pin(virtual_keys::answer(app, &command)).await
    } else {
        keyspace::users(app, command).await
    }
}

/// PUBLISH
fn publish(app: &AppState, channel: &Bytes, message: &Bytes) -> CommandResult {
    if is_reserved(channel) {
        let key = String::from_utf8_lossy(channel).escape_debug().to_string();
        let instead = "its events come from what happens";
        return Err(Rejection::ReservedKey { key, what: "published to", instead }.into());
    }
    Ok(Reply::count(app.pubsub.publish(channel, message)))
}
