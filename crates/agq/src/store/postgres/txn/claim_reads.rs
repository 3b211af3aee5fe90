//! Reads and locks for the claims of a transaction.
//!
//! A lane with a limit, a budget or quantities is read under locks: first those of its bounds, then
//! those of its jobs. Any other lane is read under locks, too, if there is no other node, or if the
//! lane is the only one. Otherwise lanes are read without locks, and claims lock the jobs that they
//! have chosen.

use std::collections::{BTreeMap, BTreeSet};

use agenix_protocol::time::Timestamp;
use agenix_rules::{budget::Usage, job::Job};
use sqlx::{Error, Result};

use crate::store::{
    claim_index::{Block, Constraint},
    postgres::{
        connection::RoundTrip,
        txn::{
            PgTxn,
            candidates::{self, CANDIDATES, ClaimRequest, PAUSED, TAKERS},
            claim_batch::{ClaimBatch, ClaimReads, SeenChoice},
            lane_reads::{LANES_AHEAD, LaneReads},
            ready_jobs::{LaneHead, LaneRead, LockedJob, ReadyJobs, locked_among, locked_in},
        },
    },
};

impl PgTxn<'_> {
    /// Reads the first jobs of a lane, and of the lanes that the claims at the places `open`
    /// probably check next. Each read of a batch has twice the size of the one before, so that few
    /// reads are needed.
    pub(crate) fn read_lanes(&mut self, batch: &mut ClaimBatch<'_>, lane: i32, open: &[usize]) -> Result<()> {
        let factor = 1_usize << batch.reads.min(16);
        batch.reads += 1;
        let claimants = open.iter().map(|at| batch.all[*at].claimant);
        let mut wanted = self.lanes.upcoming(claimants, LANES_AHEAD * factor, batch.now);
        wanted.retain(|lane| matches!(batch.ready.head(*lane), LaneHead::Unread(_)));
        wanted.insert(lane);
        let wanted = self.open_lanes(batch, &wanted)?;
        let requests: Vec<ClaimRequest<'_>> = open.iter().map(|at| batch.all[*at]).collect();
        self.lock_quantities(&requests, &batch.barred, &wanted)?;
        let from = |lane: i32| {
            let bound = self.lanes.ready_from(lane);
            match batch.ready.head(lane) {
                LaneHead::Unread(Some(unread)) => unread.max(bound),
                _ => bound,
            }
        };
        let wanted: Vec<_> = wanted.into_iter().map(|lane| (lane, from(lane))).collect();
        if wanted.is_empty() {
            return Ok(());
        }
        let mut round_trip = RoundTrip::default();
        let answers = LaneReads::of(self.lanes, wanted, open.len() * factor).call(&mut round_trip);
        let mut rows = self.session.send(round_trip).map_err(|failure| failure.error)?;
        let mut rows = |place: usize| rows.get_mut(place).map(std::mem::take).ok_or(Error::RowNotFound);
        answers.read(&mut rows, &mut batch.ready)
    }

    /// Locks the limits and budgets of `lanes`. Returns the lanes of which some job may begin, and
    /// blocks the others in the index.
    fn open_lanes(&mut self, batch: &mut ClaimBatch<'_>, lanes: &BTreeSet<i32>) -> Result<Vec<i32>> {
        if !lanes.iter().any(|lane| self.lanes.is_bounded(*lane)) {
            return Ok(lanes.iter().copied().collect());
        }
        let limits = lanes.iter().filter_map(|lane| self.lanes.limit_of(*lane)).map(str::to_owned).collect();
        self.limits.lock_free(self.session, limits)?;
        self.budgets.count_runs(self.session)?;
        let budgets = lanes.iter().filter_map(|lane| self.lanes.budget_of(*lane)).map(str::to_owned);
        self.budgets.lock_free(self.session, budgets.collect())?;
        let mut open = Vec::new();
        for lane in lanes.iter().copied() {
            match self.block_of(lane, None, batch.now) {
                None => open.push(lane),
                Some(block) => {
                    if !self.has_locked_bounds_of(lane) {
                        batch.closed.push(lane);
                    }
                    self.lanes.block(lane, block);
                }
            }
        }
        Ok(open)
    }

    /// Returns true if this transaction has locked the limit and the budget of a lane.
    fn has_locked_bounds_of(&self, lane: i32) -> bool {
        self.lanes.limit_of(lane).is_none_or(|key| self.limits.get(key).is_some())
            && self.lanes.budget_of(lane).is_none_or(|name| self.budgets.has_locked(name))
    }

    /// Returns why the first job of a lane may not begin: the limit or the budget of the lane,
    /// which does not admit the job or which another transaction has locked. Without a job, returns
    /// why no job may begin.
    pub(crate) fn block_of(&self, lane: i32, first: Option<&Job>, now: Timestamp) -> Option<Block> {
        self.limit_block(lane, now).or_else(|| self.budget_block(lane, first, now))
    }

    /// Returns the reason if the limit of a lane lets no job begin.
    pub(crate) fn limit_block(&self, lane: i32, now: Timestamp) -> Option<Block> {
        let key = self.lanes.limit_of(lane)?;
        let limit = self.limits.get(key);
        let until = limit.and_then(|limit| limit.admits_from(now));
        let block = Block { constraint: Constraint::Limit, name: key.to_owned(), until };
        limit.is_none_or(|limit| !limit.admits(now)).then_some(block)
    }

    fn budget_block(&self, lane: i32, first: Option<&Job>, now: Timestamp) -> Option<Block> {
        let name = self.lanes.budget_of(lane)?;
        let admits = match first {
            Some(job) => self.budgets.admits_job(job, now),
            None => self.budgets.admits_any(name, now),
        };
        let until = self.budgets.has_locked(name).then(|| Usage::window_moves_at(now));
        (!admits).then(|| Block { constraint: Constraint::Budget, name: name.to_owned(), until })
    }

    /// Locks jobs of the lanes that claims have chosen, as many as there are claims of each. Jobs
    /// that other transactions have locked are passed over, so that some claims may get no job.
    pub(crate) fn lock_seen(
        &self,
        batch: &mut ClaimBatch<'_>,
        chosen: Vec<SeenChoice>,
    ) -> Result<Vec<(SeenChoice, Option<LockedJob>)>> {
        let mut reads: BTreeMap<i32, LaneRead> = BTreeMap::new();
        for SeenChoice { lane, position, .. } in &chosen {
            let new = LaneRead { lane: *lane, count: 0, from: *position };
            reads.entry(*lane).or_insert(new).count += 1;
        }
        if reads.is_empty() {
            return Ok(Vec::new());
        }
        let all: Vec<LaneRead> = reads.into_values().collect();
        let mut found = locked_in(&self.session.rows(CANDIDATES.query(candidates::params(&all)))?)?;
        let mut locked = BTreeMap::new();
        for read in all {
            let of_lane = found.remove(&read.lane).unwrap_or_default();
            batch.ready.drop_seen(&read, &of_lane);
            locked.insert(read.lane, locked_among(of_lane));
        }
        let mut pairs = Vec::new();
        for choice in chosen {
            let job = locked.get_mut(&choice.lane).and_then(|jobs| jobs.pop_front());
            pairs.push((choice, job.map(|(_, job)| job)));
        }
        Ok(pairs)
    }

    /// Reads the claimants, and the paused queues.
    pub(crate) fn claimants(&self, all: &[ClaimRequest<'_>]) -> Result<ClaimReads> {
        let mut round_trip = RoundTrip::default();
        let takers = round_trip.call(&TAKERS, vec![candidates::takers(all)]);
        let paused = round_trip.call(&PAUSED, Vec::new());
        let answers = self.session.send(round_trip).map_err(|failure| failure.error)?;
        let rows = |place: usize| answers.get(place).ok_or(Error::RowNotFound);
        Ok(ClaimReads {
            barred: candidates::barred(rows(takers)?)?,
            paused: candidates::paused(rows(paused)?)?,
            ready: ReadyJobs::default(),
        })
    }
}
