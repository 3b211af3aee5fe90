//! Lanes, cached in the writer's memory, because every claim needs them. Changes are written with
//! the batch that made them. A lane exists from its first job until its last job is removed. The
//! number of lanes is unbounded, because users invent labels.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque, btree_map::Entry};

use agenix_protocol::{ids::JobId, time::Timestamp};
use agenix_rules::capability::Needs;

use crate::store::{
    Claimant,
    claim_index::{Block, ClaimIndex, Constraint, PassedGroups},
    redb::{
        engine::{Snapshot, Table},
        schema::{LANE_LENGTHS, LANES, LaneKey, LaneTurn, META, PAUSED, Result, decode, encode},
    },
};

/// Maximum number of cached ready jobs of a lane, which one read of the table returns.
pub(crate) const MAX_HEADS: usize = 16;

#[derive(Debug)]
struct Lane {
    key: LaneKey,
    ready: u64,
    /// Number of stored jobs in any state.
    all: u64,
    /// Lower bound of the first ready job of the lane. Reads start here, to skip rows of claimed
    /// jobs.
    beginning: LaneTurn,
    /// First ready jobs, in order. Every other ready job is behind them.
    heads: VecDeque<(LaneTurn, JobId)>,
    /// True if the key of the lane is in the database, or in the current batch.
    is_stored: bool,
}

impl Lane {
    fn new(key: LaneKey) -> Self {
        Self { key, ready: 0, all: 0, beginning: (0, 0), heads: VecDeque::new(), is_stored: false }
    }

    /// Adds a ready job. The job is cached if it precedes a cached job, or if all ready jobs are
    /// cached.
    fn add_ready(&mut self, turn: LaneTurn, job_id: &JobId) {
        let is_all_known = self.heads.len() as u64 == self.ready;
        self.beginning = if self.ready == 0 { turn } else { self.beginning.min(turn) };
        self.ready = self.ready.saturating_add(1);
        let place = self.heads.partition_point(|(other, _)| *other < turn);
        if is_all_known || place < self.heads.len() {
            self.heads.insert(place, (turn, job_id.clone()));
            self.heads.truncate(MAX_HEADS);
        }
    }

    fn remove_ready(&mut self, turn: LaneTurn) {
        self.ready = self.ready.saturating_sub(1);
        if let Ok(place) = self.heads.binary_search_by_key(&turn, |(turn, _)| *turn) {
            self.heads.remove(place);
            if place == 0 {
                self.beginning = turn;
            }
        }
    }
}

/// All lanes that have jobs, by number.
#[derive(Debug, Default)]
pub(crate) struct Lanes {
    lanes: BTreeMap<u32, Lane>,
    numbers: HashMap<LaneKey, u32>,
    /// Unused numbers below the highest used one. These numbers are assigned first.
    free: BTreeSet<u32>,
    changed: BTreeSet<u32>,
    /// Lanes that have ready jobs, for claims.
    index: ClaimIndex<LaneTurn>,
    paused: HashSet<String>,
    next_seq: u64,
    saved_seq: u64,
}

impl Lanes {
    pub(crate) fn load(snapshot: &Snapshot<'_>) -> Result<Self> {
        let mut lanes = Self::default();
        let (keys, lengths) = (snapshot.table(&LANES), snapshot.table(&LANE_LENGTHS));
        let mut next = 0;
        for entry in keys.iter()? {
            let (number, key) = entry?;
            let number = number.value();
            let (ready, all) = lengths.get(number)?.map_or((0, 0), |length| length.value());
            lanes.free.extend(next..number);
            next = number.saturating_add(1);
            let lane = Lane::new(decode(key.value())?);
            lanes.insert(number, Lane { ready, all, is_stored: true, ..lane });
        }
        for entry in snapshot.table(&PAUSED).iter()? {
            lanes.paused.insert(entry?.0.value().to_owned());
        }
        lanes.next_seq = snapshot.table(&META).get("next_seq")?.map_or(0, |seq| seq.value());
        lanes.saved_seq = lanes.next_seq;
        Ok(lanes)
    }

    fn insert(&mut self, number: u32, lane: Lane) {
        self.numbers.insert(lane.key.clone(), number);
        self.index.insert(number, &lane.key);
        if lane.ready > 0 {
            self.index.add(number, lane.beginning);
        }
        self.lanes.insert(number, lane);
    }

    /// Returns the number of a lane. A new lane is stored if it has a job at the end of the batch.
    pub(crate) fn number(&mut self, key: LaneKey) -> u32 {
        if let Some(&number) = self.numbers.get(&key) {
            return number;
        }
        // If no number is free, the lanes have the numbers from 0 on without gaps.
        let after_all = || u32::try_from(self.lanes.len()).unwrap_or(u32::MAX);
        let number = self.free.pop_first().unwrap_or_else(after_all);
        self.insert(number, Lane::new(key));
        self.changed.insert(number);
        number
    }

    /// Returns the lane that a claim checks next, with a lower bound of the turn of its first job;
    /// `None` if the queue is paused, or has no job for a claimant behind the `passed` groups.
    pub(crate) fn next_for(
        &mut self,
        queue: &str,
        claimant: &Claimant,
        (passed, now): (&mut PassedGroups<LaneTurn>, Timestamp),
    ) -> Option<(LaneTurn, u32)> {
        if self.paused.contains(queue) { None } else { self.index.first(queue, claimant, passed, now) }
    }

    /// Counts a claim of a job with a turn in the share of its lane.
    pub(crate) fn charge(&mut self, of_job: (LaneTurn, u32), claimant: &Claimant) {
        self.index.charge(of_job, claimant);
    }

    /// Sets what [`Lanes::next_for`] knows about the first ready job of a lane.
    pub(crate) fn set_first_turn(&mut self, number: u32, first: Option<LaneTurn>) {
        self.index.set_first(number, first);
    }

    /// Passes over a lane until its first job may start.
    pub(crate) fn block(&mut self, number: u32, block: Block) {
        self.index.block(number, block);
    }

    /// Records that a limit or a budget has changed.
    pub(crate) fn unblock_all_of(&mut self, constraint: Constraint, name: &str) {
        self.index.unblock_all_of(constraint, name);
    }

    /// Returns the virtual times of a share, as the index has them.
    #[cfg(test)]
    pub(crate) fn share_times(
        &self,
        queue: &str,
        claimant: &Claimant,
        share: Option<&str>,
    ) -> impl Ord + use<> {
        self.index.times_of(queue, claimant, (share, 0))
    }

    /// Returns the lanes of a queue with ready jobs for a worker; none if the queue is paused.
    #[cfg(test)]
    pub(crate) fn with_jobs_for(
        &self,
        queue: &str,
        capabilities: &agenix_rules::capability::ClaimantCapabilities,
    ) -> Vec<u32> {
        if self.paused.contains(queue) {
            return Vec::new();
        }
        let is_for = |lane: &Lane| lane.key.queue == queue && capabilities.cover(&lane.key.needs);
        let filled = self.lanes.iter().filter(|(_, lane)| lane.ready > 0 && is_for(lane));
        filled.map(|(number, _)| *number).collect()
    }

    pub(crate) fn queue_of(&self, number: u32) -> Option<&str> {
        self.lanes.get(&number).map(|lane| lane.key.queue.as_str())
    }

    pub(crate) fn needs_of(&self, number: u32) -> Option<&Needs> {
        self.lanes.get(&number).map(|lane| &lane.key.needs)
    }

    /// Returns the keys of all limits that apply to stored jobs.
    pub(crate) fn limits(&self) -> HashSet<&str> {
        self.lanes.values().filter_map(|lane| lane.key.needs.limit.as_deref()).collect()
    }

    pub(crate) fn set_paused(&mut self, queue: &str, paused: bool) {
        if paused {
            self.paused.insert(queue.to_owned());
        } else {
            self.paused.remove(queue);
        }
    }

    /// Returns the position from which on a lane has ready jobs.
    pub(crate) fn cursor(&self, number: u32) -> LaneTurn {
        self.lanes.get(&number).map_or((0, 0), |lane| lane.beginning)
    }

    /// Returns the first ready job of a lane if it is cached.
    pub(crate) fn first(&self, number: u32) -> Option<&(LaneTurn, JobId)> {
        self.lanes.get(&number).and_then(|lane| lane.heads.front())
    }

    /// Caches the first ready jobs of a lane, in order.
    pub(crate) fn set_cursor(&mut self, number: u32, heads: VecDeque<(LaneTurn, JobId)>) {
        if let Some(lane) = self.lanes.get_mut(&number)
            && let Some((turn, _)) = heads.front()
        {
            lane.beginning = *turn;
            lane.heads = heads;
        }
    }

    pub(crate) fn add_ready(&mut self, number: u32, turn: LaneTurn, job_id: &JobId) {
        let Some(lane) = self.lanes.get_mut(&number) else { return };
        lane.add_ready(turn, job_id);
        self.index.add(number, turn);
        self.changed.insert(number);
    }

    pub(crate) fn remove_ready(&mut self, number: u32, turn: LaneTurn) {
        let Some(lane) = self.lanes.get_mut(&number) else { return };
        lane.remove_ready(turn);
        if lane.ready == 0 {
            self.index.set_first(number, None);
        } else {
            // The next job may fit into the budget that blocked the lane.
            self.index.unblock(number);
        }
        self.changed.insert(number);
    }

    pub(crate) fn adjust_total(&mut self, number: u32, by: i64) {
        let Some(lane) = self.lanes.get_mut(&number) else { return };
        lane.all = lane.all.saturating_add_signed(by);
        self.changed.insert(number);
    }

    pub(crate) fn take_seq(&mut self) -> u64 {
        self.next_seq += 1;
        self.next_seq
    }

    /// Ensures that later sequence numbers are above `seq`.
    pub(crate) fn observe_seq(&mut self, seq: u64) {
        self.next_seq = self.next_seq.max(seq);
    }

    /// Writes the changes. Removes empty lanes last, so that a batch assigns no number twice.
    pub(crate) fn save(
        &mut self,
        keys: &mut Table<'_, u32, &'static [u8]>,
        lengths: &mut Table<'_, u32, (u64, u64)>,
        meta: &mut Table<'_, &'static str, u64>,
    ) -> Result<()> {
        for number in std::mem::take(&mut self.changed) {
            let Entry::Occupied(mut lane) = self.lanes.entry(number) else { continue };
            if lane.get().all == 0 {
                self.numbers.remove(&lane.remove().key);
                self.index.remove(number);
                self.free.insert(number);
                keys.remove(number);
                lengths.remove(number);
                continue;
            }
            let lane = lane.get_mut();
            if !std::mem::replace(&mut lane.is_stored, true) {
                keys.insert(number, encode(&lane.key)?.as_slice());
            }
            lengths.insert(number, (lane.ready, lane.all));
        }
        // A job that waits for its due time has a sequence number, too, but changes no lane.
        if self.next_seq != self.saved_seq {
            meta.insert("next_seq", self.next_seq);
            self.saved_seq = self.next_seq;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
