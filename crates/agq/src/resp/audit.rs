//! Audit entry of a RESP command. The entry is created before the command is carried out, because
//! the command consumes its arguments, and written after, with the outcome.

use std::sync::Arc;

use agenix_protocol::{
    request::{BackupCommand, Command, Request},
    resp::Reply,
};

use crate::{
    app::{AppState, Caller},
    auth::audit_log::{self, AuditEntry},
};

/// Outcome of a command whose connection closed before its reply. The command may have been carried
/// out.
const UNKNOWN: &str = "unknown: the connection broke before the answer";

/// Command that the audit log records. If it is dropped before its reply, it is recorded as
/// [`UNKNOWN`].
pub(crate) struct AuditedCommand {
    app: Arc<AppState>,
    caller: Arc<Caller>,
    command: &'static str,
    target: Option<String>,
    is_written: bool,
}

impl AuditedCommand {
    /// Creates the entry of a command. Returns `None` if the audit log does not record the command.
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
            is_written: false,
        })
    }

    /// Writes the entry with the outcome in `reply`. The reply names the target if the command does
    /// not, as for a plan that was submitted without an id.
    pub(crate) fn write(mut self, reply: &Reply) {
        let (outcome, named) = match reply {
            Reply::Error(line) => (line.as_str(), None),
            Reply::Simple(line) => ("OK", line.split_once('=').and_then(|(_, rest)| rest.split(' ').next())),
            _ => ("OK", None),
        };
        self.is_written = true;
        put(&self.app, &self.caller, self.command, self.target.as_deref().or(named), outcome);
    }
}

impl Drop for AuditedCommand {
    fn drop(&mut self) {
        if !self.is_written {
            put(&self.app, &self.caller, self.command, self.target.as_deref(), UNKNOWN);
        }
    }
}

/// Records a command that the role of the key does not permit.
pub(crate) fn record_refusal(
    app: &AppState,
    caller: &Caller,
    command: &'static Command,
    request: &Request,
    line: &str,
) {
    if is_recorded(app, command, request) {
        put(app, caller, command.name, target(request).as_deref(), line);
    }
}

/// Returns true if the audit log records the command. BACKUP READ is not recorded, because a backup
/// has many pieces, and BACKUP BEGIN is recorded.
fn is_recorded(app: &AppState, command: &Command, request: &Request) -> bool {
    let is_piece = matches!(request, Request::Backup(BackupCommand::Read { .. }));
    app.audit.is_on() && audit_log::is_recorded(command.name) && !is_piece
}

fn put(app: &AppState, caller: &Caller, command: &str, target: Option<&str>, outcome: &str) {
    app.audit.record(&AuditEntry {
        at: app.clock.now(),
        who: caller.identity.as_ref().map(|identity| &*identity.name),
        role: caller.identity.as_ref().map(|identity| identity.role),
        from: &caller.from,
        command,
        target,
        outcome,
    });
}

/// Returns the id or the name of the record that the command changes, if the command contains it.
fn target(request: &Request) -> Option<String> {
    let target = match request {
        Request::PlanDelete { plan_id } => plan_id.as_str(),
        Request::ActionAdd { action_id, .. }
        | Request::ActionClose { action_id }
        | Request::ActionCancel { action_id, .. }
        | Request::ActionRetry { action_id } => action_id.as_str(),
        Request::JobRetry { job_id, .. } | Request::JobCancel { job_id } => job_id.as_str(),
        Request::WorkerUnregister { worker_id }
        | Request::WorkerDrain { worker_id }
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
