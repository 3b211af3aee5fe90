//! Sweep of stray processes on systems without `/proc` of Linux: finds none.

use std::time::Duration;

use tokio::time::sleep;

use crate::exec::{job_mark::RunNumber, subreaper};

/// Interval between two calls of [`subreaper::reap`].
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Process that could not be ended. The list of such processes is empty here.
#[derive(Debug)]
#[allow(dead_code, reason = "no process of this type exists on these systems")]
pub(crate) struct UnendedProcess {
    pub(crate) run: Option<RunNumber>,
    pub(crate) name: String,
}

/// Reaps abandoned processes every [`LOOK_EVERY`], and never returns.
pub(crate) async fn watch() {
    loop {
        sleep(LOOK_EVERY).await;
        subreaper::reap();
    }
}

/// Returns an empty list.
pub(crate) async fn end() -> Vec<UnendedProcess> {
    Vec::new()
}
