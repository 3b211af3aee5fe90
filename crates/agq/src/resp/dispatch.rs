//! Table of the commands: maps a request to its handler.
//!
//! [`run`] carries out any command that the session passes on. Commands that change the state of
//! their connection (claims, WORKER.REGISTER, WORKER.UNREGISTER) return a [`CommandOutcome`]; all
//! other commands return a reply, and are looked up in one table for each group of commands.
//! [`at_once`] carries out short reads of users' keys without a future, and [`write_keys`] several
//! writes of users' keys in one write of the store. Nothing here depends on sockets or on domain
//! rules.

use std::sync::Arc;

use agenix_protocol::{
    request::{Command, KeyCommand, Request},
    reserved_keys::{claimed_queue, is_reserved},
    resp::Reply,
    time::Timestamp,
};
use agenix_rules::{rejection::Rejection, worker::Directive};
use bytes::Bytes;

use super::{
    audit,
    handlers::{
        action, backup, budget, capability, challenge, info, job, keyspace, metrics, output, outputs, plan,
        queue, schedule, virtual_keys, worker, workflow,
    },
    outcome::{CommandOutcome, CommandResult},
    ownership,
};
use crate::{
    app::{AppState, Caller},
    error::CommandError,
};

/// Reply to a command that the session has to handle and has not: the caller has no connection.
const ONLY_ON_A_CONNECTION: &str = "ERR this command changes its connection, and here is none";

/// Command in a transaction.
#[derive(Debug)]
pub(crate) enum QueuedCommand {
    Key(KeyCommand),
    Ping(Option<Bytes>),
    Echo(Bytes),
    /// Command that EXEC answers with this error line.
    Refused(String),
}

/// Returns the request as a write of users' keys, or the unchanged request if it is another
/// command. The audit log does not record writes of users' keys.
pub(crate) fn write_of_keys(request: Request) -> Result<KeyCommand, Request> {
    match request {
        Request::Key(write) if write.is_write() && !is_any_reserved(&write) => Ok(write),
        request => Err(request),
    }
}

/// Carries out writes of users' keys in one write of the store. An error of one command does not
/// undo the others. The first poll determines the order among other writes.
pub(crate) async fn write_keys(app: Arc<AppState>, writes: Vec<KeyCommand>) -> CommandOutcome {
    let count = writes.len();
    let replies = keyspace::transaction(&app, writes).await.unwrap_or_else(|error| {
        let refusal = Reply::Error(error.line());
        vec![refusal; count]
    });
    let mut replies = replies.into_iter();
    let first = replies.next().unwrap_or(Reply::Nil);
    CommandOutcome { merged: replies.collect(), ..CommandOutcome::plain(first) }
}

fn done(outcome: Result<CommandOutcome, CommandError>) -> CommandOutcome {
    outcome.unwrap_or_else(|error| CommandOutcome::plain(Reply::Error(error.line())))
}

fn is_any_reserved(command: &KeyCommand) -> bool {
    command.names().any(|name| is_reserved(name))
}

/// Carries out a command. The first poll determines the order among other writes.
pub(crate) async fn run(
    app: Arc<AppState>,
    caller: Arc<Caller>,
    command: &'static Command,
    request: Request,
) -> CommandOutcome {
    let record = audit::AuditedCommand::of(&app, &caller, command, &request);
    if let Some(agent) = caller.agent()
        && let Some(reply) = Box::pin(ownership::hidden(&app, agent, command, &request)).await.transpose()
    {
        return recorded(record, reply.map(CommandOutcome::plain));
    }
    let outcome = match request {
        Request::BlockingPop(pop) => Box::pin(queue::blocking_pop(&app, &caller, pop)).await,
        Request::JobClaim { queues, timeout, count } => {
            Box::pin(queue::claim(&app, &caller, &queues, timeout, count)).await
        }
        Request::Key(KeyCommand::Pop { key, from, count }) => match claimed_queue(&key) {
            Some(name) => Box::pin(queue::pop(&app, &caller, &name, count)).await,
            None => {
                run_key_command(&app, KeyCommand::Pop { key, from, count }).await.map(CommandOutcome::plain)
            }
        },
        // The most frequent commands are not boxed. All other commands are boxed, so that the
        // future of a frequent command does not have the size of the largest future.
        Request::Key(command) => run_key_command(&app, command).await.map(CommandOutcome::plain),
        Request::WorkerRegister { worker } => Box::pin(worker::register(&app, &caller, &worker)).await,
        Request::WorkerUnregister { worker_id } => {
            Box::pin(worker::unregister(&app, &caller, worker_id)).await
        }
        Request::Backup(command) => Box::pin(backup::run(&app, command)).await.map(CommandOutcome::plain),
        other => Box::pin(run_stateless(&app, &caller, other)).await.map(CommandOutcome::plain),
    };
    recorded(record, outcome)
}

fn recorded(
    record: Option<audit::AuditedCommand>,
    outcome: Result<CommandOutcome, CommandError>,
) -> CommandOutcome {
    let done = done(outcome);
    if let Some(record) = record {
        record.write(&done.reply);
    }
    done
}

/// Carries out a short read of users' keys without waiting. Returns `None` for any other command,
/// and if the store cannot read at once. The audit log does not record such commands.
pub(crate) fn at_once(app: &AppState, request: &Request, now: Timestamp) -> Option<CommandOutcome> {
    let Request::Key(command) = request else { return None };
    if is_any_reserved(command) {
        return None;
    }
    keyspace::users_at_once(app, command, now).map(|outcome| done(outcome.map(CommandOutcome::plain)))
}

/// Carries out a transaction: all of its commands on keys in one write of the store. An error of
/// one command does not undo the others.
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

/// Result of one group of the table: the result of the command, or the request if the request
/// belongs to another group.
type GroupResult = Result<CommandResult, Request>;

/// Carries out a command that does not change the state of its connection.
async fn run_stateless(app: &AppState, caller: &Caller, request: Request) -> CommandResult {
    let request = match run_job_command(app, caller, request).await {
        Ok(result) => return result,
        Err(request) => request,
    };
    let request = match run_worker_command(app, caller, request).await {
        Ok(result) => return result,
        Err(request) => request,
    };
    let request = match run_action_command(app, caller, request).await {
        Ok(result) => return result,
        Err(request) => request,
    };
    // A workflow submits actions, so its future is larger than those of frequent commands.
    let request = match Box::pin(run_workflow_command(app, caller, request)).await {
        Ok(result) => return result,
        Err(request) => request,
    };
    match run_server_command(app, request).await {
        Ok(result) => result,
        Err(_session_command) => Ok(Reply::Error(ONLY_ON_A_CONNECTION.into())),
    }
}

/// JOB.* and JOBS.SEARCH
async fn run_job_command(app: &AppState, caller: &Caller, request: Request) -> GroupResult {
    Ok(match request {
        Request::JobStatus { job_id } => job::status(app, &job_id).await,
        Request::JobUpdate { job_id, update } => job::update(app, caller, &job_id, &update).await,
        Request::JobList { action_id, status, slice } => job::list(app, &action_id, status, slice).await,
        Request::JobRetry { job_id, force } => job::retry(app, &job_id, force).await,
        Request::JobCancel { job_id } => job::cancel(app, &job_id).await,
        Request::JobForget { job_id } => job::forget(app, &job_id).await,
        Request::JobExplain { job_id } => job::explain(app, &job_id).await,
        Request::JobOutput { job_id, position } => output::show(app, &job_id, position.as_ref()).await,
        Request::JobsSearch { search } => job::search(app, caller, search).await,
        Request::Output(command) => outputs::run(app, caller, command).await,
        other => return Err(other),
    })
}

/// WORKER.*, BUDGET.GET, CAPABILITY.* and QUEUE.*
async fn run_worker_command(app: &AppState, caller: &Caller, request: Request) -> GroupResult {
    Ok(match request {
        Request::WorkerHeartbeat { worker_id, stats } => {
            worker::heartbeat(app, caller, &worker_id, stats).await
        }
        Request::WorkerList => worker::list(app).await,
        Request::WorkerGet { worker_id } => worker::get(app, &worker_id).await,
        Request::WorkerDrain { worker_id, by } => worker::drain(app, &worker_id, by).await,
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
            output::deliver(app, caller, &request_id, &output).await
        }
        Request::BudgetGet { name } => budget::get(app, caller, name.as_deref()).await,
        Request::CapabilitySearch { words, limit } => capability::search(app, &words, limit).await,
        Request::CapabilityList { name_part, limit } => capability::list(app, &name_part, limit).await,
        Request::QueueStats { queue } => queue::stats(app, queue.as_deref()).await,
        Request::QueuePeek { queue, count } => queue::peek(app, &queue, count).await,
        Request::QueuePause { queue } => queue::pause(app, &queue, true).await,
        Request::QueueResume { queue } => queue::pause(app, &queue, false).await,
        other => return Err(other),
    })
}

/// PLAN.* and ACTION.*
async fn run_action_command(app: &AppState, caller: &Caller, request: Request) -> GroupResult {
    Ok(match request {
        Request::PlanSubmit { plan } => plan::submit(app, caller, &plan).await,
        Request::PlanGet { plan_id } => plan::get(app, caller, &plan_id).await,
        Request::PlanStatus { plan_id } => plan::status(app, &plan_id).await,
        Request::PlanOrder { plan_id } => plan::order(app, caller, &plan_id).await,
        Request::PlanList { page } => plan::list(app, caller, page).await,
        Request::PlanDelete { plan_id } => plan::delete(app, caller, &plan_id).await,
        Request::PlanApprove { plan_id, digest } => plan::approve(app, caller, &plan_id, &digest).await,
        Request::PlanReject { plan_id, digest } => plan::reject(app, caller, &plan_id, &digest).await,
        Request::ApprovalList => plan::approvals(app).await,
        Request::ActionSubmit { action } => action::submit(app, caller, &action).await,
        Request::ActionStatus { action_id } => action::status(app, &action_id).await,
        Request::ActionList { page, labels } => action::list(app, caller, page, labels).await,
        Request::ActionAdd { action_id, inputs, at } => {
            action::add(app, caller, action_id, &inputs, at).await
        }
        Request::ActionClose { action_id } => action::close(app, &action_id).await,
        Request::ActionCancel { action_id, unstarted } => action::cancel(app, &action_id, unstarted).await,
        Request::ActionRetry { action_id } => action::retry(app, &action_id).await,
        other => return Err(other),
    })
}

/// SCHEDULE.* and WORKFLOW.*
async fn run_workflow_command(app: &AppState, caller: &Caller, request: Request) -> GroupResult {
    Ok(match request {
        Request::ScheduleSet { schedule } => schedule::set(app, caller, &schedule).await,
        Request::ScheduleGet { name } => schedule::get(app, &name).await,
        Request::ScheduleList { page } => schedule::list(app, &page).await,
        Request::ScheduleDelete { name } => schedule::delete(app, &name).await,
        Request::WorkflowSubmit { workflow } => workflow::submit(app, caller, &workflow).await,
        Request::WorkflowStatus { workflow_id } => workflow::status(app, &workflow_id).await,
        Request::WorkflowList { page } => workflow::list(app, &page).await,
        Request::WorkflowCancel { workflow_id } => workflow::cancel(app, &workflow_id).await,
        other => return Err(other),
    })
}

/// Commands about the server, and PUBLISH.
async fn run_server_command(app: &AppState, request: Request) -> GroupResult {
    Ok(match request {
        Request::Echo { message } => Ok(Reply::Bulk(message)),
        Request::CommandInfo { names } => Ok(info::commands(names.as_deref())),
        Request::CommandCount => Ok(Reply::count(Command::all().count())),
        Request::CommandDocs { names } => Ok(info::docs(&names)),
        Request::Info { sections } => info::info(app, &sections).await,
        Request::Publish { channel, message } => publish(app, &channel, &message),
        Request::Metrics { prometheus } => metrics::metrics(app, prometheus).await,
        other => return Err(other),
    })
}

/// Carries out a command on users' keys or on virtual keys.
async fn run_key_command(app: &AppState, command: KeyCommand) -> CommandResult {
    if is_any_reserved(&command) {
        Box::pin(virtual_keys::answer(app, &command)).await
    } else {
        keyspace::users(app, command).await
    }
}

fn publish(app: &AppState, channel: &Bytes, message: &Bytes) -> CommandResult {
    if is_reserved(channel) {
        let channel = String::from_utf8_lossy(channel).escape_debug().to_string();
        return Err(Rejection::ReservedChannel(channel).into());
    }
    Ok(Reply::count(app.pubsub.publish(channel, message)))
}
