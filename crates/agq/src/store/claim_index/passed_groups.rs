//! Groups that a claim has passed over.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
};

use super::shares::{GroupId, Share, SharePlace};

/// Groups of a queue that a claim has passed over, because their jobs do not fit into what the
/// worker has free. A claim asks about groups in the order of the places of their shares, and in
/// each share in the order of their bounds.
#[derive(Debug)]
pub(crate) struct PassedGroups<T> {
    /// Group that the last lookup has found.
    pub(super) found: Option<FoundGroup<T>>,
    /// Last group of each share that was passed over.
    last: BTreeMap<Share, (T, GroupId)>,
    /// Shares with passed groups, by lower bounds of the places that they have with their next
    /// groups.
    next: BTreeSet<(SharePlace<T>, Share)>,
    /// Last share that was added to [`Self::last`].
    newest: Option<(SharePlace<T>, Share)>,
}

#[derive(Debug)]
pub(super) struct FoundGroup<T> {
    pub(super) place: SharePlace<T>,
    pub(super) share: Share,
    pub(super) group: (T, GroupId),
}

impl<T> Default for PassedGroups<T> {
    fn default() -> Self {
        Self { found: None, last: BTreeMap::new(), next: BTreeSet::new(), newest: None }
    }
}

impl<T: Ord + Copy> PassedGroups<T> {
    /// Passes over the group of the lane that the index has returned last.
    pub(crate) fn pass(&mut self) {
        let Some(FoundGroup { place, share, group }) = self.found.take() else { return };
        if self.last.insert(share.clone(), group).is_none() {
            self.newest = Some((place, share.clone()));
        }
        self.next.insert((place, share));
    }

    /// Returns the share with the lowest place: one of those in `order` without passed groups, or
    /// one with passed groups by the place of its next group.
    pub(super) fn next_share(
        &self,
        order: &BTreeSet<(SharePlace<T>, Share)>,
    ) -> Option<(SharePlace<T>, Share)> {
        let behind = self.newest.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let mut others = order.range((behind, Bound::Unbounded));
        let other = others.find(|(_, share)| !self.last.contains_key(share));
        [other, self.next.first()].into_iter().flatten().min().cloned()
    }

    pub(super) fn last_of(&self, share: &Share) -> Option<(T, GroupId)> {
        self.last.get(share).copied()
    }

    /// Raises the bound of the place of a share with passed groups.
    pub(super) fn raise(&mut self, before: SharePlace<T>, now: SharePlace<T>, share: Share) {
        self.next.remove(&(before, share.clone()));
        self.next.insert((now, share));
    }

    /// Removes a share, all groups of which are passed over. Returns false if the share had no
    /// passed group.
    pub(super) fn end_share(&mut self, place: SharePlace<T>, share: Share) -> bool {
        self.next.remove(&(place, share))
    }
}
