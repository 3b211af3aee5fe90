//! Watcher of the tasks: a second process of this program, which ends all tasks if the worker is
//! killed. The watcher is no child subreaper, and starts no task. The worker starts another one if
//! the watcher has ended.
//!
//! The watcher exists on Linux alone. On other systems, tasks continue when their worker is killed.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "linux")]
mod watcher;

#[cfg(target_os = "linux")]
pub(crate) use linux::{end, keep_running};
#[cfg(target_os = "linux")]
pub(crate) use watcher::{is_asked_for, run};

#[cfg(not(target_os = "linux"))]
mod other {
    use std::process::ExitCode;

    /// Returns false.
    pub(crate) fn is_asked_for() -> bool {
        false
    }

    /// Fails, because the watcher needs `/proc` of Linux.
    pub(crate) fn run() -> ExitCode {
        ExitCode::FAILURE
    }

    /// Never returns.
    pub(crate) async fn keep_running() {
        std::future::pending().await
    }

    /// Does nothing.
    pub(crate) fn end() {}
}
#[cfg(not(target_os = "linux"))]
pub(crate) use other::{end, is_asked_for, keep_running, run};
