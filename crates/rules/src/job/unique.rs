//! Unique jobs: detects earlier jobs with the same key, and resolves the conflict
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
    /// Cancels the earlier jobs.
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

/// Result of the check of a unique job against earlier jobs.
#[derive(Debug, Clone, PartialEq)]
pub enum UniqueOutcome {
    /// No earlier job counts, so the new job is stored.
    Nobody,
    /// The earlier job with this id replaces the new job.
    Stand(JobId),
    /// The new job replaces these earlier jobs, if any, which have to be cancelled.
    Replaced(Vec<Job>),
}

impl Unique {
    /// Checks a new job against `earlier` jobs with the same key, of which the first that counts
    /// decides. The error is [`Rejection::DuplicateJob`] if an earlier job counts and the policy is
    /// [`OnConflict::Reject`].
    pub fn against(&self, earlier: &[Job], now: Timestamp) -> Result<UniqueOutcome, Rejection> {
        let counts = |job: &&Job| {
            self.states.iter().any(|state| state == job.state.ojs_name())
                && self.period_ms.is_none_or(|period| is_within(job.created_at, period, now))
        };
        let counting: Vec<&Job> = earlier.iter().filter(counts).collect();
        let Some(first) = counting.first() else { return Ok(UniqueOutcome::Nobody) };
        match self.on_conflict {
            OnConflict::Reject => Err(Rejection::DuplicateJob(first.job_id.clone())),
            OnConflict::Ignore => Ok(UniqueOutcome::Stand(first.job_id.clone())),
            OnConflict::Replace => {
                let replaced = counting.into_iter().filter(|job| !job.is_ended());
                Ok(UniqueOutcome::Replaced(replaced.cloned().collect()))
            }
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

    use super::{OnConflict, Unique, UniqueOutcome, is_within};
    use crate::{
        action::Action,
        job::{Job, JobParams, JobState, QueuePosition},
        rejection::Rejection,
    };

    fn job(job_id: &str, state: JobState) -> Job {
        let action = Action::new("a".parse().unwrap(), "p".parse().unwrap(), Timestamp(1000));
        let place = QueuePosition { lane: 0, seq: 0 };
        let job =
            Job::new(job_id.parse().unwrap(), &action, 0, place, &JobParams::default(), Timestamp(1000));
        Job { state, ..job }
    }

    #[test]
    fn unique_job_is_compared_with_every_earlier_job_of_its_key() {
        let earlier =
            [job("c", JobState::Completed), job("b", JobState::Available), job("a", JobState::Active)];
        let against = |on_conflict, states: &[&str]| {
            let states = states.iter().map(|state| (*state).to_owned()).collect();
            let unique = Unique { key: "k".into(), on_conflict, states, period_ms: None };
            unique.against(&earlier, Timestamp(2000))
        };
        let duplicate = Rejection::DuplicateJob("a".parse().unwrap());
        assert_eq!(against(OnConflict::Reject, &["active"]), Err(duplicate));
        let stand = UniqueOutcome::Stand("b".parse().unwrap());
        assert_eq!(against(OnConflict::Ignore, &["active", "available"]), Ok(stand));
        let replaced = UniqueOutcome::Replaced(earlier[1..].to_vec());
        assert_eq!(against(OnConflict::Replace, &["active", "available", "completed"]), Ok(replaced));
        assert_eq!(against(OnConflict::Replace, &["completed"]), Ok(UniqueOutcome::Replaced(Vec::new())));
        assert_eq!(against(OnConflict::Reject, &["scheduled"]), Ok(UniqueOutcome::Nobody));
    }

    #[test]
    fn unique_period_ignores_a_start_that_is_too_far_ahead() {
        let now = Timestamp(1_000_000);
        assert!(is_within(now, 1000, now) && is_within(Timestamp(now.0 - 999), 1000, now));
        assert!(!is_within(Timestamp(now.0 - 1000), 1000, now), "it is over");
        assert!(is_within(now.plus_ms(1000), 1000, now), "a clock step below the period");
        assert!(!is_within(now.plus_ms(1001), 1000, now), "the clock was ahead");
    }
}
