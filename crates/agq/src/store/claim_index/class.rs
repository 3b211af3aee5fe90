//! Classes of claimants of a queue: claimants with equal abilities, which cover the same groups.

use std::{
    collections::{BTreeSet, HashMap, HashSet, VecDeque},
    ops::Bound,
    sync::Arc,
};

use agenix_rules::capability::Abilities;

use super::{LaneGroup, PassedGroups};

pub(super) type GroupId = u64;

/// Identity of abilities as long as a class has them.
pub(super) type ClassId = usize;

/// Groups of a queue, the log of their lowered first turns, and the classes that claim from it.
#[derive(Debug)]
pub(super) struct QueueGroups<T> {
    groups: HashSet<GroupId>,
    log: VecDeque<(T, GroupId)>,
    /// Number of entries that were removed from the front of the log.
    cut: u64,
    classes: HashMap<ClassId, Class<T>>,
}

impl<T> Default for QueueGroups<T> {
    fn default() -> Self {
        Self { groups: HashSet::new(), log: VecDeque::new(), cut: 0, classes: HashMap::new() }
    }
}

/// Relation of a class to a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Coverage<T> {
    Uncovered,
    /// The class covers the group, and had nothing to claim from it at its last look.
    Idle,
    /// The class has the group in its order by this lower bound.
    Ordered(T),
}

/// Claimants with equal abilities.
#[derive(Debug)]
pub(super) struct Class<T> {
    /// Keeps the abilities alive, because their address is the identity of the class.
    abilities: Arc<Abilities>,
    coverage: HashMap<GroupId, Coverage<T>>,
    order: BTreeSet<(T, GroupId)>,
    /// Number of entries of the log so far that are applied.
    read: u64,
    used_at: u64,
    /// Number of groups that became known at the last look.
    pub(super) grown: usize,
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

impl<T: Ord + Copy> QueueGroups<T> {
    pub(super) fn insert(&mut self, id: GroupId) {
        self.groups.insert(id);
    }

    /// Removes a group. Returns true if no group is left.
    pub(super) fn remove(&mut self, id: GroupId) -> bool {
        self.groups.remove(&id);
        self.classes.values_mut().for_each(|class| class.remove(id));
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

    /// Returns the class with the given abilities, after it has read the log.
    pub(super) fn class(
        &mut self,
        abilities: &Arc<Abilities>,
        groups: &HashMap<GroupId, LaneGroup<T>>,
        now: u64,
    ) -> &mut Class<T> {
        let id = class_id(abilities);
        let end = self.cut + self.log.len() as u64;
        let is_known = self.classes.contains_key(&id);
        let class = self.classes.entry(id).or_insert_with(|| Class::new(abilities));
        let before = class.coverage.len();
        if !is_known || class.read < self.cut {
            *class = Class::new(abilities);
            for id in &self.groups {
                let first = groups.get(id).and_then(LaneGroup::first);
                first.into_iter().for_each(|(turn, _)| class.lower(*id, turn, groups));
            }
        } else {
            let behind = usize::try_from(end - class.read).unwrap_or(usize::MAX).min(self.log.len());
            for (turn, id) in self.log.range(self.log.len() - behind..) {
                class.lower(*id, *turn, groups);
            }
        }
        class.read = end;
        class.used_at = now;
        class.grown = (class.coverage.len() + usize::from(!is_known)).saturating_sub(before);
        class
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

impl<T: Ord + Copy> Class<T> {
    fn new(abilities: &Arc<Abilities>) -> Self {
        let (coverage, order) = (HashMap::new(), BTreeSet::new());
        Self { abilities: Arc::clone(abilities), coverage, order, read: 0, used_at: 0, grown: 0 }
    }

    /// Applies a lowered first turn of a group. A group that has been removed since is skipped.
    fn lower(&mut self, id: GroupId, first: T, groups: &HashMap<GroupId, LaneGroup<T>>) {
        let known = self.coverage.get(&id).copied().or_else(|| {
            let is_covered = self.abilities.cover(&groups.get(&id)?.key.needs);
            Some(if is_covered { Coverage::Idle } else { Coverage::Uncovered })
        });
        match known {
            Some(Coverage::Idle) => self.set(id, Some(first)),
            Some(Coverage::Ordered(bound)) if first < bound => self.set(id, Some(first)),
            Some(Coverage::Uncovered) => drop(self.coverage.insert(id, Coverage::Uncovered)),
            Some(Coverage::Ordered(_)) | None => {}
        }
    }

    /// Sets the bound of a group that the class covers; `None` if it has nothing to claim.
    fn set(&mut self, id: GroupId, bound: Option<T>) {
        let next = bound.map_or(Coverage::Idle, Coverage::Ordered);
        if let Some(Coverage::Ordered(before)) = self.coverage.insert(id, next) {
            self.order.remove(&(before, id));
        }
        self.order.extend(bound.map(|bound| (bound, id)));
    }

    fn remove(&mut self, id: GroupId) {
        if let Some(Coverage::Ordered(bound)) = self.coverage.remove(&id) {
            self.order.remove(&(bound, id));
        }
    }

    /// Returns the lane with the lowest bound among those whose groups are behind the `passed`
    /// ones. Corrects the bounds of groups that it looks at, which only raises them.
    pub(super) fn first(
        &mut self,
        groups: &HashMap<GroupId, LaneGroup<T>>,
        passed: &PassedGroups<T>,
    ) -> Option<(T, u32)> {
        loop {
            let behind = passed.0.map_or(Bound::Unbounded, Bound::Excluded);
            let (bound, id) = *self.order.range((behind, Bound::Unbounded)).next()?;
            match groups.get(&id).and_then(LaneGroup::first) {
                Some((turn, lane)) if turn == bound => return Some((turn, lane)),
                other => self.set(id, other.map(|(turn, _)| turn)),
            }
        }
    }
}

impl<T: Ord + Copy> LaneGroup<T> {
    fn first(&self) -> Option<(T, u32)> {
        self.listed.first().copied()
    }
}
