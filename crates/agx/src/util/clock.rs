//! Clock of this machine.

use std::time::SystemTime;

use agenix_protocol::time::Timestamp;

/// Returns the time. A clock before 1970 counts as 1970.
pub(crate) fn now() -> Timestamp {
    #[expect(clippy::disallowed_methods, reason = "this is the place")]
    let now = SystemTime::now();
    now.into()
}
