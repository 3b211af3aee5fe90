//! Exponential backoff between attempts to connect: 1 s, 2 s, 4 s … 60 s (worker spec §5.1).

use std::time::Duration;

const FIRST_WAIT: Duration = Duration::from_secs(1);
const MAX_WAIT: Duration = Duration::from_secs(60);

/// Delays of one series of attempts.
#[derive(Debug, Clone, Default)]
pub struct Backoff {
    attempts: u32,
}

impl Backoff {
    /// Returns the delay before the next attempt. Each call doubles the next delay, up to a minute.
    pub fn next_wait(&mut self) -> Duration {
        let wait = FIRST_WAIT.saturating_mul(1 << self.attempts.min(16)).min(MAX_WAIT);
        self.attempts += 1;
        wait
    }

    /// Starts a new series after a success.
    pub fn reset(&mut self) {
        self.attempts = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::Backoff;

    #[test]
    fn backoff_doubles_up_to_a_minute_and_resets() {
        let mut backoff = Backoff::default();
        let waits: Vec<_> = (0..8).map(|_| backoff.next_wait().as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60]);
        backoff.reset();
        assert_eq!(backoff.next_wait().as_secs(), 1);
    }
}
