//! Lanes whose limit or budget lets no job start.

use std::collections::{BTreeSet, HashMap};

use agenix_protocol::time::Timestamp;

/// Kind of what delays the jobs of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Constraint {
    Limit,
    Budget,
}

/// Reason why the first job of a lane may not start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) constraint: Constraint,
    /// Key of the limit, or name of the budget.
    pub(crate) name: String,
    /// Time at which the job may start although nothing else changes, if there is one.
    pub(crate) until: Option<Timestamp>,
}

#[derive(Debug, Default)]
pub(super) struct BlockedLanes {
    blocks: HashMap<u32, Block>,
    of_limits: HashMap<String, BTreeSet<u32>>,
    of_budgets: HashMap<String, BTreeSet<u32>>,
    by_time: BTreeSet<(Timestamp, u32)>,
}

impl BlockedLanes {
    fn of_mut(&mut self, constraint: Constraint) -> &mut HashMap<String, BTreeSet<u32>> {
        match constraint {
            Constraint::Limit => &mut self.of_limits,
            Constraint::Budget => &mut self.of_budgets,
        }
    }

    pub(super) fn insert(&mut self, lane: u32, block: Block) {
        self.by_time.extend(block.until.map(|until| (until, lane)));
        self.of_mut(block.constraint).entry(block.name.clone()).or_default().insert(lane);
        self.blocks.insert(lane, block);
    }

    pub(super) fn remove(&mut self, lane: u32) {
        let Some(block) = self.blocks.remove(&lane) else { return };
        if let Some(until) = block.until {
            self.by_time.remove(&(until, lane));
        }
        let blocked = self.of_mut(block.constraint);
        if let Some(lanes) = blocked.get_mut(&block.name) {
            lanes.remove(&lane);
            if lanes.is_empty() {
                blocked.remove(&block.name);
            }
        }
    }

    /// Returns the lanes that a limit or a budget blocks.
    pub(super) fn of(&mut self, constraint: Constraint, name: &str) -> Vec<u32> {
        self.of_mut(constraint).get(name).into_iter().flatten().copied().collect()
    }

    /// Returns a lane whose time has come.
    pub(super) fn next_due(&self, now: Timestamp) -> Option<u32> {
        self.by_time.first().filter(|(until, _)| *until <= now).map(|(_, lane)| *lane)
    }
}
