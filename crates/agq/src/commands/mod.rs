//! The commands: one function each, that introduces the rules to the store. Nothing here knows a socket, and no rule
//! lives here.

mod action;
mod identity;
mod job;
mod keyspace;
mod plan;
mod queue;
mod worker;

use std::sync::Arc;

use agenix_protocol::{
    documents::BadDocument,
    ids::{JobId, WorkerId},
    request::Request,
    resp::Reply,
};
use agenix_rules::rejection::Rejection;

pub(crate) use job::{hand_back_all, hand_back_unreported, take_all};
pub(crate) use worker::{detach, start_over};

use crate::{
    error::CommandError,
    house::{Caller, House},
};

/// A command that was carried out: its reply, and what it means for the connection.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) reply: Reply,
    pub(crate) effect: Effect,
}

/// What a command means for its connection.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    None,
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

type Outcome = Result<Reply, CommandError>;

/// Carries a command out. Writes take their place in the order when this is first polled.
pub(crate) async fn run(house: Arc<House>, caller: Arc<Caller>, request: Request) -> Done {
    let outcome = match request {
        Request::BRPop { key, timeout } => queue::blocking_pop(&house, &caller, key, timeout).await,
        Request::RPop { key } => queue::pop(&house, &caller, key).await,
        Request::WorkerRegister { worker } => worker::register(&house, &caller, &worker).await,
        Request::WorkerUnregister { worker_id } => worker::unregister(&house, worker_id).await,
        other => plain(&house, &caller, other).await.map(|reply| Done { reply, effect: Effect::None }),
    };
    outcome.unwrap_or_else(|error| Done { reply: Reply::Error(error.line()), effect: Effect::None })
}

/// The commands that mean nothing for their connection.
async fn plain(house: &House, caller: &Caller, request: Request) -> Outcome {
    match request {
        Request::Ping { message } => Ok(message.map_or_else(|| Reply::Simple("PONG".into()), Reply::Bulk)),
        Request::PlanSubmit { plan } => plan::submit(house, &plan).await,
        Request::PlanGet { plan_id } => plan::get(house, &plan_id).await,
        Request::PlanList => plan::list(house).await,
        Request::ActionSubmit { action } => action::submit(house, &action).await,
        Request::ActionStatus { action_id } => action::status(house, &action_id).await,
        Request::JobStatus { job_id } => job::status(house, &job_id).await,
        Request::JobUpdate { job_id, update } => job::update(house, caller, &job_id, &update).await,
        Request::JobList { action_id, status } => job::list(house, &action_id, status).await,
        Request::WorkerHeartbeat { worker_id, stats } => worker::heartbeat(house, &worker_id, stats).await,
        Request::WorkerList => worker::list(house).await,
        Request::QueueStats { queue } => queue::stats(house, queue.as_deref()).await,
        Request::LLen { key } => queue::length(house, key).await,
        Request::Set { key, value } => keyspace::set(house, key, value).await,
        Request::Get { key } => keyspace::get(house, key).await,
        Request::Del { keys } => keyspace::del(house, keys).await,
        Request::Exists { keys } => keyspace::exists(house, keys).await,
        Request::LPush { key, values } => keyspace::push(house, key, values).await,
        Request::ZAdd { key, score, member } => keyspace::add_scored(house, key, score, member).await,
        Request::ZRangeByScore { key, min, max } => keyspace::range_by_score(house, key, min, max).await,
        Request::Auth { .. }
        | Request::Hello { .. }
        | Request::ClientSetName { .. }
        | Request::ClientSetInfo => {
            unreachable!("the session answers these, they need no house")
        }
        Request::BRPop { .. }
        | Request::RPop { .. }
        | Request::WorkerRegister { .. }
        | Request::WorkerUnregister { .. } => {
            unreachable!("`run` takes these, they mean something for their connection")
        }
    }
}

/// A document as a bulk string.
fn json<T: serde::Serialize>(document: &T) -> Reply {
    Reply::bulk(agenix_protocol::documents::to_json(document))
}

fn invalid_action(error: &BadDocument) -> Rejection {
    Rejection::InvalidAction(error.to_string())
}
