//! Pause detector: detects time that passes unobserved, because the machine slept or its clock was
//! set forward. The detector observes the clock during rounds of the reaper, too, so that a long
//! round does not count as a pause.

use std::{collections::HashMap, sync::Mutex};

use agenix_protocol::{ids::JobId, time::Timestamp};
use agenix_rules::job::Job;
use tracing::info;

use crate::sync::lock;

/// Minimum time between two observations that counts as a pause, in milliseconds.
const MIN_PAUSE_MS: u64 = 1000;

pub(crate) struct PauseDetector {
    longest_ms: u64,
    seen: Mutex<ObservedTime>,
}

struct ObservedTime {
    last: Timestamp,
    listening_since: Timestamp,
    unseen_ms: u64,
}

impl PauseDetector {
    /// A pause is longer than `heartbeat_interval_ms`, in which each worker sends a heartbeat.
    pub(crate) fn new(now: Timestamp, heartbeat_interval_ms: u64) -> Self {
        let longest_ms = heartbeat_interval_ms.max(MIN_PAUSE_MS);
        Self { longest_ms, seen: Mutex::new(ObservedTime { last: now, listening_since: now, unseen_ms: 0 }) }
    }

    /// Returns the time since which heartbeats were received without a pause.
    pub(crate) fn observe(&self, now: Timestamp) -> Timestamp {
        let mut seen = lock(&self.seen);
        let passed_ms = now.ms_since(seen.last);
        seen.last = now;
        if passed_ms > self.longest_ms {
            info!(
                ms = passed_ms,
                "time has passed unobserved; it counts neither against workers nor against attempts"
            );
            seen.listening_since = now;
            seen.unseen_ms = seen.unseen_ms.saturating_add(passed_ms);
        }
        seen.listening_since
    }

    /// Observes how the store answered the reaper, which asked it at `asked_at`. A store that
    /// fails, or answers late, could store no heartbeats, so silences of workers count from `now`
    /// on.
    pub(crate) fn observe_store(&self, asked_at: Timestamp, now: Timestamp, has_failed: bool) {
        if has_failed || now.ms_since(asked_at) > self.longest_ms {
            self.listen_from(now);
        }
    }

    pub(crate) fn listen_from(&self, now: Timestamp) {
        lock(&self.seen).listening_since = now;
    }

    /// Returns the unobserved time by which attempts have not been extended yet.
    pub(crate) fn unseen_ms(&self) -> u64 {
        lock(&self.seen).unseen_ms
    }

    /// Records that attempts have been extended by `ms` of the unobserved time.
    pub(crate) fn subtract_unseen(&self, ms: u64) {
        let mut seen = lock(&self.seen);
        seen.unseen_ms = seen.unseen_ms.saturating_sub(ms);
    }
}

/// Attempts that have been extended by unobserved time, kept until all attempts have been extended.
/// The round after a failed round extends each attempt only by the missing time.
#[derive(Default)]
pub(crate) struct ExtendedAttempts(HashMap<(JobId, u32), u64>);

impl ExtendedAttempts {
    /// Returns the part of `unseen_ms` by which the attempt of a job has not been extended yet.
    pub(crate) fn missing_ms(&self, job: &Job, unseen_ms: u64) -> u64 {
        let extended_ms = self.0.get(&(job.job_id.clone(), job.attempt)).copied();
        unseen_ms.saturating_sub(extended_ms.unwrap_or_default())
    }

    /// Records that the attempt of a job has been extended by all of `unseen_ms`.
    pub(crate) fn record(&mut self, job: &Job, unseen_ms: u64) {
        self.0.insert((job.job_id.clone(), job.attempt), unseen_ms);
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use agenix_protocol::time::Timestamp;
    use agenix_rules::{
        action::Action,
        job::{Job, JobParams, QueuePosition},
    };

    use super::{ExtendedAttempts, PauseDetector};

    #[test]
    fn attempt_is_extended_once_although_a_round_fails() {
        let action = Action::new("a".parse().unwrap(), "p".parse().unwrap(), Timestamp(1));
        let (place, params) = (QueuePosition { lane: 0, seq: 0 }, JobParams::default());
        let job = Job::new("j".parse().unwrap(), &action, 0, place, &params, Timestamp(1));
        let mut extended = ExtendedAttempts::default();
        assert_eq!(extended.missing_ms(&job, 60_000), 60_000);
        extended.record(&job, 60_000);
        assert_eq!(extended.missing_ms(&job, 60_000), 0);
        assert_eq!(extended.missing_ms(&job, 70_000), 10_000, "another pause followed");
        let next = Job { attempt: 1, ..job.clone() };
        assert_eq!(extended.missing_ms(&next, 60_000), 60_000);
        extended.clear();
        assert_eq!(extended.missing_ms(&job, 5_000), 5_000);
    }

    #[test]
    fn pause_detector_ignores_a_long_round_that_is_observed() {
        let detector = PauseDetector::new(Timestamp(10_000), 1_000);
        for n in 1..=16 {
            assert_eq!(detector.observe(Timestamp(10_000 + n * 250)), Timestamp(10_000));
        }
        assert_eq!(detector.unseen_ms(), 0);
    }

    #[test]
    fn pause_detector_counts_a_sleep_in_the_middle_of_a_round() {
        let detector = PauseDetector::new(Timestamp(10_000), 1_000);
        detector.observe(Timestamp(10_250));
        assert_eq!(detector.observe(Timestamp(70_250)), Timestamp(70_250));
        assert_eq!(detector.observe(Timestamp(70_500)), Timestamp(70_250));
        assert_eq!(detector.unseen_ms(), 60_000);
        detector.observe(Timestamp(80_000));
        detector.subtract_unseen(60_000);
        assert_eq!(detector.unseen_ms(), 9_500, "the second pause has not been excused yet");
    }

    #[test]
    fn pause_detector_listens_from_the_end_of_an_outage_of_the_store() {
        let detector = PauseDetector::new(Timestamp(10_000), 1_000);
        detector.observe_store(Timestamp(10_000), Timestamp(11_000), false);
        assert_eq!(detector.observe(Timestamp(11_000)), Timestamp(10_000), "it answered in time");
        detector.observe_store(Timestamp(11_000), Timestamp(11_500), true);
        assert_eq!(detector.observe(Timestamp(11_600)), Timestamp(11_500), "it failed");
        detector.observe(Timestamp(12_000));
        detector.observe_store(Timestamp(11_600), Timestamp(12_601), false);
        assert_eq!(detector.observe(Timestamp(12_601)), Timestamp(12_601), "it answered late");
        assert_eq!(detector.unseen_ms(), 0, "attempts went on");
    }

    #[test]
    fn pause_detector_ignores_a_clock_that_is_set_back() {
        let detector = PauseDetector::new(Timestamp(10_000), 1_000);
        assert_eq!(detector.observe(Timestamp(5_000)), Timestamp(10_000));
        detector.listen_from(Timestamp(5_000));
        assert_eq!(detector.observe(Timestamp(5_500)), Timestamp(5_000));
        assert_eq!(detector.unseen_ms(), 0);
    }
}
