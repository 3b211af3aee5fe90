//! Ready jobs that a transaction has read for its claims, by lane.

use std::collections::{BTreeMap, VecDeque};

use agenix_rules::job::Job;
use sqlx::{Result, Row, postgres::PgRow};

use crate::store::postgres::{
    codec::{decode, or_skip},
    ready_positions::{END, Position},
};

/// Ready job that is locked by this transaction, or that this transaction adds.
pub(crate) struct LockedJob {
    pub(crate) job: Job,
    pub(crate) has_plan: bool,
}

/// Ready job as the transaction has read it. Jobs that are only seen are locked when claims have
/// chosen them, so that other nodes can claim the other jobs.
pub(crate) enum ReadyJob {
    Locked(Box<LockedJob>),
    Seen,
}

/// First ready job of a lane, as far as the lane is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LaneHead {
    Job(Position),
    /// There may be jobs that are not read, from this position on if one is given.
    Unread(Option<Position>),
    Empty,
}

/// Read of the first jobs of a lane from a position on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LaneRead {
    pub(crate) lane: i32,
    pub(crate) count: usize,
    pub(crate) from: Position,
}

struct ReadLane {
    jobs: BTreeMap<Position, ReadyJob>,
    /// Position from which on the lane is not read; [`END`] if all of it is read.
    unread_from: Position,
}

/// Ready jobs by lane.
#[derive(Default)]
pub(crate) struct ReadyJobs {
    lanes: BTreeMap<i32, ReadLane>,
    /// Positions of the last jobs that were taken from lanes.
    pub(crate) taken: BTreeMap<i32, Position>,
}

/// Returns the position directly behind another one.
fn behind((rank, turn): Position) -> Position {
    (rank, turn.saturating_add(1))
}

impl ReadyJobs {
    /// Adds a job that this transaction adds to the database. `is_only` is true if the lane has no
    /// other ready jobs.
    pub(crate) fn add_own(&mut self, lane: i32, position: Position, job: LockedJob, is_only: bool) {
        let unread_from = if is_only { END } else { (i16::MIN, i64::MIN) };
        let lane = self.lanes.entry(lane).or_insert(ReadLane { jobs: BTreeMap::new(), unread_from });
        lane.jobs.insert(position, ReadyJob::Locked(Box::new(job)));
    }

    /// Adds what a read has found, in the order of positions.
    pub(crate) fn add_read(&mut self, read: &LaneRead, found: Vec<(Position, Option<ReadyJob>)>) {
        let last = found.last().map(|(position, _)| *position);
        let lane = self
            .lanes
            .entry(read.lane)
            .or_insert_with(|| ReadLane { jobs: BTreeMap::new(), unread_from: read.from });
        let is_full = found.len() >= read.count;
        // Fewer jobs than asked for are all jobs of the lane.
        lane.unread_from = last.filter(|_| is_full).map_or(END, behind);
        lane.jobs.extend(found.into_iter().filter_map(|(position, job)| Some((position, job?))));
    }

    /// Returns the first ready job of a lane. Jobs that were taken count as ready in the database
    /// until the transaction writes them, so they are never read again.
    pub(crate) fn head(&self, lane: i32) -> LaneHead {
        let Some(lane) = self.lanes.get(&lane) else {
            return LaneHead::Unread(self.taken.get(&lane).copied().map(behind));
        };
        match lane.jobs.first_key_value() {
            Some((first, _)) if *first < lane.unread_from => LaneHead::Job(*first),
            _ if lane.unread_from == END => LaneHead::Empty,
            _ => LaneHead::Unread(Some(lane.unread_from)),
        }
    }

    /// Returns the record of the first ready job of a lane, if it is locked.
    pub(crate) fn first_locked(&self, lane: i32) -> Option<&Job> {
        match self.lanes.get(&lane)?.jobs.first_key_value()? {
            (_, ReadyJob::Locked(locked)) => Some(&locked.job),
            (_, ReadyJob::Seen) => None,
        }
    }

    /// Takes the first ready job of a lane.
    pub(crate) fn take(&mut self, lane: i32) -> Option<(Position, ReadyJob)> {
        let taken = self.lanes.get_mut(&lane)?.jobs.pop_first()?;
        let last = self.taken.entry(lane).or_insert(taken.0);
        *last = taken.0.max(*last);
        Some(taken)
    }

    /// Drops the jobs that were only seen and that the transaction has locked since, or found
    /// locked by other transactions: the jobs up to the last one of `found`, and all seen jobs if
    /// the read found fewer jobs than its limit.
    pub(crate) fn drop_seen(&mut self, read: &LaneRead, found: &[(Position, Option<ReadyJob>)]) {
        let Some(lane) = self.lanes.get_mut(&read.lane) else { return };
        let last = found.last().map(|(position, _)| *position).filter(|_| found.len() >= read.count);
        lane.jobs.retain(|position, job| {
            matches!(job, ReadyJob::Locked(_)) || last.is_some_and(|last| *position > last)
        });
        match last {
            Some(last) => {
                lane.unread_from = lane.unread_from.max(behind(last));
                self.taken.entry(read.lane).and_modify(|taken| *taken = last.max(*taken)).or_insert(last);
            }
            None => lane.unread_from = END,
        }
    }

    /// Forgets the lanes of which no job is left, so that they are read again.
    pub(crate) fn forget_empty(&mut self) {
        self.lanes.retain(|_, lane| !lane.jobs.is_empty());
    }

    /// Returns the first job of each lane whose first job is locked.
    pub(crate) fn left(&self) -> impl Iterator<Item = (i32, Position, &Job)> {
        self.lanes.iter().filter_map(|(lane, read)| match read.jobs.first_key_value()? {
            (position, ReadyJob::Locked(locked)) => Some((*lane, *position, &locked.job)),
            (_, ReadyJob::Seen) => None,
        })
    }
}

/// Jobs that reads have found, by lane. Unreadable jobs have a position only.
pub(crate) type FoundJobs = BTreeMap<i32, Vec<(Position, Option<ReadyJob>)>>;

/// Reads the rows of jobs that are locked.
pub(crate) fn locked_in(rows: &[PgRow]) -> Result<FoundJobs> {
    let mut found = FoundJobs::new();
    for row in rows {
        let job = or_skip(decode(&row.try_get::<Vec<u8>, _>("record")?));
        let has_plan = row.try_get("has_plan")?;
        let job = job.map(|job| ReadyJob::Locked(Box::new(LockedJob { job, has_plan })));
        found.entry(row.try_get("lane")?).or_default().push((position_in(row)?, job));
    }
    Ok(found)
}

/// Reads the rows of jobs that are not locked.
pub(crate) fn seen_in(rows: &[PgRow]) -> Result<FoundJobs> {
    let mut found = FoundJobs::new();
    for row in rows {
        let seen = (position_in(row)?, Some(ReadyJob::Seen));
        found.entry(row.try_get("lane")?).or_default().push(seen);
    }
    Ok(found)
}

fn position_in(row: &PgRow) -> Result<Position> {
    Ok((row.try_get("rank")?, row.try_get("turn")?))
}

/// Returns the locked jobs among those that a read has found.
pub(crate) fn locked_among(found: Vec<(Position, Option<ReadyJob>)>) -> VecDeque<(Position, LockedJob)> {
    let locked = |(position, job)| match job {
        Some(ReadyJob::Locked(locked)) => Some((position, *locked)),
        Some(ReadyJob::Seen) | None => None,
    };
    found.into_iter().filter_map(locked).collect()
}

#[cfg(test)]
mod tests {
    use super::{LaneHead, LaneRead, ReadyJob, ReadyJobs};

    #[test]
    fn taken_jobs_are_not_read_again() {
        let mut ready = ReadyJobs::default();
        assert_eq!(ready.head(1), LaneHead::Unread(None));
        let read = LaneRead { lane: 1, count: 2, from: (100, 5) };
        ready.add_read(&read, vec![((100, 7), Some(ReadyJob::Seen))]);
        assert_eq!(ready.head(1), LaneHead::Job((100, 7)));
        assert!(ready.take(1).is_some());
        assert_eq!(ready.head(1), LaneHead::Empty);
        ready.forget_empty();
        assert_eq!(ready.head(1), LaneHead::Unread(Some((100, 8))));
    }
}
