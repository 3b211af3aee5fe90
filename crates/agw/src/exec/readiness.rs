//! Readiness of descriptors in the event loop of a lane.

use std::{io, os::fd::AsRawFd};

use tokio::io::{Interest, unix::AsyncFd};

/// Registers `owner` with the event loop of this thread, until it can be read.
#[expect(deprecated, reason = "its successor is unsafe, and all owners here keep their descriptor open")]
pub(crate) fn readable<T: AsRawFd>(owner: T) -> io::Result<AsyncFd<T>> {
    AsyncFd::with_interest(owner, Interest::READABLE)
}
