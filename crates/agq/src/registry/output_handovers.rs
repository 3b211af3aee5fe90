//! Locks of the actions to which this node is passing the outputs of a workflow step, so that only
//! one task does so at a time.

use std::{collections::HashSet, sync::Mutex};

use crate::sync::lock;

/// Ids of the locked actions.
#[derive(Debug, Default)]
pub(crate) struct OutputHandovers(Mutex<HashSet<String>>);

/// Lock of an action until it is dropped.
#[derive(Debug)]
pub(crate) struct HandoverGuard<'h> {
    all: &'h OutputHandovers,
    action_id: String,
}

impl OutputHandovers {
    /// Locks an action. Returns `None` if another task has locked it.
    pub(crate) fn begin(&self, action_id: &str) -> Option<HandoverGuard<'_>> {
        let is_new = lock(&self.0).insert(action_id.to_owned());
        is_new.then(|| HandoverGuard { all: self, action_id: action_id.to_owned() })
    }

    pub(crate) fn is_under_way(&self, action_id: &str) -> bool {
        lock(&self.0).contains(action_id)
    }
}

impl Drop for HandoverGuard<'_> {
    fn drop(&mut self) {
        lock(&self.all.0).remove(&self.action_id);
    }
}

#[cfg(test)]
mod tests {
    use super::OutputHandovers;

    #[test]
    fn output_handover_locks_an_action() {
        let all = OutputHandovers::default();
        let guard = all.begin("a");
        assert!(guard.is_some() && all.is_under_way("a") && all.begin("a").is_none());
        assert!(!all.is_under_way("b") && all.begin("b").is_some());
        drop(guard);
        assert!(!all.is_under_way("a") && all.begin("a").is_some());
    }
}
