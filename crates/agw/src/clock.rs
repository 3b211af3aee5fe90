//! Clock of this machine.

use std::time::{Duration, SystemTime};

use agenix_protocol::time::Timestamp;
use tokio::time::Instant;

/// Duration that no worker lasts.
const FAR: Duration = Duration::from_hours(24 * 365 * 30);

/// Returns the time. A clock before 1970 counts as 1970.
pub(crate) fn now() -> Timestamp {
    #[expect(clippy::disallowed_methods, reason = "this is the place")]
    let now = SystemTime::now();
    now.into()
}

/// Returns the end of `duration`, or a time in the far future if the clock cannot represent the
/// end: a plan may give a task any timeout.
pub(crate) fn end_of(duration: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(duration).unwrap_or_else(|| now + FAR)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::{FAR, end_of};

    #[test]
    fn end_of_any_duration_is_a_time() {
        let now = Instant::now();
        assert!(end_of(Duration::ZERO) >= now);
        for secs in [i64::MAX as u64, u64::MAX] {
            assert!(end_of(Duration::from_secs(secs)) >= now + FAR, "{secs}");
        }
    }
}
