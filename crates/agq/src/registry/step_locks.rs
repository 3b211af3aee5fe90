//! Locks of the workflow steps that this node is submitting, so that only one task does so at a
//! time.

use std::{collections::HashSet, sync::Mutex};

use crate::sync::lock;

/// Ids of the locked steps.
#[derive(Debug, Default)]
pub(crate) struct StepLocks(Mutex<HashSet<String>>);

/// Lock of a step until it is dropped.
#[derive(Debug)]
pub(crate) struct StepLock<'l> {
    all: &'l StepLocks,
    step_id: String,
}

impl StepLocks {
    /// Locks a step. Returns `None` if another task has locked it.
    pub(crate) fn try_lock(&self, step_id: &str) -> Option<StepLock<'_>> {
        let is_new = lock(&self.0).insert(step_id.to_owned());
        is_new.then(|| StepLock { all: self, step_id: step_id.to_owned() })
    }
}

impl Drop for StepLock<'_> {
    fn drop(&mut self) {
        lock(&self.all.0).remove(&self.step_id);
    }
}

#[cfg(test)]
mod tests {
    use super::StepLocks;

    #[test]
    fn step_is_locked_by_one_task_at_a_time() {
        let all = StepLocks::default();
        let locked = all.try_lock("a");
        assert!(locked.is_some() && all.try_lock("a").is_none());
        assert!(all.try_lock("b").is_some());
        drop(locked);
        assert!(all.try_lock("a").is_some());
    }
}
