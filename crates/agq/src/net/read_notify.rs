//! Reader that notifies a task when bytes arrive. A task that waits for a whole command would not
//! notice the bytes of an incomplete one.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use tokio::{
    io::{AsyncRead, ReadBuf},
    sync::Notify,
};

pub(crate) struct NotifyOnRead {
    inner: Box<dyn AsyncRead + Send + Unpin>,
    received: Arc<Notify>,
}

impl NotifyOnRead {
    pub(crate) fn new(inner: Box<dyn AsyncRead + Send + Unpin>) -> (Self, Arc<Notify>) {
        let received = Arc::new(Notify::new());
        (Self { inner, received: Arc::clone(&received) }, received)
    }
}

impl AsyncRead for NotifyOnRead {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.inner).poll_read(cx, buf))?;
        self.received.notify_one();
        Poll::Ready(Ok(()))
    }
}
