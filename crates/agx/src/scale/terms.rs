//! Bounds and delays that the user gives to `agx scale`.

use std::time::Duration;

/// Maximum of the time that another scaler gets beyond `command_timeout`.
const GRACE: Duration = Duration::from_secs(60);

/// Bounds and delays of a scaler.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ScaleTerms {
    /// True if a command starts workers.
    pub(crate) can_start: bool,
    /// True if a command ends workers.
    pub(crate) can_end: bool,
    /// Minimum number of workers.
    pub(crate) min: u64,
    /// Maximum number of workers, with those that take no jobs.
    pub(crate) max: u64,
    /// Time for which jobs have to lack workers before some are started.
    pub(crate) up_after: Duration,
    /// Time for which a worker has to be idle before it is ended.
    pub(crate) down_after: Duration,
    /// Time after which a started worker that has not registered is no longer expected.
    pub(crate) start_timeout: Duration,
    /// Time after which a command is killed.
    pub(crate) command_timeout: Duration,
}

impl ScaleTerms {
    /// Returns the time after which a worker that a scaler has drained, and not ended, is
    /// abandoned: the command of that scaler cannot run any more.
    pub(crate) fn abandoned_after(&self) -> Duration {
        self.command_timeout.saturating_add(self.command_timeout.min(GRACE))
    }
}
