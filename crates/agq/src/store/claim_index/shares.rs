//! Shares of a queue, as a class of claimants has them.

use std::{collections::BTreeSet, ops::Bound, sync::Arc};

use agenix_rules::fair_share::VirtualTime;

pub(super) type GroupId = u64;

/// Share of a queue; `None` for the jobs that the session key submits.
pub(super) type Share = Option<Arc<str>>;

/// Place of a share among those of a class. The share with the lowest place is next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SharePlace<T> {
    /// Rank of the first job if priorities decide before shares, otherwise 0.
    pub(super) rank: i32,
    /// Virtual time in the claims of the class.
    pub(super) time: VirtualTime,
    /// Virtual time in the claims of all classes.
    pub(super) queue_time: VirtualTime,
    pub(super) first: T,
}

/// Groups of one share that a class covers, by lower bounds of their first turns.
#[derive(Debug)]
pub(super) struct ClassShare<T> {
    pub(super) order: BTreeSet<(T, GroupId)>,
    /// Lower bound of the place of the share.
    pub(super) place: Option<SharePlace<T>>,
}

impl<T> Default for ClassShare<T> {
    fn default() -> Self {
        Self { order: BTreeSet::new(), place: None }
    }
}

impl<T: Ord + Copy> ClassShare<T> {
    /// Returns the first group behind another one.
    pub(super) fn first_behind(&self, behind: Option<(T, GroupId)>) -> Option<(T, GroupId)> {
        let behind = behind.map_or(Bound::Unbounded, Bound::Excluded);
        self.order.range((behind, Bound::Unbounded)).next().copied()
    }
}
