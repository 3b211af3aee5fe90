//! Pause between the submissions of two inputs (`--delay`).

use std::time::Duration;

use tokio::{
    sync::watch,
    time::{Instant, timeout_at},
};

use super::stop_level::StopLevel;

/// Earliest time of the next submission.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SubmissionPace {
    pause: Duration,
    next: Option<Instant>,
}

impl SubmissionPace {
    pub(crate) fn new(pause: Duration) -> Self {
        Self { pause, next: None }
    }

    /// Returns true if a command has at most one input.
    pub(super) fn is_set(&self) -> bool {
        !self.pause.is_zero()
    }

    /// Waits until the next input may be submitted. Returns false if no further input is wanted.
    pub(super) async fn turn(&mut self, stop_level: &mut watch::Receiver<StopLevel>) -> bool {
        if !self.is_set() {
            return true;
        }
        let due = self.due(Instant::now());
        let stopped = stop_level.wait_for(|&stop_level| stop_level != StopLevel::All);
        // Only the end of the time means that it is the turn of this input.
        timeout_at(due, stopped).await.is_err()
    }

    /// Returns the time of the next submission, which is `now` or later.
    fn due(&mut self, now: Instant) -> Instant {
        let due = self.next.map_or(now, |next| next.max(now));
        self.next = Some(due + self.pause);
        due
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::{sync::watch, time::Instant};

    use super::{StopLevel, SubmissionPace};

    #[test]
    fn submissions_are_at_least_the_pause_apart() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut pace = SubmissionPace::new(2 * second);
        assert_eq!(pace.due(start), start, "the first one does not wait");
        assert_eq!(pace.due(start + second), start + 2 * second);
        assert_eq!(pace.due(start + 2 * second), start + 4 * second);
        let late = start + 60 * second;
        assert_eq!(pace.due(late), late);
        assert_eq!(pace.due(late), late + 2 * second, "missed pauses are not made up for");
    }

    #[tokio::test]
    async fn submissions_end_without_a_turn_if_no_input_is_wanted() {
        let (level, mut stop_level) = watch::channel(StopLevel::All);
        let mut pace = SubmissionPace::new(Duration::from_secs(3600));
        assert!(pace.turn(&mut stop_level).await);
        level.send_replace(StopLevel::End);
        assert!(!pace.turn(&mut stop_level).await);
    }

    #[tokio::test]
    async fn submissions_without_a_pause_do_not_wait() {
        let (_level, mut stop_level) = watch::channel(StopLevel::All);
        let mut pace = SubmissionPace::default();
        assert!(!pace.is_set() && pace.turn(&mut stop_level).await && pace.turn(&mut stop_level).await);
    }
}
