//! Keys of the job indexes, computed from a job, and the key of a lane.

use agenix_rules::{action::PRIORITIES, job::Job};

pub(crate) use crate::store::LaneKey;
use crate::store::claim_index::Turn;

/// Position of a ready job in its lane: rank, then sequence number.
pub(crate) type LaneTurn = (u8, u64);

impl Turn for LaneTurn {
    fn rank(self) -> i32 {
        self.0.into()
    }
}

/// Returns lane, rank and sequence number. A higher priority has a lower rank.
pub(crate) fn ready_key(job: &Job) -> (u32, u8, u64) {
    (job.lane, rank(job.priority), job.seq)
}

fn rank(priority: i32) -> u8 {
    u8::try_from(*PRIORITIES.end() - priority).unwrap_or_default()
}

/// Returns status and time of an ended job, the beginning of its key in the index of ended jobs.
pub(crate) fn ended_key(job: &Job) -> Option<(u8, u64)> {
    job.ended_at.filter(|_| job.is_ended()).map(|at| (job.status() as u8, at.0))
}
