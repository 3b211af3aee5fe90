//! When reports leave for agq: at once after a silence, else together with those that come meanwhile. Pure.
//!
//! A report by itself costs both sides a wake-up, a batch and a sync; short jobs that follow each other closely share them.

use std::time::Duration;

use tokio::time::Instant;

/// Time between two departures.
const APART: Duration = Duration::from_millis(10);

/// The timetable.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Departures {
    /// The latest that was fixed: in the past, or still to come.
    latest: Option<Instant>,
}

impl Departures {
    /// When a report leaves that is ready now.
    pub(crate) fn board(&mut self, now: Instant) -> Instant {
        let departure = match self.latest {
            Some(latest) if now <= latest => latest,
            Some(latest) => now.max(latest + APART),
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

    use super::{APART, Departures};

    #[test]
    fn the_first_report_and_one_after_a_silence_leave_at_once() {
        let (mut departures, start) = (Departures::default(), Instant::now());
        assert_eq!(departures.board(start), start);
        assert_eq!(departures.board(start + APART), start + APART);
        assert_eq!(departures.board(start + APART * 5), start + APART * 5);
    }

    #[test]
    fn reports_that_follow_each_other_closely_leave_together() {
        let (mut departures, start) = (Departures::default(), Instant::now());
        let after = |ms| start + Duration::from_millis(ms);
        assert_eq!(departures.board(start), start);
        for ms in [1, 4, 9, 10] {
            assert_eq!(departures.board(after(ms)), start + APART, "{ms} ms");
        }
        assert_eq!(departures.board(after(11)), start + APART * 2);
        assert_eq!(departures.board(after(12)), start + APART * 2);
    }
}
