//! Choice of lanes for the claims of one of several nodes.
//!
//! Other nodes pass over locked limits and jobs. So a node reads the positions of the first jobs
//! and the limits of all lanes without locks, and locks only those that its claims may need.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use agenix_protocol::time::Timestamp;
use agenix_rules::limit::Limit;
use sqlx::{Error, Result, Row};

use crate::store::{
    DocumentKind,
    postgres::{
        connection::RoundTrip,
        ready_positions::{END, Position},
        share_times::Head,
        txn::{
            PgTxn,
            candidates::{Barred, ClaimRequest, FIRST, params},
            held_rows::{EXISTING, documents_in, naming},
        },
    },
};

/// Number of lanes for each claimant whose limits are locked. Other nodes may hold some of them.
const LOCKED_FOR_EACH: usize = 2;

/// First ready jobs and limits of lanes, read without locks.
pub(crate) struct LaneOverview {
    waiting: BTreeMap<i32, VecDeque<Position>>,
    limits: BTreeMap<String, Limit>,
}

impl PgTxn<'_> {
    /// Reads the first `most` jobs of each lane if claims choose between lanes: if there are other
    /// nodes and several lanes. A look behind jobs that can no longer run does not choose, because
    /// it has to read more jobs than there are claimants; nor does one at jobs with quantities,
    /// which may have to wait for room while one of another lane starts.
    pub(crate) fn overview(
        &mut self,
        lanes: &BTreeSet<i32>,
        claimants: usize,
        most: usize,
    ) -> Result<Option<LaneOverview>> {
        let may_wait = lanes.iter().any(|lane| self.lanes.resources_of(*lane).is_some());
        if lanes.len() < 2 || !self.lanes.has_peers || most > claimants || may_wait {
            return Ok(None);
        }
        let counts: Vec<(i32, usize)> = lanes.iter().map(|lane| (*lane, most)).collect();
        let keys: BTreeSet<String> =
            lanes.iter().filter_map(|lane| self.lanes.limit_of(*lane)).map(str::to_owned).collect();
        let mut round_trip = RoundTrip::default();
        let first = round_trip.call(&FIRST, params(self.lanes, &counts, 0));
        let limits = (!keys.is_empty())
            .then(|| round_trip.call(&EXISTING, naming(DocumentKind::Limit, keys.into_iter().collect())));
        let answers = self.session.send(round_trip).map_err(|failure| failure.error)?;
        let rows = |place: usize| answers.get(place).ok_or(Error::RowNotFound);
        let mut waiting: BTreeMap<i32, VecDeque<Position>> = BTreeMap::new();
        for row in rows(first)? {
            waiting.entry(row.try_get(0)?).or_default().push_back((row.try_get(1)?, row.try_get(2)?));
        }
        for lane in lanes {
            let first = waiting.get(lane).and_then(VecDeque::front).copied();
            self.lanes.set_ready_from(*lane, first.unwrap_or(END));
        }
        let limits = limits.map_or(Ok(BTreeMap::new()), |place| documents_in(rows(place)?))?;
        Ok(Some(LaneOverview { waiting, limits }))
    }

    /// Returns the lanes whose limits and budgets the claims lock.
    pub(crate) fn lanes_to_lock(
        &self,
        all: &[ClaimRequest<'_>],
        barred: &Barred,
        overview: &LaneOverview,
        now: Timestamp,
    ) -> BTreeSet<i32> {
        let lanes = overview.waiting.keys().copied().collect();
        self.choose(&all.repeat(LOCKED_FOR_EACH), barred, overview, &lanes, now).into_keys().collect()
    }

    /// Returns the number of jobs that the claims take from each of `lanes`: for each claimant the
    /// first job of a lane that the claimant covers and whose limit lets the job begin, in the
    /// share whose turn it is.
    pub(crate) fn choose(
        &self,
        all: &[ClaimRequest<'_>],
        barred: &Barred,
        overview: &LaneOverview,
        lanes: &BTreeSet<i32>,
        now: Timestamp,
    ) -> BTreeMap<i32, usize> {
        let mut waiting: BTreeMap<i32, VecDeque<Position>> = overview.waiting.clone();
        waiting.retain(|lane, _| lanes.contains(lane));
        let mut limits: BTreeMap<&str, Limit> = BTreeMap::new();
        let mut counts: BTreeMap<i32, usize> = BTreeMap::new();
        let queues: BTreeSet<&String> = all.iter().flat_map(|wanting| &*wanting.claimant.queues).collect();
        let mut shares = self.lanes.shares.of(queues.into_iter());
        let claimants = all.iter().map(|wanting| wanting.claimant);
        for claimant in claimants.filter(|claimant| !barred.contains(&*claimant.holder)) {
            let limit_of = |lane: i32, limits: &BTreeMap<&str, Limit>| {
                let key = self.lanes.limit_of(lane)?;
                let stored = overview.limits.get(key);
                let limit = limits.get(key).copied().unwrap_or_else(|| self.limits.expected(key, stored));
                Some((key, limit))
            };
            let found = claimant.queues.iter().find_map(|queue| {
                let head = |(lane, jobs): (&i32, &VecDeque<Position>)| {
                    let head = self.lanes.head(&shares, (queue, claimant), (*lane, *jobs.front()?))?;
                    limit_of(*lane, &limits).is_none_or(|(_, limit)| limit.admits(now)).then_some(head)
                };
                let heads: Vec<Head> = waiting.iter().filter_map(head).collect();
                (!heads.is_empty()).then_some((queue, heads))
            });
            if let Some((queue, heads)) = &found
                && let Some(first) = heads.iter().min()
            {
                shares.charge((queue, claimant), heads, first);
                let begun = limit_of(first.lane, &limits).map(|(key, limit)| (key, limit.begun(now)));
                limits.extend(begun);
                waiting.get_mut(&first.lane).and_then(VecDeque::pop_front);
                *counts.entry(first.lane).or_default() += 1;
            }
        }
        counts
    }
}
