//! Closed actions without jobs. Other actions are removed with their last job; actions without jobs
//! have a mark, which is a document, so that retention finds them.

use agenix_protocol::{ids::ActionId, time::Timestamp};
use agenix_rules::action::Action;

/// Returns true if an action has no jobs, and gets none.
pub(super) fn is_empty(action: &Action) -> bool {
    !action.is_open && action.total_jobs == 0
}

/// Returns the id of the mark of an action. Marks are in the order of the submissions.
pub(super) fn mark_of(action: &Action) -> String {
    format!("{} {}", marks_from(action.created_at), action.action_id)
}

/// Returns the lower bound of the marks of actions that were submitted at `time` or later.
pub(super) fn marks_from(time: Timestamp) -> String {
    format!("{:020}", time.0)
}

/// Returns the action of a mark.
pub(super) fn marked_action(mark: &str) -> Option<ActionId> {
    mark.split_once(' ')?.1.parse().ok()
}
