//! Delays between the attempts of a failed job: exponential backoff with jitter.

use serde::{Deserialize, Serialize};

/// First delay, in milliseconds.
pub const FIRST_DELAY_MS: u64 = 1000;
/// Longest delay before jitter, in milliseconds.
pub const MAX_DELAY_MS: u64 = 300_000;

/// Delay of a snoozed job before jitter, in milliseconds.
pub const SNOOZE_MS: u64 = 30_000;

/// Returns the delay after `failures` failures, in milliseconds: exponential backoff with jitter.
/// The delay doubles from [`FIRST_DELAY_MS`] to [`MAX_DELAY_MS`], and is multiplied with 0.5 to
/// 1.5. `jitter` is a random number in 0..1.
pub fn delay_ms(failures: u32, jitter: f64) -> u64 {
    let doublings = failures.saturating_sub(1).min(32);
    jittered(FIRST_DELAY_MS.saturating_mul(1 << doublings).min(MAX_DELAY_MS), jitter)
}

/// Returns the delay of a snoozed job, in milliseconds: [`SNOOZE_MS`] times 0.5 to 1.5.
pub fn snooze_ms(jitter: f64) -> u64 {
    jittered(SNOOZE_MS, jitter)
}

fn jittered(delay: u64, jitter: f64) -> u64 {
    #[expect(clippy::cast_precision_loss, reason = "five minutes are far below 2^52")]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 450,000")]
    let jittered = (delay as f64 * (0.5 + jitter.clamp(0.0, 1.0))) as u64;
    jittered
}

/// Retry policy of a job (ojs-retry).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Retry {
    /// Maximum number of attempts.
    pub max_attempts: u32,
    /// First delay, in milliseconds.
    pub initial_ms: u64,
    /// Factor between a delay and the next one, at least 1.
    pub coefficient: f64,
    /// Longest delay, in milliseconds.
    pub max_ms: u64,
    /// True if a delay is multiplied with a random number between 0.5 and 1.5.
    pub jitter: bool,
    /// Growth of the delays.
    pub strategy: Strategy,
    /// Kinds of errors that are not retried, as globs: `Auth.*`.
    pub non_retryable: Vec<String>,
    /// True if the job becomes a dead letter after its last failure.
    pub to_dead_letter: bool,
}

/// Growth of the delays between attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Strategy {
    /// Each delay is the one before, times the coefficient.
    Exponential,
    /// Each delay is the one before, plus the first delay.
    Linear,
    /// All delays are equal.
    Constant,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            max_attempts: 3,
            initial_ms: 1000,
            coefficient: 2.0,
            max_ms: 300_000,
            jitter: true,
            strategy: Strategy::Exponential,
            non_retryable: Vec::new(),
            to_dead_letter: false,
        }
    }
}

impl Retry {
    /// Returns the delay in milliseconds after `failures` failures; `jitter` is random in 0..1.
    pub fn delay_ms(&self, failures: u32, jitter: f64) -> u64 {
        let before = i32::try_from(failures.saturating_sub(1)).unwrap_or(i32::MAX);
        #[expect(clippy::cast_precision_loss, reason = "delays are far below 2^52")]
        let (initial, max) = (self.initial_ms as f64, self.max_ms as f64);
        let delay = match self.strategy {
            // The power may be infinite, and 0 times that is no number.
            Strategy::Exponential if self.initial_ms == 0 => 0.0,
            Strategy::Exponential => initial * self.coefficient.powi(before),
            Strategy::Linear => initial * f64::from(failures.max(1)),
            Strategy::Constant => initial,
        };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and max")]
        let delay = delay.min(max) as u64;
        if self.jitter { jittered(delay, jitter) } else { delay }
    }

    /// Returns true if an error of one of these kinds is not retried.
    pub fn is_final(&self, kinds: [&str; 2]) -> bool {
        let is_meant = |pattern: &String| kinds.iter().any(|kind| matches(pattern, kind));
        self.non_retryable.iter().any(is_meant)
    }
}

fn matches(pattern: &str, name: &str) -> bool {
    agenix_protocol::glob::matches(pattern.as_bytes(), name.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::{Retry, Strategy, delay_ms};

    #[test]
    fn delay_doubles_up_to_the_bound() {
        assert_eq!(
            [1, 2, 3, 9, 10, 1000].map(|n| delay_ms(n, 0.5)),
            [1000, 2000, 4000, 256_000, 300_000, 300_000]
        );
        assert_eq!((delay_ms(1, 0.0), delay_ms(1, 1.0)), (500, 1500));
    }

    fn delays(retry: &Retry) -> [u64; 4] {
        [1, 2, 3, 40].map(|failures| retry.delay_ms(failures, 0.0))
    }

    #[test]
    fn delay_grows_by_strategy_up_to_the_longest() {
        let retry = |strategy| Retry { strategy, jitter: false, max_ms: 5000, ..Retry::default() };
        assert_eq!(delays(&retry(Strategy::Exponential)), [1000, 2000, 4000, 5000]);
        assert_eq!(delays(&retry(Strategy::Linear)), [1000, 2000, 3000, 5000]);
        assert_eq!(delays(&retry(Strategy::Constant)), [1000; 4]);
        let jittered = Retry { jitter: true, ..retry(Strategy::Constant) };
        assert_eq!([0.0, 0.5, 1.0].map(|jitter| jittered.delay_ms(1, jitter)), [500, 1000, 1500]);
        let endless = Retry { coefficient: 1e300, max_ms: 7, ..retry(Strategy::Exponential) };
        assert_eq!(endless.delay_ms(u32::MAX, 0.0), 7);
        let at_once = Retry { initial_ms: 0, ..endless };
        assert_eq!(delays(&at_once), [0; 4]);
    }

    #[test]
    fn non_retryable_errors_match_as_globs() {
        let retry = Retry { non_retryable: vec!["Auth.*".into(), "Fatal".into()], ..Retry::default() };
        assert!(retry.is_final(["handler_error", "Auth.Expired"]));
        assert!(retry.is_final(["Fatal", "x"]));
        assert!(!retry.is_final(["handler_error", "FatalError"]));
    }
}
