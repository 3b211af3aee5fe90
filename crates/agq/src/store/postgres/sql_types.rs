//! Conversions between Rust's unsigned integers and PostgreSQL's signed ones.

use agenix_protocol::{documents::Status, time::Timestamp};
use agenix_rules::{action::PRIORITIES, job::Job};

/// Converts a count or a time to `bigint`. The bound for a time is 292 million years.
pub(super) fn wide(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Converts a `bigint`; negative values become 0.
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

/// Returns the rank of a job in its lane: the higher its priority, the lower the rank.
pub(super) fn rank(job: &Job) -> i16 {
    i16::try_from(*PRIORITIES.end() - job.priority).unwrap_or_default()
}
