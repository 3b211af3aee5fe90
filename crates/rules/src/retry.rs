//! How long a failed job waits before it is tried again.

/// The first delay, in milliseconds.
pub const FIRST_DELAY_MS: u64 = 1000;
/// The longest delay, in milliseconds.
pub const MAX_DELAY_MS: u64 = 300_000;

/// How long a snoozed job waits, before jitter, in milliseconds.
pub const SNOOZE_MS: u64 = 30_000;

/// Exponential backoff with jitter: 1 s, 2 s, 4 s … 5 min for the first, second, third failure, each times 0.5 to 1.5.
/// `jitter` is a random number in 0..1.
pub fn delay_ms(failures: u32, jitter: f64) -> u64 {
    let doublings = failures.saturating_sub(1).min(32);
    jittered(FIRST_DELAY_MS.saturating_mul(1 << doublings).min(MAX_DELAY_MS), jitter)
}

/// How long a job waits whose task said "later", in milliseconds: 30 s times 0.5 to 1.5.
pub fn snooze_ms(jitter: f64) -> u64 {
    jittered(SNOOZE_MS, jitter)
}

fn jittered(delay: u64, jitter: f64) -> u64 {
    #[expect(clippy::cast_precision_loss, reason = "five minutes are far below 2^52")]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 450,000")]
    let jittered = (delay as f64 * (0.5 + jitter.clamp(0.0, 1.0))) as u64;
    jittered
}

#[cfg(test)]
mod tests {
    use super::delay_ms;

    #[test]
    fn doubles_up_to_the_bound() {
        assert_eq!(
            [1, 2, 3, 9, 10, 1000].map(|n| delay_ms(n, 0.5)),
            [1000, 2000, 4000, 256_000, 300_000, 300_000]
        );
        assert_eq!((delay_ms(1, 0.0), delay_ms(1, 1.0)), (500, 1500));
    }
}
