//! Audit entry of a RESP command. The entry is created before the command is carried out, because
//! the command consumes its arguments, and written after, with the outcome.

use std::sync::Arc;

use agenix_protocol::{
    request::{BackupCommand, Command, Request},
    resp::Reply,
};

use crate::{
    app::{AppState, Caller},
    auth::audit_log::{self, AuditEntry, AuditedDecision, UNKNOWN_OUTCOME},
    service::plans,
};

/// Audit entry of a command. Records [`UNKNOWN_OUTCOME`] if it is dropped before the reply.
pub(crate) struct AuditedCommand {
    app: Arc<AppState>,
    caller: Arc<Caller>,
    command: &'static str,
    target: Option<String>,
    decision: Option<AuditedDecision>,
    is_written: bool,
}

impl AuditedCommand {
    pub(crate) fn of(
        app: &Arc<AppState>,
        caller: &Arc<Caller>,
        command: &'static Command,
        request: &Request,
    ) -> Option<Self> {
        is_recorded(app, command, request).then(|| Self {
            app: Arc::clone(app),
            caller: Arc::clone(caller),
            command: command.name,
            target: target(request),
            decision: decision(app, caller, request),
            is_written: false,
        })
    }

    /// The reply names the target if the command does not, as for a plan without an id.
    pub(crate) fn write(mut self, reply: &Reply) {
        let (outcome, named) = match reply {
            Reply::Error(line) => (line.as_str(), None),
            Reply::Simple(line) => ("OK", line.split_once('=').and_then(|(_, rest)| rest.split(' ').next())),
            _ => ("OK", None),
        };
        self.is_written = true;
        self.put(self.target.as_deref().or(named), outcome);
    }
}

impl AuditedCommand {
    fn put(&self, target: Option<&str>, outcome: &str) {
        put(&self.app, &self.caller, (self.command, target), (outcome, self.decision.as_ref()));
    }
}

impl Drop for AuditedCommand {
    fn drop(&mut self) {
        if !self.is_written {
            self.put(self.target.as_deref(), UNKNOWN_OUTCOME);
        }
    }
}

pub(crate) fn record_refusal(
    app: &AppState,
    caller: &Caller,
    command: &'static Command,
    request: &Request,
    line: &str,
) {
    if is_recorded(app, command, request) {
        put(app, caller, (command.name, target(request).as_deref()), (line, None));
    }
}

/// BACKUP READ and BACKUP BLOB are not recorded, because a backup has many chunks, and BACKUP BEGIN
/// is recorded.
fn is_recorded(app: &AppState, command: &Command, request: &Request) -> bool {
    let is_chunk =
        matches!(request, Request::Backup(BackupCommand::Read { .. } | BackupCommand::Blob { .. }));
    app.audit.is_on() && audit_log::is_recorded(command.name) && !is_chunk
}

fn put(
    app: &AppState,
    caller: &Caller,
    (command, target): (&str, Option<&str>),
    (outcome, decision): (&str, Option<&AuditedDecision>),
) {
    app.audit.record(&AuditEntry {
        at: app.clock.now(),
        who: caller.identity.as_ref().map(|identity| &*identity.name),
        role: caller.identity.as_ref().map(|identity| identity.role),
        from: &caller.from,
        command,
        target,
        outcome,
        decision,
    });
}

/// Returns the decision about a plan that a command submits or decides about.
fn decision(app: &AppState, caller: &Caller, request: &Request) -> Option<AuditedDecision> {
    match request {
        Request::PlanSubmit { plan } => plans::audited_decision(app, caller.submitter(), plan),
        Request::PlanApprove { digest, .. } | Request::PlanReject { digest, .. } => {
            Some(AuditedDecision::on(digest))
        }
        _ => None,
    }
}

/// Returns the changed record, if the command names it.
fn target(request: &Request) -> Option<String> {
    let target = match request {
        Request::PlanDelete { plan_id }
        | Request::PlanApprove { plan_id, .. }
        | Request::PlanReject { plan_id, .. } => plan_id.as_str(),
        Request::ActionAdd { action_id, .. }
        | Request::ActionClose { action_id }
        | Request::ActionCancel { action_id, .. }
        | Request::ActionRetry { action_id } => action_id.as_str(),
        Request::JobRetry { job_id, .. } | Request::JobCancel { job_id } | Request::JobForget { job_id } => {
            job_id.as_str()
        }
        Request::WorkerUnregister { worker_id }
        | Request::WorkerDrain { worker_id, .. }
        | Request::WorkerTerminate { worker_id }
        | Request::WorkerResume { worker_id } => worker_id.as_str(),
        Request::WorkerVerify { capability, .. } => capability,
        Request::Backup(BackupCommand::End { backup_id }) => backup_id,
        Request::ScheduleDelete { name } => name,
        Request::WorkflowCancel { workflow_id } => workflow_id,
        Request::QueuePause { queue } | Request::QueueResume { queue } => queue.as_str(),
        _ => return None,
    };
    Some(target.to_owned())
}
