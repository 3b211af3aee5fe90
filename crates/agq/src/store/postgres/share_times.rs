//! Virtual times of shares, by which this node chooses between lanes. They count the claims of this
//! node only.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use agenix_rules::{
    capability::Abilities,
    fair_share::{FairQueue, VirtualTime},
};

use crate::store::{
    Claimant,
    claimant_class::{ClassId, class_id},
};

/// Share of a queue; `None` for the jobs that the session key submits.
type Share = Option<String>;

/// Maximum number of queues, and of classes in each. All are forgotten beyond it.
const MAX_KNOWN: usize = 1000;

/// First ready job of a lane, for a claimant. The claimant gets the lowest one that fits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Head {
    place: SharePlace,
    turn: (i16, i64),
    pub(crate) lane: i32,
    share: Share,
}

/// Place of the share of a job among those of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct SharePlace {
    /// Rank of the job if priorities decide before shares, otherwise 0.
    rank: i16,
    /// Virtual time in the claims of the class of the claimant.
    time: VirtualTime,
    /// Virtual time in the claims of all classes.
    queue_time: VirtualTime,
}

/// Virtual times of the shares of queues.
#[derive(Debug, Clone, Default)]
pub(crate) struct ShareTimes(HashMap<String, QueueTimes>);

#[derive(Debug, Clone, Default)]
struct QueueTimes {
    fair: FairQueue<Share>,
    classes: HashMap<ClassId, ClassTimes>,
}

/// Virtual times for the claimants with equal abilities.
#[derive(Debug, Clone)]
struct ClassTimes {
    /// Keeps the abilities alive, because their address is the identity of the class.
    _abilities: Arc<Abilities>,
    /// Virtual times by the rank of the places of the shares.
    fair: BTreeMap<i16, FairQueue<Share>>,
}

impl ShareTimes {
    /// Returns the first ready job of a lane, at a turn and in a share of a queue.
    pub(super) fn head(
        &self,
        (queue, claimant): (&str, &Claimant),
        (lane, turn): (i32, (i16, i64)),
        share: Option<&str>,
    ) -> Head {
        let share = share.map(str::to_owned);
        let rank = if claimant.share_terms.priority_queues.contains(queue) { turn.0 } else { 0 };
        let times = self.0.get(queue);
        let class = times.and_then(|times| times.classes.get(&class_id(&claimant.abilities)));
        let time = class.and_then(|class| class.fair.get(&rank)).map(|fair| fair.time_of(&share));
        let queue_time = times.map(|times| times.fair.time_of(&share));
        let (time, queue_time) = (time.unwrap_or_default(), queue_time.unwrap_or_default());
        Head { place: SharePlace { rank, time, queue_time }, turn, lane, share }
    }

    /// Counts the claim of the job that is `taken` among the `heads` of all lanes with jobs for the
    /// claimant.
    pub(crate) fn charge(&mut self, (queue, claimant): (&str, &Claimant), heads: &[Head], taken: &Head) {
        if self.0.len() >= MAX_KNOWN && !self.0.contains_key(queue) {
            self.0.clear();
        }
        let times = self.0.entry(queue.to_owned()).or_default();
        let weight = claimant.share_terms.weight_of(taken.share.as_deref());
        times.fair.charge(&taken.share, weight);
        times.fair.forget_idle(|_| false);
        let (id, abilities) = (class_id(&claimant.abilities), &claimant.abilities);
        if times.classes.len() >= MAX_KNOWN && !times.classes.contains_key(&id) {
            times.classes.clear();
        }
        let new = || ClassTimes { _abilities: Arc::clone(abilities), fair: BTreeMap::new() };
        let class = times.classes.entry(id).or_insert_with(new);
        let fair = class.fair.entry(taken.place.rank).or_default();
        let of_rank = heads.iter().filter(|head| head.place.rank == taken.place.rank);
        fair.set_active(&of_rank.map(|head| &head.share).collect::<BTreeSet<_>>());
        fair.charge(&taken.share, weight);
    }

    /// Returns a copy of the virtual times of some queues.
    pub(super) fn of<'q>(&self, queues: impl Iterator<Item = &'q String>) -> Self {
        let times = queues.filter_map(|queue| Some((queue.clone(), self.0.get(queue)?.clone())));
        Self(times.collect())
    }
}
