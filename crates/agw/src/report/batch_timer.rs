//! Batch timer for reports: a report after a pause is sent at once, later reports are sent
//! together. No I/O, no clock.
//!
//! Each separate report costs both sides a wake-up, a batch and a sync. Short jobs that follow each
//! other closely share these costs.

use std::time::Duration;

use tokio::time::Instant;

/// Minimum time between two batches.
const MIN_INTERVAL: Duration = Duration::from_millis(10);

/// Time at which the next batch of reports is sent.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct BatchTimer {
    /// Time of the latest batch, in the past or in the future.
    latest: Option<Instant>,
}

impl BatchTimer {
    /// Returns the time to send a report that is ready at `now`.
    pub(crate) fn next_send_at(&mut self, now: Instant) -> Instant {
        let departure = match self.latest {
            Some(latest) if now <= latest => latest,
            Some(latest) => now.max(latest + MIN_INTERVAL),
            None => now,
        };
        self.latest = Some(departure);
        departure
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::{BatchTimer, MIN_INTERVAL};

    #[test]
    fn batch_timer_sends_the_first_report_and_one_after_a_pause_at_once() {
        let (mut batch_timer, start) = (BatchTimer::default(), Instant::now());
        assert_eq!(batch_timer.next_send_at(start), start);
        assert_eq!(batch_timer.next_send_at(start + MIN_INTERVAL), start + MIN_INTERVAL);
        assert_eq!(batch_timer.next_send_at(start + MIN_INTERVAL * 5), start + MIN_INTERVAL * 5);
    }

    #[test]
    fn batch_timer_groups_reports_in_quick_succession() {
        let (mut batch_timer, start) = (BatchTimer::default(), Instant::now());
        let after = |ms| start + Duration::from_millis(ms);
        assert_eq!(batch_timer.next_send_at(start), start);
        for ms in [1, 4, 9, 10] {
            assert_eq!(batch_timer.next_send_at(after(ms)), start + MIN_INTERVAL, "{ms} ms");
        }
        assert_eq!(batch_timer.next_send_at(after(11)), start + MIN_INTERVAL * 2);
        assert_eq!(batch_timer.next_send_at(after(12)), start + MIN_INTERVAL * 2);
    }
}
