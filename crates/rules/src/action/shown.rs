//! Action as `ACTION.STATUS` shows it.

use agenix_protocol::documents::{ActionStatus, Status};

use super::{Action, JobCounts, halt};
use crate::owner::Owner;

/// Returns the answer of `ACTION.STATUS`.
pub fn status(action: &Action, counts: &JobCounts) -> ActionStatus {
    let count = |status: Status| counts.jobs[status as usize];
    let mut shown = ActionStatus {
        action_id: action.action_id.clone(),
        plan_id: action.plan_id.clone(),
        total_jobs: action.total_jobs,
        pending: count(Status::Pending),
        running: count(Status::Running),
        completed: count(Status::Completed),
        failed: count(Status::Failed),
        dead: count(Status::Dead),
        cancelled: count(Status::Cancelled),
        queue: action.queue.clone(),
        priority: action.priority,
        open: action.is_open,
        created_at: action.created_at,
        completed_jobs_at: None,
        started: counts.started.min(count(Status::Running)),
        halt: action.halt,
        halted: action.halt.zip(action.halted.as_ref()).map(|(halt, halted)| halt::status(halt, halted)),
        max_running: action.max_running,
        rate: action.wishes.scheduling.rate,
        share: action.wishes.scheduling.share.clone(),
        resources: action.wishes.scheduling.resources.clone(),
        retry_memory_factor: action.wishes.scheduling.retry_memory_factor,
        concurrency: action.wishes.scheduling.concurrency.clone(),
        unique: action.wishes.scheduling.unique.clone(),
        labels: action.labels.clone(),
        owner: action.owner.as_ref().map(Owner::to_string),
    };
    if shown.ended() == shown.total_jobs && !shown.open {
        // An action without jobs completes when it is created.
        let at_once = (shown.total_jobs == 0).then_some(action.created_at);
        shown.completed_jobs_at = counts.last_ended_at.or(at_once);
    }
    shown
}
