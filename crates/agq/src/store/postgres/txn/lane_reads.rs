//! Reads of the first jobs of lanes, several in one round trip.

use sqlx::{Result, postgres::PgRow};

use crate::store::postgres::{
    connection::RoundTrip,
    lane_cache::LaneCache,
    ready_positions::Position,
    txn::{
        candidates::{self, CANDIDATES, FIRST},
        ready_jobs::{FoundJobs, LaneRead, ReadyJobs, locked_in, seen_in},
    },
};

/// Number of lanes that are read for each claim. Some lanes have no job any more, and other nodes
/// may hold the limits of other lanes.
pub(crate) const LANES_AHEAD: usize = 2;
/// Maximum number of jobs of a lane that one read of lanes returns. Claims read that many if jobs
/// that can no longer run are in front of the others.
const MAX_OF_LANE: usize = 1_000;

/// Reads of several lanes in one round trip.
#[derive(Default)]
pub(crate) struct LaneReads {
    locked: Vec<LaneRead>,
    seen: Vec<LaneRead>,
}

/// Places of the answers of [`LaneReads`].
pub(crate) struct LaneAnswers {
    reads: LaneReads,
    locked: Option<usize>,
    seen: Option<usize>,
}

impl LaneReads {
    /// Returns reads of the `wanted` lanes, from a position on, for a number of claims. Together
    /// the reads return more jobs than there are claims, but of each lane at most one for each
    /// claim.
    pub(crate) fn of(lanes: &LaneCache, wanted: Vec<(i32, Position)>, claims: usize) -> Self {
        let is_choice = lanes.has_peers && wanted.len() > 1;
        let shared = (LANES_AHEAD * claims).div_ceil(wanted.len().max(1));
        let count = shared.min(claims).clamp(1, MAX_OF_LANE);
        let mut reads = Self::default();
        for (lane, from) in wanted {
            let read = LaneRead { lane, count, from };
            if is_choice && !lanes.is_bounded(lane) { reads.seen.push(read) } else { reads.locked.push(read) }
        }
        reads
    }

    /// Adds the statements to a round trip.
    pub(crate) fn call(self, round_trip: &mut RoundTrip) -> LaneAnswers {
        let mut call = |statement, reads: &[LaneRead]| {
            (!reads.is_empty()).then(|| round_trip.call(statement, candidates::params(reads)))
        };
        let (locked, seen) = (call(&CANDIDATES, &self.locked), call(&FIRST, &self.seen));
        LaneAnswers { reads: self, locked, seen }
    }
}

impl LaneAnswers {
    /// Adds what was read to the ready jobs.
    pub(crate) fn read(
        self,
        rows: &mut impl FnMut(usize) -> Result<Vec<PgRow>>,
        ready: &mut ReadyJobs,
    ) -> Result<()> {
        let locked = self.locked.map_or(Ok(FoundJobs::new()), |place| locked_in(&rows(place)?))?;
        let seen = self.seen.map_or(Ok(FoundJobs::new()), |place| seen_in(&rows(place)?))?;
        for (reads, mut found) in [(self.reads.locked, locked), (self.reads.seen, seen)] {
            for read in reads {
                ready.add_read(&read, found.remove(&read.lane).unwrap_or_default());
            }
        }
        Ok(())
    }
}
