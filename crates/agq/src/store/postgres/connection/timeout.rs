//! Bound on the time of a call to the database.

use std::time::Duration;

use sqlx::{Error, Result};

/// Awaits `work` for at most `timeout`. The bound is needed because a network that carries nothing
/// reports no error, although the database itself ends a statement that takes too long.
pub(crate) async fn within<T>(timeout: Duration, work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::time::timeout(timeout, work).await.unwrap_or_else(|_| {
        let text = format!("it has not answered for {} seconds", timeout.as_secs());
        Err(Error::Io(std::io::Error::new(std::io::ErrorKind::TimedOut, text)))
    })
}
