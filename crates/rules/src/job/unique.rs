//! Which two jobs are the same, and what becomes of the second (ojs-unique-jobs).

use agenix_protocol::{ids::JobId, time::Timestamp};
use serde::{Deserialize, Serialize};

use super::Job;
use crate::rejection::Rejection;

/// What becomes of a job that is there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnConflict {
    /// It is refused.
    Reject,
    /// The one that is there stands for it.
    Ignore,
    /// The one that is there is cancelled.
    Replace,
}

/// What makes a job the only one of its kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unique {
    /// The hash of what jobs of its kind have in common.
    pub key: String,
    /// What becomes of a second one.
    pub on_conflict: OnConflict,
    /// States in which the first counts; as the Open Job Spec names them.
    pub states: Vec<String>,
    /// How long after its submission the first counts, in milliseconds; `None` for ever.
    pub period_ms: Option<u64>,
}

/// What a job meets that is the only one of its kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UniqueOutcome {
    /// None that counts.
    Nobody,
    /// One that stands for it.
    Stand(JobId),
    /// One that it replaces.
    Replaced,
}

impl Unique {
    /// What becomes of a job, where `first` came before it.
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

/// Tells whether a period that began at `began` still lasts. A beginning that is further ahead than
/// `period_ms` does not count, because it comes from a clock that was set back since.
fn is_within(began: Timestamp, period_ms: u64, now: Timestamp) -> bool {
    now < began.plus_ms(period_ms) && began.ms_since(now) <= period_ms
}

#[cfg(test)]
mod tests {
    use agenix_protocol::time::Timestamp;

    use super::is_within;

    #[test]
    fn a_period_counts_from_a_time_that_can_be() {
        let now = Timestamp(1_000_000);
        assert!(is_within(now, 1000, now) && is_within(Timestamp(now.0 - 999), 1000, now));
        assert!(!is_within(Timestamp(now.0 - 1000), 1000, now), "it is over");
        assert!(
            is_within(now.plus_ms(1000), 1000, now),
            "a step of the clock that is smaller than the period"
        );
        assert!(!is_within(now.plus_ms(1001), 1000, now), "the clock was ahead");
    }
}
