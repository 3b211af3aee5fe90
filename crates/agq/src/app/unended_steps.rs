//! Number of unended steps of each workflow.

use std::{collections::HashMap, sync::Mutex};

use crate::sync::lock;

/// Counts as of the latest evaluation, because only the end of the last step needs another
/// evaluation. The reaper finds the workflows whose number is unknown or wrong.
#[derive(Default)]
pub(crate) struct UnendedSteps(Mutex<HashMap<String, usize>>);

impl UnendedSteps {
    /// Records `left` steps in progress, of which none waits for another.
    pub(crate) fn set(&self, workflow_id: &str, left: usize) {
        let mut counts = lock(&self.0);
        // Without an entry, `ended` returns true.
        if left > 1 {
            counts.insert(workflow_id.to_owned(), left);
        } else {
            counts.remove(workflow_id);
        }
    }

    /// Records the end of a step. Returns true if the workflow may have to advance.
    pub(crate) fn ended(&self, workflow_id: &str) -> bool {
        let mut counts = lock(&self.0);
        let Some(left) = counts.get_mut(workflow_id) else { return true };
        *left = left.saturating_sub(1);
        *left == 0
    }
}

#[cfg(test)]
mod tests {
    use super::UnendedSteps;

    #[test]
    fn unended_steps_report_only_the_last_step() {
        let steps = UnendedSteps::default();
        assert!(steps.ended("unknown"), "the workflow was never evaluated");
        steps.set("w", 3);
        assert_eq!([(); 4].map(|()| steps.ended("w")), [false, false, true, true]);
        steps.set("w", 2);
        assert!(!steps.ended("w"));
        steps.set("w", 1);
        assert!(steps.ended("w") && steps.ended("w"), "every end from the last step on needs an evaluation");
    }
}
