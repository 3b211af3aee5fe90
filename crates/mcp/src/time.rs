//! Clock of this machine.

use std::time::SystemTime;

use agenix_protocol::time::Timestamp;

/// Returns the time. A clock before 1970 counts as 1970.
pub(crate) fn now() -> Timestamp {
    #[expect(clippy::disallowed_methods, reason = "this is the clock of the crate")]
    let now = SystemTime::now();
    let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
