//! What the audit log says of a command: taken before it is carried out, written after.

use agenix_protocol::{
    request::{Command, Request},
    resp::Reply,
};

use crate::{
    audit::{self, Entry},
    house::{Caller, House},
};

/// A command that is recorded.
pub(super) struct Record {
    command: &'static str,
    target: Option<String>,
}

impl Record {
    /// The record of a command; none where nothing is recorded of it.
    pub(super) fn of(house: &House, command: &'static Command, request: &Request) -> Option<Self> {
        let is_recorded = house.audit.is_on() && audit::is_recorded(command.name);
        is_recorded.then(|| Self { command: command.name, target: target(request) })
    }

    /// Writes it, with what came of the command. What was submitted without an id is named by its answer.
    pub(super) fn write(self, house: &House, caller: &Caller, reply: &Reply) {
        let (outcome, told) = match reply {
            Reply::Error(line) => (line.as_str(), None),
            Reply::Simple(line) => ("OK", line.split_once('=').and_then(|(_, rest)| rest.split(' ').next())),
            _ => ("OK", None),
        };
        house.audit.record(&Entry {
            at: house.clock.now(),
            who: caller.identity.as_ref().map(|identity| &*identity.name),
            role: caller.identity.as_ref().map(|identity| identity.role),
            from: &caller.from,
            command: self.command,
            target: self.target.as_deref().or(told),
            outcome,
        });
    }
}

/// What a command is about, where it names it.
fn target(request: &Request) -> Option<String> {
    let target = match request {
        Request::PlanDelete { plan_id } => plan_id.as_str(),
        Request::ActionAdd { action_id, .. }
        | Request::ActionClose { action_id }
        | Request::ActionCancel { action_id }
        | Request::ActionRetry { action_id } => action_id.as_str(),
        Request::JobRetry { job_id, .. } | Request::JobCancel { job_id } => job_id.as_str(),
        Request::WorkerUnregister { worker_id }
        | Request::WorkerDrain { worker_id }
        | Request::WorkerTerminate { worker_id }
        | Request::WorkerResume { worker_id } => worker_id.as_str(),
        Request::WorkerVerify { capability, .. } => capability,
        Request::QueuePause { queue } | Request::QueueResume { queue } => queue.as_str(),
        _ => return None,
    };
    Some(target.to_owned())
}
