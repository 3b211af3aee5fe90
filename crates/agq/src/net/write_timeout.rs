//! Writer with a time-out for clients that do not read. Without the time-out, the connection and
//! its unsent bytes would remain until the client closes. Every byte that the client takes restarts
//! the time-out.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::AsyncWrite,
    time::{Sleep, sleep},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SlowClient {
    #[error("it has read none of its replies for {} seconds", .0.as_secs_f64())]
    Replies(Duration),
    #[error("it does not keep up with its messages")]
    Messages,
}

impl SlowClient {
    pub(crate) fn is_behind(error: &io::Error) -> bool {
        error.get_ref().is_some_and(|cause| cause.is::<Self>())
    }
}

impl From<SlowClient> for io::Error {
    fn from(unread: SlowClient) -> Self {
        Self::new(io::ErrorKind::TimedOut, unread)
    }
}

pub(crate) struct TimeoutWriter {
    inner: Box<dyn AsyncWrite + Send + Unpin>,
    /// Maximum time without progress; zero means no bound.
    bound: Duration,
    /// Timer that runs while the client takes nothing.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl TimeoutWriter {
    /// Writes fail once the client has taken nothing for `bound`.
    pub(crate) fn new(inner: Box<dyn AsyncWrite + Send + Unpin>, bound: Duration) -> Self {
        Self { inner, bound, stalled: None }
    }

    /// Returns `sent` if it is ready, or an error if the time without progress has reached `bound`.
    fn check<T>(&mut self, cx: &mut Context<'_>, sent: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if sent.is_ready() || self.bound.is_zero() {
            self.stalled = None;
            return sent;
        }
        let bound = self.bound;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(bound)));
        stalled.as_mut().poll(cx).map(|()| Err(SlowClient::Replies(bound).into()))
    }
}

impl AsyncWrite for TimeoutWriter {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let sent = Pin::new(&mut self.inner).poll_write(cx, bytes);
        self.check(cx, sent)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        chunks: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let sent = Pin::new(&mut self.inner).poll_write_vectored(cx, chunks);
        self.check(cx, sent)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    /// Flushes the records of TLS. Progress within a flush shows with its last record.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let sent = Pin::new(&mut self.inner).poll_flush(cx);
        self.check(cx, sent)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let sent = Pin::new(&mut self.inner).poll_shutdown(cx);
        self.check(cx, sent)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::poll;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    use super::{SlowClient, TimeoutWriter};

    /// Returns a writer with room for one byte, and the end of the client.
    fn pipe_of_one_byte(bound: Duration) -> (TimeoutWriter, DuplexStream) {
        let (ours, theirs) = duplex(1);
        (TimeoutWriter::new(Box::new(ours), bound), theirs)
    }

    #[tokio::test]
    async fn write_fails_after_the_time_without_progress() {
        let (mut writer, _silent) = pipe_of_one_byte(Duration::from_millis(5));
        assert_eq!(writer.write(b"ab").await.unwrap(), 1);
        let error = writer.write(b"b").await.unwrap_err();
        assert!(SlowClient::is_behind(&error), "{error:?}");
        assert_eq!(error.to_string(), "it has read none of its replies for 0.005 seconds");
    }

    #[tokio::test]
    async fn write_timeout_restarts_with_every_byte_that_the_client_takes() {
        let (mut writer, mut slow) = pipe_of_one_byte(Duration::from_secs(3600));
        assert_eq!(writer.write(b"a").await.unwrap(), 1);
        assert!(poll!(Box::pin(writer.write(b"b"))).is_pending());
        assert!(writer.stalled.is_some());
        assert_eq!(slow.read_u8().await.unwrap(), b'a');
        assert_eq!(writer.write(b"b").await.unwrap(), 1);
        assert!(writer.stalled.is_none());
    }

    #[tokio::test]
    async fn write_timeout_of_zero_never_ends() {
        let (mut writer, _silent) = pipe_of_one_byte(Duration::ZERO);
        assert_eq!(writer.write(b"a").await.unwrap(), 1);
        assert!(poll!(Box::pin(writer.write(b"b"))).is_pending());
        assert!(writer.stalled.is_none());
    }

    #[test]
    fn slow_client_is_recognised_by_the_cause_of_the_error() {
        assert!(!SlowClient::is_behind(&std::io::ErrorKind::TimedOut.into()));
        assert!(SlowClient::is_behind(&SlowClient::Messages.into()));
    }
}
