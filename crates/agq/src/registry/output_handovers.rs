//! Actions to which somebody here is handing the outputs of a step on, so that nobody else here does the same meanwhile.

use std::{
    collections::HashSet,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// The ids of these actions.
#[derive(Debug, Default)]
pub(crate) struct OutputHandovers(Mutex<HashSet<String>>);

/// The right to hand outputs on to an action, until it is dropped.
#[derive(Debug)]
pub(crate) struct HandoverGuard<'h> {
    all: &'h OutputHandovers,
    action_id: String,
}

impl OutputHandovers {
    /// Takes the turn for an action. Returns `None` while somebody else has it.
    pub(crate) fn begin(&self, action_id: &str) -> Option<HandoverGuard<'_>> {
        let is_new = self.ids().insert(action_id.to_owned());
        is_new.then(|| HandoverGuard { all: self, action_id: action_id.to_owned() })
    }

    /// Tells whether somebody has the turn for an action.
    pub(crate) fn is_under_way(&self, action_id: &str) -> bool {
        self.ids().contains(action_id)
    }

    fn ids(&self) -> MutexGuard<'_, HashSet<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for HandoverGuard<'_> {
    fn drop(&mut self) {
        self.all.ids().remove(&self.action_id);
    }
}

#[cfg(test)]
mod tests {
    use super::OutputHandovers;

    #[test]
    fn one_at_a_time_hands_on_to_an_action() {
        let all = OutputHandovers::default();
        let turn = all.begin("a");
        assert!(turn.is_some() && all.is_under_way("a") && all.begin("a").is_none());
        assert!(!all.is_under_way("b") && all.begin("b").is_some());
        drop(turn);
        assert!(!all.is_under_way("a") && all.begin("a").is_some());
    }
}
