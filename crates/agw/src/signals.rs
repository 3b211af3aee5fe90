//! What the outside tells the worker to do.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// An order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// Take no more jobs, finish those that run.
    Drain,
    /// End now.
    Force,
}

/// SIGTERM and SIGINT: the first drains, the next force.
pub(crate) struct Orders {
    terminate: Signal,
    interrupt: Signal,
    is_draining: bool,
}

impl Orders {
    pub(crate) fn listen() -> std::io::Result<Self> {
        let (terminate, interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        Ok(Self { terminate, interrupt, is_draining: false })
    }

    /// The next order.
    pub(crate) async fn next(&mut self) -> Order {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
        if std::mem::replace(&mut self.is_draining, true) { Order::Force } else { Order::Drain }
    }
}
