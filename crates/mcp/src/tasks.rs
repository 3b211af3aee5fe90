//! Tasks of the extension `io.modelcontextprotocol/tasks`: the id of a task is the id of an action,
//! and its state is that of the action in agq.

use agenix_protocol::time::Timestamp;
use rmcp::model::{Task, TaskStatus};

use crate::{
    action::progress_text,
    reports::{ActionReport, ActionState},
};

/// Shortest and longest pause between two polls of a task by a client, in milliseconds.
const MIN_POLL_MS: u64 = 1000;
const MAX_POLL_MS: u64 = 30_000;

/// Returns the task of an action. `created_at` is the time of the submission of the action, and
/// `changed_at` that of the report.
pub(crate) fn of_report(report: &ActionReport, created_at: Timestamp, changed_at: Timestamp) -> Task {
    let task =
        Task::new(&report.action_id, status(report.state), created_at.to_string(), changed_at.to_string());
    task.with_status_message(progress_text(report)).with_poll_interval_ms(poll_interval_ms(report))
}

/// Returns the status of the task of an action. A task whose jobs failed is completed, because its
/// result has the failures.
fn status(state: ActionState) -> TaskStatus {
    match state {
        ActionState::Waiting | ActionState::WaitingForApproval | ActionState::Running => TaskStatus::Working,
        ActionState::Completed | ActionState::Failed => TaskStatus::Completed,
        ActionState::Cancelled => TaskStatus::Cancelled,
    }
}

/// Returns a tenth of the estimated rest, within bounds.
fn poll_interval_ms(report: &ActionReport) -> u64 {
    match (report.state, report.seconds_left) {
        (ActionState::WaitingForApproval, _) => MAX_POLL_MS,
        (_, Some(seconds)) => seconds.saturating_mul(100).clamp(MIN_POLL_MS, MAX_POLL_MS),
        _ => 2 * MIN_POLL_MS,
    }
}
