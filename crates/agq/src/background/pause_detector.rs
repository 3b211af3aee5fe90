//! Detection of unseen time, in which the machine slept or its clock was set forward. The watch
//! looks at the clock all the time, also during a round of the reaper, because a long round is no
//! sleep.

use std::sync::{Mutex, MutexGuard, PoisonError};

use agenix_protocol::time::Timestamp;
use tracing::info;

/// Minimum time without a look that counts as unseen.
const SHORTEST_MS: u64 = 1000;

/// Record of the time that passed.
pub(crate) struct PauseDetector {
    /// Maximum time between two looks that may be chance.
    longest_ms: u64,
    seen: Mutex<ObservedTime>,
}

struct ObservedTime {
    last: Timestamp,
    listening_since: Timestamp,
    unseen_ms: u64,
}

impl PauseDetector {
    /// Creates a watch. `heartbeat_interval_ms` is the interval at which workers send heartbeats.
    pub(crate) fn new(now: Timestamp, heartbeat_interval_ms: u64) -> Self {
        let longest_ms = heartbeat_interval_ms.max(SHORTEST_MS);
        Self { longest_ms, seen: Mutex::new(ObservedTime { last: now, listening_since: now, unseen_ms: 0 }) }
    }

    /// Looks at the clock, and returns since when workers could be heard without a break.
    pub(crate) fn observe(&self, now: Timestamp) -> Timestamp {
        let mut seen = self.seen();
        let passed_ms = now.ms_since(seen.last);
        seen.last = now;
        if passed_ms > self.longest_ms {
            info!(
                ms = passed_ms,
                "time has passed unseen; it counts neither against workers nor against attempts"
            );
            seen.listening_since = now;
            seen.unseen_ms = seen.unseen_ms.saturating_add(passed_ms);
        }
        seen.listening_since
    }

    /// Makes all earlier heartbeats of workers count no more.
    pub(crate) fn listen_from(&self, now: Timestamp) {
        self.seen().listening_since = now;
    }

    /// Returns the unseen time that attempts have not got back yet.
    pub(crate) fn unseen_ms(&self) -> u64 {
        self.seen().unseen_ms
    }

    /// Records that attempts have got back `ms` of the unseen time.
    pub(crate) fn excused(&self, ms: u64) {
        let mut seen = self.seen();
        seen.unseen_ms = seen.unseen_ms.saturating_sub(ms);
    }

    fn seen(&self) -> MutexGuard<'_, ObservedTime> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use agenix_protocol::time::Timestamp;

    use super::PauseDetector;

    #[test]
    fn a_round_that_takes_long_is_not_time_unseen() {
        let watch = PauseDetector::new(Timestamp(10_000), 1_000);
        for n in 1..=16 {
            assert_eq!(watch.observe(Timestamp(10_000 + n * 250)), Timestamp(10_000));
        }
        assert_eq!(watch.unseen_ms(), 0);
    }

    #[test]
    fn a_sleep_is_time_unseen_in_the_middle_of_a_round_too() {
        let watch = PauseDetector::new(Timestamp(10_000), 1_000);
        watch.observe(Timestamp(10_250));
        assert_eq!(watch.observe(Timestamp(70_250)), Timestamp(70_250));
        assert_eq!(watch.observe(Timestamp(70_500)), Timestamp(70_250));
        assert_eq!(watch.unseen_ms(), 60_000);
        watch.observe(Timestamp(80_000));
        watch.excused(60_000);
        assert_eq!(watch.unseen_ms(), 9_500, "what came meanwhile is still to be given back");
    }

    #[test]
    fn a_clock_that_goes_back_is_no_sleep() {
        let watch = PauseDetector::new(Timestamp(10_000), 1_000);
        assert_eq!(watch.observe(Timestamp(5_000)), Timestamp(10_000));
        watch.listen_from(Timestamp(5_000));
        assert_eq!(watch.observe(Timestamp(5_500)), Timestamp(5_000));
        assert_eq!(watch.unseen_ms(), 0);
    }
}
