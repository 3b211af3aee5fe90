//! Index of the lanes that have ready jobs. A claim finds its job in the index without a scan of
//! every lane.
//!
//! ```text
//!   class of claimants ---> groups that it covers, by lower bound ---> lanes of a group, by turn
//!      (capabilities)         (queue, needs without constraints)        (one for each constraint)
//! ```
//!
//! - Lanes of a queue that differ only in limit and budget are a group, which all classes use. A
//!   lane is in its group by a lower bound of the turn of its first job. Claims only raise that
//!   turn, so a claim corrects the bound when it reads the lane.
//! - Claimants with equal capabilities are a class. In each share, the class has the groups that it
//!   covers by a lower bound of their first turns, and corrects that bound in the same way.
//! - A class has the shares by lower bounds of their virtual times in the class, which only grow.
//!   Therefore the shares whose jobs a class can run divide the claims of the class. Virtual times
//!   of the whole queue decide between equal ones, so that new classes do not begin with the same
//!   share.
//! - If the first turn of a group becomes lower, it is appended to the log of the queue. A class
//!   reads the log at its next claim, or is rebuilt if it has missed a part of the log.
//! - A lane whose limit or budget lets no job start is blocked: it is in no group until the limit
//!   or budget changes, its time comes, or its first job changes.
//!
//! The index has no job ids and reads nothing. The store resolves the first job of the lane that
//! the index names, and passes the turn of the job to the index.

mod blocked_lanes;
mod class;
mod passed_groups;
mod shares;
mod upcoming;

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use agenix_protocol::time::Timestamp;
use agenix_rules::capability::Needs;
#[cfg(test)]
use agenix_rules::fair_share::VirtualTime;

use self::{
    blocked_lanes::BlockedLanes,
    class::{Lookup, QueueGroups},
    shares::{GroupId, Share},
};
pub(crate) use self::{
    blocked_lanes::{Block, Constraint},
    passed_groups::PassedGroups,
};
use crate::store::{Claimant, LaneKey};

/// Maximum number of groups that all classes together have. Beyond the maximum, the classes that
/// have claimed longest ago are dropped.
const MAX_ENTRIES: usize = 500_000;
/// Minimum length at which the log of a queue is cut. A log may be as long as the number of groups,
/// so that rebuilding a class never costs more than reading the part that it has missed.
const MIN_LOG: usize = 1024;

/// Number of queues up to which a queue without jobs keeps the virtual times of its shares.
const MAX_QUEUES: usize = 1000;

/// Turn of a job: jobs with lower turns are claimed first.
pub(crate) trait Turn: Ord + Copy {
    /// Returns the rank of the priority, which is lower for a higher priority.
    fn rank(self) -> i32;
}

/// Position of a lane in the index, with a lower bound of the turn of its first job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place<T> {
    /// The lane has no ready job.
    Empty,
    Listed(T),
    Blocked(T),
}

#[derive(Debug)]
struct IndexedLane<T> {
    group: GroupId,
    place: Place<T>,
}

/// Lanes of a queue that differ only in limit and budget.
#[derive(Debug)]
struct LaneGroup<T> {
    key: LaneKey,
    share: Share,
    /// Number of lanes, with or without ready jobs.
    size: usize,
    /// Lanes that have ready jobs and are not blocked.
    listed: BTreeSet<(T, u32)>,
}

/// Index of the lanes that have ready jobs. `T` orders the jobs of a queue.
#[derive(Debug)]
pub(crate) struct ClaimIndex<T> {
    lanes: HashMap<u32, IndexedLane<T>>,
    groups: HashMap<GroupId, LaneGroup<T>>,
    group_ids: HashMap<LaneKey, GroupId>,
    queues: HashMap<String, QueueGroups<T>>,
    blocked: BlockedLanes,
    last_group: GroupId,
    /// Number of lookups so far, which orders the classes by their last use.
    lookups: u64,
    /// Number of groups that became known to classes since their total was last checked.
    grown: usize,
    max_entries: usize,
    min_log: usize,
}

impl<T> Default for ClaimIndex<T> {
    fn default() -> Self {
        Self::bounded(MAX_ENTRIES, MIN_LOG)
    }
}

impl<T> ClaimIndex<T> {
    pub(crate) fn bounded(max_entries: usize, min_log: usize) -> Self {
        Self {
            lanes: HashMap::new(),
            groups: HashMap::new(),
            group_ids: HashMap::new(),
            queues: HashMap::new(),
            blocked: BlockedLanes::default(),
            last_group: 0,
            lookups: 0,
            grown: 0,
            max_entries,
            min_log,
        }
    }
}

impl<T: Turn> ClaimIndex<T> {
    /// Adds a lane without ready jobs.
    pub(crate) fn insert(&mut self, lane: u32, key: &LaneKey) {
        let id = self.group_of(key);
        if let Some(group) = self.groups.get_mut(&id) {
            group.size += 1;
        }
        self.lanes.insert(lane, IndexedLane { group: id, place: Place::Empty });
    }

    /// Returns the group of a lane, and adds it if it does not exist.
    fn group_of(&mut self, key: &LaneKey) -> GroupId {
        let needs = Needs { limit: None, budget: None, ..key.needs.clone() };
        let key = LaneKey { queue: key.queue.clone(), needs };
        if let Some(id) = self.group_ids.get(&key) {
            return *id;
        }
        self.last_group += 1;
        let id = self.last_group;
        self.queues.entry(key.queue.clone()).or_default().insert(id);
        self.group_ids.insert(key.clone(), id);
        let share = key.needs.share.as_deref().map(Arc::from);
        self.groups.insert(id, LaneGroup { key, share, size: 0, listed: BTreeSet::new() });
        id
    }

    /// Removes a lane, and its group if this was its last lane.
    pub(crate) fn remove(&mut self, lane: u32) {
        self.set_first(lane, None);
        let Some(IndexedLane { group: id, .. }) = self.lanes.remove(&lane) else { return };
        let Some(group) = self.groups.get_mut(&id) else { return };
        group.size -= 1;
        if group.size > 0 {
            return;
        }
        let Some(LaneGroup { key, share, .. }) = self.groups.remove(&id) else { return };
        self.group_ids.remove(&key);
        if let Some(groups) = self.queues.get_mut(&key.queue)
            && groups.remove(id, &share)
            && self.queues.len() > MAX_QUEUES
        {
            self.queues.remove(&key.queue);
        }
    }

    /// Records that a job of a lane has become ready.
    pub(crate) fn add(&mut self, lane: u32, turn: T) {
        match self.place(lane) {
            Some(Place::Listed(first) | Place::Blocked(first)) if first <= turn => {}
            // The blocked lane has another first job now, which may fit into its budget.
            _ => self.set_first(lane, Some(turn)),
        }
    }

    /// Sets the turn of the first ready job of a lane, or a lower bound of it; `None` if the lane
    /// has no ready job. The lane is no longer blocked.
    pub(crate) fn set_first(&mut self, lane: u32, first: Option<T>) {
        self.set_place(lane, first.map_or(Place::Empty, Place::Listed));
    }

    /// Sets the turn of the first ready job of a lane as [`Self::set_first`] does, but leaves a
    /// blocked lane blocked if its first job is the same.
    pub(crate) fn observe_first(&mut self, lane: u32, first: Option<T>) {
        match self.place(lane) {
            Some(Place::Blocked(turn)) if Some(turn) == first => {}
            _ => self.set_first(lane, first),
        }
    }

    /// Returns the lower bound of the turn of the first ready job of a lane; `None` if the lane has
    /// no ready job.
    pub(crate) fn bound(&self, lane: u32) -> Option<T> {
        match self.place(lane)? {
            Place::Empty => None,
            Place::Listed(turn) | Place::Blocked(turn) => Some(turn),
        }
    }

    /// Takes a lane out of its group, because its limit or budget lets its first job not start.
    pub(crate) fn block(&mut self, lane: u32, block: Block) {
        if let Some(Place::Listed(turn)) = self.place(lane) {
            self.set_place(lane, Place::Blocked(turn));
            self.blocked.insert(lane, block);
        }
    }

    /// Puts a lane back into its group if it is blocked, because its first job may have changed.
    pub(crate) fn unblock(&mut self, lane: u32) {
        if let Some(Place::Blocked(turn)) = self.place(lane) {
            self.set_first(lane, Some(turn));
        }
    }

    fn place(&self, lane: u32) -> Option<Place<T>> {
        self.lanes.get(&lane).map(|lane| lane.place)
    }

    fn set_place(&mut self, lane: u32, place: Place<T>) {
        let Some(indexed) = self.lanes.get_mut(&lane) else { return };
        let Some(group) = self.groups.get_mut(&indexed.group) else { return };
        let Some(queue) = self.queues.get_mut(&group.key.queue) else { return };
        let first = group.listed.first().map(|(turn, _)| *turn);
        match std::mem::replace(&mut indexed.place, place) {
            Place::Empty => {}
            Place::Listed(before) => drop(group.listed.remove(&(before, lane))),
            Place::Blocked(_) => self.blocked.remove(lane),
        }
        if let Place::Listed(turn) = place {
            group.listed.insert((turn, lane));
            if first.is_none_or(|before| turn < before) {
                queue.log(turn, indexed.group, self.min_log);
            }
        }
    }

    /// Puts the lanes back that a limit or a budget blocks, because it has changed.
    pub(crate) fn unblock_all_of(&mut self, constraint: Constraint, name: &str) {
        for lane in self.blocked.of(constraint, name) {
            self.unblock(lane);
        }
    }

    /// Returns the lane that a claim from a queue checks next. Only lanes count that the claimant
    /// covers and has not passed over: of the share with the lowest place, the lane with the lowest
    /// bound. Blocked lanes whose time has come are put back first.
    pub(crate) fn first(
        &mut self,
        queue: &str,
        claimant: &Claimant,
        passed: &mut PassedGroups<T>,
        now: Timestamp,
    ) -> Option<(T, u32)> {
        while let Some(lane) = self.blocked.next_due(now) {
            self.unblock(lane);
        }
        self.lookups += 1;
        let is_by_priority = claimant.share_terms.priority_queues.contains(queue);
        let (capabilities, groups) = (&claimant.capabilities, &self.groups);
        let lookup = Lookup { capabilities, is_by_priority, groups, number: self.lookups };
        let (first, grown) = self.queues.get_mut(queue)?.first(&lookup, passed);
        self.grown += grown;
        if self.grown > self.max_entries / 8 {
            self.grown = 0;
            self.drop_old_classes();
        }
        first
    }

    /// Counts the claim of a job with a turn in the virtual times of the share of its lane.
    pub(crate) fn charge(&mut self, (turn, lane): (T, u32), claimant: &Claimant) {
        let group = self.lanes.get(&lane).and_then(|lane| self.groups.get(&lane.group));
        if let Some(group) = group
            && let Some(queue) = self.queues.get_mut(&group.key.queue)
        {
            let weight = claimant.share_terms.weight_of(group.share.as_deref());
            queue.charge(&claimant.capabilities, &group.share, (turn, weight));
        }
    }

    /// Returns the virtual times of a share of a queue: in the class of a claimant among the jobs
    /// of a rank, and in the queue.
    #[cfg(test)]
    pub(crate) fn times_of(
        &self,
        queue: &str,
        claimant: &Claimant,
        (share, rank): (Option<&str>, i32),
    ) -> (VirtualTime, VirtualTime) {
        let share = share.map(Arc::from);
        let times = |queue: &QueueGroups<T>| queue.times_of(&claimant.capabilities, &share, rank);
        self.queues.get(queue).map(times).unwrap_or_default()
    }

    /// Drops the classes that have claimed longest ago if all classes have too many groups.
    fn drop_old_classes(&mut self) {
        let mut classes: Vec<_> =
            self.queues.iter().flat_map(|(queue, groups)| groups.uses().map(move |of| (of, queue))).collect();
        let mut entries: usize = classes.iter().map(|(of, _)| of.entries).sum();
        if entries <= self.max_entries {
            return;
        }
        classes.sort_unstable();
        // The last class is in use.
        classes.pop();
        let mut dropped = Vec::new();
        for (of, queue) in classes {
            if entries <= self.max_entries / 2 {
                break;
            }
            entries -= of.entries;
            dropped.push((queue.clone(), of.class));
        }
        for (queue, class) in dropped {
            self.queues.get_mut(&queue).into_iter().for_each(|groups| groups.drop_class(class));
        }
    }
}

#[cfg(test)]
mod tests;
