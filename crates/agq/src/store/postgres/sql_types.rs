//! Numbers as PostgreSQL has them: signed, and as wide as they are.

use agenix_protocol::{documents::Status, time::Timestamp};
use agenix_rules::{action::PRIORITIES, job::Job};

/// A count or a time as `bigint`. What is larger than that does not occur: the bound is 292 million years.
pub(super) fn wide(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A `bigint` that is no less than 0.
pub(super) fn count(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}

pub(super) fn limit(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(super) fn time(at: Option<Timestamp>) -> Option<i64> {
    at.map(|at| wide(at.0))
}

pub(super) fn status(status: Status) -> i16 {
    i16::from(status as u8)
}

pub(super) fn lane(number: u32) -> i32 {
    number.cast_signed()
}

/// A job's place among those of its lane: the higher its priority, the earlier.
pub(super) fn rank(job: &Job) -> i16 {
    i16::try_from(*PRIORITIES.end() - job.priority).unwrap_or_default()
}
