//! Classes of claimants of a queue: claimants with equal capabilities, which cover the same groups.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque},
    sync::Arc,
};

#[cfg(test)]
use agenix_rules::fair_share::VirtualTime;
use agenix_rules::{capability::ClaimantCapabilities, fair_share::FairQueue};

use super::{
    LaneGroup, PassedGroups, Turn,
    passed_groups::FoundGroup,
    shares::{ClassShare, GroupId, Share, SharePlace},
};
use crate::store::claimant_class::{ClassId, class_id};

/// Groups of a queue, the log of their lowered first turns, and the classes that claim from it.
#[derive(Debug)]
pub(super) struct QueueGroups<T> {
    groups: HashSet<GroupId>,
    /// Virtual times of the shares in the claims of all classes.
    fair: FairQueue<Share>,
    log: VecDeque<(T, GroupId)>,
    /// Number of entries that were removed from the front of the log.
    cut: u64,
    classes: HashMap<ClassId, ClaimantClass<T>>,
}

impl<T> Default for QueueGroups<T> {
    fn default() -> Self {
        Self {
            groups: HashSet::new(),
            fair: FairQueue::default(),
            log: VecDeque::new(),
            cut: 0,
            classes: HashMap::new(),
        }
    }
}

/// Relation of a class to a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Coverage<T> {
    Uncovered,
    /// The class covers the group, and had nothing to claim from it at its last lookup.
    Idle,
    /// The class has the group in the order of its share by this lower bound.
    Ordered(T),
}

/// Claimants with equal capabilities.
#[derive(Debug)]
pub(super) struct ClaimantClass<T> {
    /// Keeps the capabilities alive, because their address is the identity of the class.
    capabilities: Arc<ClaimantCapabilities>,
    is_by_priority: bool,
    coverage: HashMap<GroupId, Coverage<T>>,
    /// Virtual times of the shares in the claims of the class, by the rank of their places.
    fair: BTreeMap<i32, FairQueue<Share>>,
    /// Shares that have ordered groups.
    shares: HashMap<Share, ClassShare<T>>,
    /// Shares by lower bounds of their places.
    order: BTreeSet<(SharePlace<T>, Share)>,
    /// Number of entries of the log so far that are applied.
    read: u64,
    used_at: u64,
}

/// Lookup of a claim at a queue.
pub(super) struct Lookup<'l, T> {
    pub(super) capabilities: &'l Arc<ClaimantCapabilities>,
    /// True if priorities decide before shares.
    pub(super) is_by_priority: bool,
    pub(super) groups: &'l HashMap<GroupId, LaneGroup<T>>,
    /// Number of the lookup, higher than those of earlier lookups.
    pub(super) number: u64,
}

/// Use of a class. The class that was used longest ago has the lowest use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ClassUse {
    used_at: u64,
    pub(super) class: ClassId,
    pub(super) entries: usize,
}

impl<T: Turn> QueueGroups<T> {
    pub(super) fn insert(&mut self, id: GroupId) {
        self.groups.insert(id);
    }

    /// Removes a group of a share. Returns true if no group is left.
    pub(super) fn remove(&mut self, id: GroupId, share: &Share) -> bool {
        self.groups.remove(&id);
        for class in self.classes.values_mut() {
            class.remove(id, share, &self.fair);
        }
        self.groups.is_empty()
    }

    /// Counts the claim of a job with a turn by a class, in a share with a weight.
    pub(super) fn charge(
        &mut self,
        capabilities: &Arc<ClaimantCapabilities>,
        share: &Share,
        (turn, weight): (T, u32),
    ) {
        self.fair.charge(share, weight);
        self.fair.forget_idle(|_| false);
        if let Some(class) = self.classes.get_mut(&class_id(capabilities)) {
            class.charge(share, turn, weight);
        }
    }

    /// Appends a lowered first turn of a group, and cuts the log if it is too long.
    pub(super) fn log(&mut self, first: T, id: GroupId, min_log: usize) {
        if self.classes.is_empty() {
            return;
        }
        self.log.push_back((first, id));
        while self.log.len() > self.groups.len().max(min_log) {
            self.log.pop_front();
            self.cut += 1;
        }
    }

    /// Returns the lane that a class checks next behind the `passed` groups, and the number of
    /// groups that have become known to the class. The class reads the log first.
    pub(super) fn first(
        &mut self,
        lookup: &Lookup<'_, T>,
        passed: &mut PassedGroups<T>,
    ) -> (Option<(T, u32)>, usize) {
        let id = class_id(lookup.capabilities);
        let end = self.cut + self.log.len() as u64;
        let is_known = self.classes.contains_key(&id);
        let class = self.classes.entry(id).or_insert_with(|| ClaimantClass::new(lookup));
        let before = class.coverage.len();
        if !is_known || class.read < self.cut || class.is_by_priority != lookup.is_by_priority {
            class.rebuild(lookup, &self.groups, &self.fair);
        } else {
            let behind = usize::try_from(end - class.read).unwrap_or(usize::MAX).min(self.log.len());
            for (turn, id) in self.log.range(self.log.len() - behind..) {
                class.lower(*id, *turn, lookup, &self.fair);
            }
        }
        class.read = end;
        class.used_at = lookup.number;
        let grown = (class.coverage.len() + usize::from(!is_known)).saturating_sub(before);
        (class.first(lookup, &self.fair, passed), grown)
    }

    /// Returns the virtual times at which a claim finds a share: in a class among the jobs of a
    /// rank, and in the queue.
    #[cfg(test)]
    pub(super) fn times_of(
        &self,
        capabilities: &Arc<ClaimantCapabilities>,
        share: &Share,
        rank: i32,
    ) -> (VirtualTime, VirtualTime) {
        let fair = self.classes.get(&class_id(capabilities)).and_then(|class| class.fair.get(&rank));
        let of_class = fair.cloned().map(|mut fair| {
            fair.activate(share);
            fair.time_of(share)
        });
        (of_class.unwrap_or_default(), self.fair.time_of(share))
    }

    /// Returns when the classes were used, and how many entries they have.
    pub(super) fn uses(&self) -> impl Iterator<Item = ClassUse> {
        // The class itself counts, too.
        self.classes.iter().map(|(class, of)| ClassUse {
            used_at: of.used_at,
            class: *class,
            entries: of.coverage.len() + 1,
        })
    }

    #[cfg(test)]
    pub(super) fn log_len(&self) -> usize {
        self.log.len()
    }

    pub(super) fn drop_class(&mut self, class: ClassId) {
        self.classes.remove(&class);
        if self.classes.is_empty() {
            self.cut += self.log.len() as u64;
            self.log.clear();
        }
    }
}

impl<T: Turn> ClaimantClass<T> {
    fn new(lookup: &Lookup<'_, T>) -> Self {
        Self {
            capabilities: Arc::clone(lookup.capabilities),
            is_by_priority: lookup.is_by_priority,
            coverage: HashMap::new(),
            fair: BTreeMap::new(),
            shares: HashMap::new(),
            order: BTreeSet::new(),
            read: 0,
            used_at: 0,
        }
    }

    /// Rebuilds the class from all groups of its queue. Keeps the virtual times.
    fn rebuild(&mut self, lookup: &Lookup<'_, T>, groups: &HashSet<GroupId>, of_queue: &FairQueue<Share>) {
        let fair = std::mem::take(&mut self.fair);
        *self = Self { fair, ..Self::new(lookup) };
        for id in groups {
            let first = lookup.groups.get(id).and_then(LaneGroup::first);
            first.into_iter().for_each(|(turn, _)| self.lower(*id, turn, lookup, of_queue));
        }
    }

    /// Applies a lowered first turn of a group. A group that has been removed since is skipped.
    fn lower(&mut self, id: GroupId, first: T, lookup: &Lookup<'_, T>, of_queue: &FairQueue<Share>) {
        let Some(group) = lookup.groups.get(&id) else { return };
        let known = self.coverage.get(&id).copied().unwrap_or_else(|| {
            let is_covered = self.capabilities.cover(&group.key.needs);
            if is_covered { Coverage::Idle } else { Coverage::Uncovered }
        });
        match known {
            Coverage::Idle => self.set(id, &group.share, Some(first), of_queue),
            Coverage::Ordered(bound) if first < bound => self.set(id, &group.share, Some(first), of_queue),
            Coverage::Uncovered => drop(self.coverage.insert(id, Coverage::Uncovered)),
            Coverage::Ordered(_) => {}
        }
    }

    /// Sets the bound of a group that the class covers; `None` if it has nothing to claim.
    fn set(&mut self, id: GroupId, share: &Share, bound: Option<T>, of_queue: &FairQueue<Share>) {
        let next = bound.map_or(Coverage::Idle, Coverage::Ordered);
        let before = self.coverage.insert(id, next);
        let of_share = self.shares.entry(share.clone()).or_default();
        if let Some(Coverage::Ordered(before)) = before {
            of_share.order.remove(&(before, id));
        }
        of_share.order.extend(bound.map(|bound| (bound, id)));
        self.place(share, of_queue);
    }

    /// Places a share by its virtual times and its first group.
    fn place(&mut self, share: &Share, of_queue: &FairQueue<Share>) {
        let Some(of_share) = self.shares.get_mut(share) else { return };
        let before = of_share.place.take();
        if let Some(before) = before {
            self.order.remove(&(before, share.clone()));
        }
        let Some((first, _)) = of_share.order.first().copied() else {
            self.shares.remove(share);
            return;
        };
        let rank = rank_of(first, self.is_by_priority);
        if before.is_none_or(|before| before.rank != rank) {
            self.fair.entry(rank).or_default().activate(share);
        }
        let place = self.place_of(first, share, of_queue);
        self.shares.entry(share.clone()).or_default().place = Some(place);
        self.order.insert((place, share.clone()));
    }

    fn place_of(&self, first: T, share: &Share, of_queue: &FairQueue<Share>) -> SharePlace<T> {
        let rank = rank_of(first, self.is_by_priority);
        let time = self.fair.get(&rank).map(|fair| fair.time_of(share)).unwrap_or_default();
        SharePlace { rank, time, queue_time: of_queue.time_of(share), first }
    }

    fn remove(&mut self, id: GroupId, share: &Share, of_queue: &FairQueue<Share>) {
        if let Some(Coverage::Ordered(_)) = self.coverage.get(&id) {
            self.set(id, share, None, of_queue);
        }
        self.coverage.remove(&id);
    }

    fn charge(&mut self, share: &Share, turn: T, weight: u32) {
        let fair = self.fair.entry(rank_of(turn, self.is_by_priority)).or_default();
        fair.charge(share, weight);
        fair.forget_idle(|share| self.shares.contains_key(share));
    }

    /// Returns the lane with the lowest bound behind the `passed` groups, in the share with the
    /// lowest place. Corrects the bounds and places that the search visits, which only raises them.
    fn first(
        &mut self,
        lookup: &Lookup<'_, T>,
        of_queue: &FairQueue<Share>,
        passed: &mut PassedGroups<T>,
    ) -> Option<(T, u32)> {
        loop {
            let (place, share) = passed.next_share(&self.order)?;
            let behind = passed.last_of(&share);
            let Some((bound, id)) = self.shares.get(&share).and_then(|of| of.first_behind(behind)) else {
                if passed.end_share(place, share) {
                    continue;
                }
                return None;
            };
            match lookup.groups.get(&id).and_then(LaneGroup::first) {
                Some((turn, lane)) if turn == bound => {
                    let now = self.place_of(turn, &share, of_queue);
                    if place == now {
                        passed.found = Some(FoundGroup { place, share, group: (bound, id) });
                        return Some((turn, lane));
                    } else if behind.is_some() {
                        passed.raise(place, now, share);
                    } else {
                        self.place(&share, of_queue);
                    }
                }
                other => self.set(id, &share, other.map(|(turn, _)| turn), of_queue),
            }
        }
    }
}

fn rank_of<T: Turn>(first: T, is_by_priority: bool) -> i32 {
    if is_by_priority { first.rank() } else { 0 }
}

impl<T: Turn> LaneGroup<T> {
    fn first(&self) -> Option<(T, u32)> {
        self.listed.first().copied()
    }
}
