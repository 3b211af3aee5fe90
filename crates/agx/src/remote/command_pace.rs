//! Pauses of a command that makes very many calls, because agq closes a connection that exceeds its
//! rate of commands for ten seconds without a pause of a second.

use std::time::Duration;

use tokio::time::{Instant, sleep};

/// Number of calls between two looks at the clock. A low rate of agq delays them for a few seconds.
pub(crate) const CALLS_AT_ONCE: usize = 64;
/// Time without a pause after which one is due.
const MAX_WORK: Duration = Duration::from_secs(6);
/// Length of a pause. agq forgives all earlier delays after a second.
const PAUSE: Duration = Duration::from_millis(1100);

/// End of the last pause.
#[derive(Debug)]
pub(crate) struct CommandPace {
    since: Instant,
}

impl CommandPace {
    pub(crate) fn begin() -> Self {
        Self { since: Instant::now() }
    }

    /// Makes a pause if one is due. The caller has all replies, and makes at most [`CALLS_AT_ONCE`]
    /// calls until it asks again.
    pub(crate) async fn keep(&mut self) {
        if self.since.elapsed() >= MAX_WORK {
            sleep(PAUSE).await;
            self.since = Instant::now();
        }
    }
}
