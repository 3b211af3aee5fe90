//! Lanes that may have ready jobs, in the index of the lane cache.
//!
//! The index has a lower bound of the position of the first ready job of each lane. Bounds are
//! corrected by what claims read, by jobs that become ready at this node, by notifications of other
//! nodes, and by scans of all lanes.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem::take,
    time::{Duration, Instant},
};

use agenix_protocol::time::Timestamp;
use sqlx::{Error, Row, query};

use crate::store::{
    Claimant,
    claim_index::{Block, Constraint, PassedGroups, Turn},
    claimant_class::class_id,
    postgres::{
        connection::session::DatabaseSession,
        lane_cache::LaneCache,
        ready_positions::{END, Position},
        sql_types,
    },
};

/// Time after which a node that receives no notifications scans all lanes for ready jobs again,
/// because other nodes may have added some.
const REFRESH_AFTER: Duration = Duration::from_millis(250);
/// Duration of a scan of all lanes that is always worth its cost.
const CHEAP: Duration = Duration::from_millis(1);
/// Share of its time that a node spends on scans of all lanes if the scans are not cheap: one part
/// in this number.
const PARTS: u32 = 10;

/// Query for the first ready job of each lane. Each of these lanes takes one step in the index,
/// however many other lanes there are and however many jobs wait.
pub(super) const READY_LANES: &str = "WITH RECURSIVE ready (lane, rank, turn) AS (\
         (SELECT lane, rank, turn FROM agq.jobs WHERE is_ready ORDER BY lane, rank, turn LIMIT 1) \
         UNION ALL SELECT n.lane, n.rank, n.turn FROM ready AS r CROSS JOIN LATERAL (SELECT j.lane, j.rank, j.turn \
         FROM agq.jobs AS j WHERE j.is_ready AND j.lane > r.lane ORDER BY j.lane, j.rank, j.turn LIMIT 1) AS n) \
     SELECT lane, rank, turn FROM ready";

impl Turn for Position {
    fn rank(self) -> i32 {
        self.0.into()
    }
}

impl LaneCache {
    /// Adds the ready jobs of other nodes. Scans all lanes if other jobs may have become ready, or
    /// if the latest scan is too old. Empties the cache first if it is too old.
    pub(super) fn refresh(&mut self, session: &DatabaseSession) -> Result<(), Error> {
        self.clear_if_old();
        let notified = self.notices.take();
        let refresh_after = if self.notices.is_listening() { self.poll } else { REFRESH_AFTER };
        if notified.any || self.loaded_at.is_none_or(|at| at.elapsed() >= refresh_after) {
            return self.load(session, self.has_peers, &BTreeMap::new()).map(drop);
        }
        let foreign: BTreeSet<i32> = notified.first.keys().copied().collect();
        // The lane of an ended job may have no ready job, and so be unknown.
        self.know(session, foreign.clone())?;
        notified.first.into_iter().for_each(|(lane, position)| self.add_ready(lane, position));
        self.add_unknown(session)?;
        // A notification also announces that a limit or a budget of the lane admits jobs.
        foreign.into_iter().for_each(|lane| self.unblock_constraints_of(lane));
        Ok(())
    }

    /// Sets whether other nodes claim jobs, too. Other nodes may have changed limits of blocked
    /// lanes before this node knew of them.
    pub(super) fn set_peers(&mut self, has_peers: bool) {
        if has_peers != self.has_peers {
            self.has_peers = has_peers;
            self.loaded_at = None;
        }
    }

    /// Scans all lanes again, because a claim found too little, and returns true if a lane may have
    /// ready jobs that was not known to have any. Does nothing if the scans take long and this node
    /// receives notifications of what it misses. `taken` has the positions of the last jobs that
    /// the transaction has claimed, which count as ready until it writes them.
    pub(super) fn look_again(
        &mut self,
        session: &DatabaseSession,
        taken: &BTreeMap<i32, Position>,
    ) -> Result<bool, Error> {
        // One scan may have taken long because the machine was busy.
        let cost = self.costs.into_iter().min().unwrap_or_default();
        let is_old = self.loaded_at.is_none_or(|at| at.elapsed() >= cost * PARTS);
        if cost < CHEAP || is_old || !self.notices.is_listening() {
            return self.load(session, false, taken);
        }
        Ok(false)
    }

    /// Reads the lanes that have ready jobs. Returns true if any of them was not known to have
    /// some. Blocked lanes whose first job is the same stay blocked, unless `unblocks` is true.
    fn load(
        &mut self,
        session: &DatabaseSession,
        unblocks: bool,
        taken: &BTreeMap<i32, Position>,
    ) -> Result<bool, Error> {
        let begun = Instant::now();
        let rows = session.rows(query(READY_LANES))?;
        self.costs.rotate_right(1);
        self.costs[0] = begun.elapsed();
        let first = rows.iter().map(|row| Ok((row.try_get(0)?, (row.try_get(1)?, row.try_get(2)?))));
        let first: BTreeMap<i32, Position> = first.collect::<Result<_, Error>>()?;
        self.know(session, first.keys().copied().collect())?;
        self.unknown_ready.clear();
        let mut has_new = false;
        for lane in self.known().collect::<Vec<i32>>() {
            let (number, position) = (lane.cast_unsigned(), first.get(&lane).copied());
            if position.zip(taken.get(&lane).copied()).is_some_and(|(first, taken)| first <= taken) {
                // The read shows nothing about the jobs behind.
                continue;
            }
            has_new |= position.is_some() && self.index.bound(number).is_none();
            if unblocks {
                self.index.set_first(number, position);
            } else {
                self.index.observe_first(number, position);
            }
        }
        self.loaded_at = Some(Instant::now());
        Ok(has_new)
    }

    /// Records that a job of a lane is ready.
    pub(super) fn add_ready(&mut self, lane: i32, position: Position) {
        if position == END {
            return;
        }
        if self.is_known(lane) {
            self.index.add(lane.cast_unsigned(), position);
        } else {
            let first = self.unknown_ready.entry(lane).or_insert(position);
            *first = position.min(*first);
        }
    }

    /// Reads the keys of lanes with ready jobs that are not cached yet. Keys that cannot be decoded
    /// stay unknown.
    fn add_unknown(&mut self, session: &DatabaseSession) -> Result<(), Error> {
        if self.unknown_ready.is_empty() {
            return Ok(());
        }
        let unknown = take(&mut self.unknown_ready);
        self.know(session, unknown.keys().copied().collect())?;
        for (lane, position) in unknown {
            self.index.add(lane.cast_unsigned(), position);
        }
        Ok(())
    }

    /// Records that a claim has found no ready job of a lane before `position`.
    pub(super) fn set_ready_from(&mut self, lane: i32, position: Position) {
        self.index.observe_first(lane.cast_unsigned(), (position != END).then_some(position));
    }

    /// Returns the position from which on a lane may have ready jobs.
    pub(super) fn ready_from(&self, lane: i32) -> Position {
        self.index.bound(lane.cast_unsigned()).unwrap_or(END)
    }

    /// Scans all lanes before the next claim, because any job may have become ready.
    pub(super) fn forget_positions(&mut self) {
        self.loaded_at = None;
    }

    /// Returns the lane that a claim from a queue checks next, behind the `passed` groups, with its
    /// bound.
    pub(super) fn first(
        &mut self,
        queue: &str,
        claimant: &Claimant,
        passed: &mut PassedGroups<Position>,
        now: Timestamp,
    ) -> Option<(Position, i32)> {
        let (position, lane) = self.index.first(queue, claimant, passed, now)?;
        Some((position, sql_types::lane(lane)))
    }

    /// Returns the lanes that the claims of `claimants` probably check next: for each claimant
    /// `of_each`.
    pub(super) fn upcoming<'c>(
        &mut self,
        claimants: impl Iterator<Item = &'c Claimant>,
        of_each: usize,
        now: Timestamp,
    ) -> BTreeSet<i32> {
        let mut counts: BTreeMap<_, (&Claimant, usize)> = BTreeMap::new();
        for claimant in claimants {
            let class = (class_id(&claimant.capabilities), &claimant.queues);
            counts.entry(class).or_insert((claimant, 0)).1 += of_each;
        }
        let mut lanes = BTreeSet::new();
        for (claimant, mut most) in counts.into_values() {
            for queue in &*claimant.queues {
                let found = self.index.upcoming(queue, claimant, most, now);
                most -= found.len();
                lanes.extend(found.into_iter().map(sql_types::lane));
            }
        }
        lanes
    }

    /// Counts the claim of a job at a position in the share of its lane.
    pub(super) fn charge(&mut self, (position, lane): (Position, i32), claimant: &Claimant) {
        self.index.charge((position, lane.cast_unsigned()), claimant);
    }

    /// Passes over a lane until its first job may begin.
    pub(super) fn block(&mut self, lane: i32, block: Block) {
        self.index.block(lane.cast_unsigned(), block);
    }

    /// Makes the next claim check a blocked lane again.
    pub(super) fn unblock(&mut self, lane: i32) {
        self.index.unblock(lane.cast_unsigned());
    }

    /// Makes claims check the lanes again that a changed limit or budget has blocked.
    pub(super) fn unblock_all_of(&mut self, constraint: Constraint, name: &str) {
        self.index.unblock_all_of(constraint, name);
    }

    /// Makes claims check the lanes again that the limit or the budget of a lane has blocked.
    fn unblock_constraints_of(&mut self, lane: i32) {
        let limit = self.limit_of(lane).map(str::to_owned);
        let budget = self.budget_of(lane).map(str::to_owned);
        limit.into_iter().for_each(|key| self.unblock_all_of(Constraint::Limit, &key));
        budget.into_iter().for_each(|name| self.unblock_all_of(Constraint::Budget, &name));
    }
}
