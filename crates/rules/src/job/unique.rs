//! Unique jobs: detects an earlier job with the same key, and resolves the conflict
//! (ojs-unique-jobs).

use agenix_protocol::{ids::JobId, time::Timestamp};
use serde::{Deserialize, Serialize};

use super::Job;
use crate::rejection::Rejection;

/// Resolution of a conflict between a new job and an earlier job with the same key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnConflict {
    /// Refuses the new job.
    Reject,
    /// Drops the new job, and returns the id of the earlier job instead.
    Ignore,
    /// Cancels the earlier job.
    Replace,
}

/// Uniqueness constraint of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unique {
    /// Hash of the fields that jobs have to share to count as duplicates.
    pub key: String,
    /// Resolution of a conflict.
    pub on_conflict: OnConflict,
    /// States in which an earlier job counts, in the words of the Open Job Spec.
    pub states: Vec<String>,
    /// Milliseconds from its submission in which an earlier job counts; `None`: without end.
    pub period_ms: Option<u64>,
}

/// Result of the check of a unique job against an earlier job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UniqueOutcome {
    /// No earlier job counts, so the new job is stored.
    Nobody,
    /// The earlier job with this id replaces the new job.
    Stand(JobId),
    /// The new job replaces the earlier job, which has to be cancelled.
    Replaced,
}

impl Unique {
    /// Checks a new job against `first`, the earlier job with the same key. The error is
    /// [`Rejection::DuplicateJob`] if `first` counts and the policy is [`OnConflict::Reject`].
    pub fn against(&self, first: Option<&Job>, now: Timestamp) -> Result<UniqueOutcome, Rejection> {
        let counts = |job: &&Job| {
            self.states.iter().any(|state| state == job.state.ojs_name())
                && self.period_ms.is_none_or(|period| is_within(job.created_at, period, now))
        };
        let Some(first) = first.filter(counts) else { return Ok(UniqueOutcome::Nobody) };
        match self.on_conflict {
            OnConflict::Reject => Err(Rejection::DuplicateJob(first.job_id.clone())),
            OnConflict::Ignore => Ok(UniqueOutcome::Stand(first.job_id.clone())),
            OnConflict::Replace if first.is_ended() => Ok(UniqueOutcome::Nobody),
            OnConflict::Replace => Ok(UniqueOutcome::Replaced),
        }
    }
}

/// Returns true if a period still lasts; `began` may be from before the clock was set back.
fn is_within(began: Timestamp, period_ms: u64, now: Timestamp) -> bool {
    now < began.plus_ms(period_ms) && began.ms_since(now) <= period_ms
}

#[cfg(test)]
mod tests {
    use agenix_protocol::time::Timestamp;

    use super::is_within;

    #[test]
    fn unique_period_ignores_a_start_that_is_too_far_ahead() {
        let now = Timestamp(1_000_000);
        assert!(is_within(now, 1000, now) && is_within(Timestamp(now.0 - 999), 1000, now));
        assert!(!is_within(Timestamp(now.0 - 1000), 1000, now), "it is over");
        assert!(is_within(now.plus_ms(1000), 1000, now), "a clock step below the period");
        assert!(!is_within(now.plus_ms(1001), 1000, now), "the clock was ahead");
    }
}
