//! Classes of claimants of a queue: claimants with equal abilities, which cover the same groups.

use std::{
    collections::{BTreeSet, HashMap, HashSet, VecDeque},
    sync::Arc,
};

use agenix_rules::{
    capability::Abilities,
    fair_share::{FairQueue, VirtualTime},
};

use super::{LaneGroup, Turn};

pub(super) type GroupId = u64;

/// Share of a queue; `None` for the jobs that the session key submits.
pub(super) type Share = Option<Arc<str>>;

/// Identity of abilities as long as a class has them.
pub(super) type ClassId = usize;

/// Groups of a queue, the log of their lowered first turns, and the classes that claim from it.
#[derive(Debug)]
pub(super) struct QueueGroups<T> {
    groups: HashSet<GroupId>,
    pub(super) shares: QueueShares,
    log: VecDeque<(T, GroupId)>,
    /// Number of entries that were removed from the front of the log.
    cut: u64,
    classes: HashMap<ClassId, Class<T>>,
}

impl<T> Default for QueueGroups<T> {
    fn default() -> Self {
        Self {
            groups: HashSet::new(),
            shares: QueueShares::default(),
            log: VecDeque::new(),
            cut: 0,
            classes: HashMap::new(),
        }
    }
}

/// Shares of a queue.
#[derive(Debug, Default)]
pub(super) struct QueueShares {
    fair: FairQueue<Share>,
    /// Number of groups with listed lanes, by share.
    active: HashMap<Share, usize>,
}

impl QueueShares {
    /// Records that a group has its first listed lane, or that it has lost its last one.
    pub(super) fn set_active(&mut self, share: &Share, is_active: bool) {
        let groups = self.active.entry(share.clone()).or_default();
        if is_active {
            *groups += 1;
            if *groups == 1 {
                self.fair.activate(share);
            }
            return;
        }
        *groups -= 1;
        if *groups == 0 {
            self.active.remove(share);
            self.fair.forget_idle(|share| self.active.contains_key(share));
        }
    }

    pub(super) fn charge(&mut self, share: &Share, weight: u32) {
        self.fair.charge(share, weight);
    }

    /// Returns the virtual time at which a claim would find the share, if it had claimable jobs.
    #[cfg(test)]
    pub(super) fn time_of(&self, share: &Share) -> VirtualTime {
        let mut fair = self.fair.clone();
        if !self.active.contains_key(share) {
            fair.activate(share);
        }
        fair.time_of(share)
    }
}

/// Relation of a class to a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Coverage<T> {
    Uncovered,
    /// The class covers the group, and had nothing to claim from it at its last look.
    Idle,
    /// The class has the group in the order of its share by this lower bound.
    Ordered(T),
}

/// Place of a share among those of a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct SharePlace<T> {
    /// Rank of the first job if priorities decide before shares, otherwise 0.
    rank: i32,
    time: VirtualTime,
    first: T,
}

/// Groups of one share that a class covers.
#[derive(Debug)]
struct ClassShare<T> {
    order: BTreeSet<(T, GroupId)>,
    place: Option<SharePlace<T>>,
}

impl<T> Default for ClassShare<T> {
    fn default() -> Self {
        Self { order: BTreeSet::new(), place: None }
    }
}

/// Claimants with equal abilities.
#[derive(Debug)]
pub(super) struct Class<T> {
    /// Keeps the abilities alive, because their address is the identity of the class.
    abilities: Arc<Abilities>,
    is_by_priority: bool,
    coverage: HashMap<GroupId, Coverage<T>>,
    /// Shares that have ordered groups.
    shares: HashMap<Share, ClassShare<T>>,
    /// Shares by lower bounds of their places.
    order: BTreeSet<(SharePlace<T>, Share)>,
    /// Number of entries of the log so far that are applied.
    read: u64,
    used_at: u64,
}

/// Look of a claim at a queue.
pub(super) struct Look<'l, T> {
    pub(super) abilities: &'l Arc<Abilities>,
    /// True if priorities decide before shares.
    pub(super) is_by_priority: bool,
    pub(super) groups: &'l HashMap<GroupId, LaneGroup<T>>,
    /// Number of the look, higher than those of earlier looks.
    pub(super) number: u64,
}

/// Use of a class. The one that was used longest ago is the lowest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ClassUse {
    used_at: u64,
    pub(super) class: ClassId,
    pub(super) entries: usize,
}

/// Returns the identity of abilities. Abilities of workers are shared by those that have equal
/// ones; the others have no fields.
fn class_id(abilities: &Arc<Abilities>) -> ClassId {
    match **abilities {
        Abilities::Nothing => 0,
        Abilities::Anything => 1,
        Abilities::Worker { .. } => Arc::as_ptr(abilities).addr(),
    }
}

impl<T: Turn> QueueGroups<T> {
    pub(super) fn insert(&mut self, id: GroupId) {
        self.groups.insert(id);
    }

    /// Removes a group of a share. Returns true if no group is left.
    pub(super) fn remove(&mut self, id: GroupId, share: &Share) -> bool {
        self.groups.remove(&id);
        for class in self.classes.values_mut() {
            class.remove(id, share, &self.shares);
        }
        self.groups.is_empty()
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

    /// Returns the lane with the lowest bound in the share that is next for a class, and the number
    /// of groups that have become known to the class. The class reads the log first.
    pub(super) fn first(&mut self, look: &Look<'_, T>) -> (Option<(T, u32)>, usize) {
        let id = class_id(look.abilities);
        let end = self.cut + self.log.len() as u64;
        let is_known = self.classes.contains_key(&id);
        let class = self.classes.entry(id).or_insert_with(|| Class::new(look));
        let before = class.coverage.len();
        if !is_known || class.read < self.cut || class.is_by_priority != look.is_by_priority {
            *class = Class::new(look);
            for id in &self.groups {
                let first = look.groups.get(id).and_then(LaneGroup::first);
                first.into_iter().for_each(|(turn, _)| class.lower(*id, turn, look, &self.shares));
            }
        } else {
            let behind = usize::try_from(end - class.read).unwrap_or(usize::MAX).min(self.log.len());
            for (turn, id) in self.log.range(self.log.len() - behind..) {
                class.lower(*id, *turn, look, &self.shares);
            }
        }
        class.read = end;
        class.used_at = look.number;
        let grown = (class.coverage.len() + usize::from(!is_known)).saturating_sub(before);
        (class.first(look, &self.shares), grown)
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

impl<T: Turn> Class<T> {
    fn new(look: &Look<'_, T>) -> Self {
        Self {
            abilities: Arc::clone(look.abilities),
            is_by_priority: look.is_by_priority,
            coverage: HashMap::new(),
            shares: HashMap::new(),
            order: BTreeSet::new(),
            read: 0,
            used_at: 0,
        }
    }

    /// Applies a lowered first turn of a group. A group that has been removed since is skipped.
    fn lower(&mut self, id: GroupId, first: T, look: &Look<'_, T>, shares: &QueueShares) {
        let Some(group) = look.groups.get(&id) else { return };
        let known = self.coverage.get(&id).copied().unwrap_or_else(|| {
            let is_covered = self.abilities.cover(&group.key.needs);
            if is_covered { Coverage::Idle } else { Coverage::Uncovered }
        });
        match known {
            Coverage::Idle => self.set(id, &group.share, Some(first), shares),
            Coverage::Ordered(bound) if first < bound => self.set(id, &group.share, Some(first), shares),
            Coverage::Uncovered => drop(self.coverage.insert(id, Coverage::Uncovered)),
            Coverage::Ordered(_) => {}
        }
    }

    /// Sets the bound of a group that the class covers; `None` if it has nothing to claim.
    fn set(&mut self, id: GroupId, share: &Share, bound: Option<T>, shares: &QueueShares) {
        let next = bound.map_or(Coverage::Idle, Coverage::Ordered);
        let before = self.coverage.insert(id, next);
        let of_share = self.shares.entry(share.clone()).or_default();
        if let Some(Coverage::Ordered(before)) = before {
            of_share.order.remove(&(before, id));
        }
        of_share.order.extend(bound.map(|bound| (bound, id)));
        self.place(share, shares);
    }

    /// Places a share by its virtual time and its first group.
    fn place(&mut self, share: &Share, shares: &QueueShares) {
        let Some(of_share) = self.shares.get_mut(share) else { return };
        if let Some(before) = of_share.place.take() {
            self.order.remove(&(before, share.clone()));
        }
        let Some((first, _)) = of_share.order.first() else {
            self.shares.remove(share);
            return;
        };
        let place = place_of(*first, share, self.is_by_priority, shares);
        of_share.place = Some(place);
        self.order.insert((place, share.clone()));
    }

    fn remove(&mut self, id: GroupId, share: &Share, shares: &QueueShares) {
        if let Some(Coverage::Ordered(_)) = self.coverage.get(&id) {
            self.set(id, share, None, shares);
        }
        self.coverage.remove(&id);
    }

    /// Returns the lane with the lowest bound in the share with the lowest place. Corrects the
    /// bounds and places that it looks at.
    fn first(&mut self, look: &Look<'_, T>, shares: &QueueShares) -> Option<(T, u32)> {
        loop {
            let (place, share) = self.order.first()?.clone();
            let (bound, id) = *self.shares.get(&share)?.order.first()?;
            match look.groups.get(&id).and_then(LaneGroup::first) {
                Some((turn, lane)) if turn == bound => {
                    if place == place_of(turn, &share, self.is_by_priority, shares) {
                        return Some((turn, lane));
                    }
                    self.place(&share, shares);
                }
                other => self.set(id, &share, other.map(|(turn, _)| turn), shares),
            }
        }
    }
}

fn place_of<T: Turn>(first: T, share: &Share, is_by_priority: bool, shares: &QueueShares) -> SharePlace<T> {
    let rank = if is_by_priority { first.rank() } else { 0 };
    SharePlace { rank, time: shares.fair.time_of(share), first }
}

impl<T: Turn> LaneGroup<T> {
    fn first(&self) -> Option<(T, u32)> {
        self.listed.first().copied()
    }
}
