//! Cancellation of one job, because its claim is no longer valid.

use tokio::sync::watch;

/// Shared cancellation flag. All clones see a cancellation, and it cannot be undone.
#[derive(Debug, Clone)]
pub(crate) struct CancelToken(watch::Sender<bool>);

impl Default for CancelToken {
    fn default() -> Self {
        Self(watch::Sender::new(false))
    }
}

impl CancelToken {
    pub(crate) fn cancel(&self) {
        self.0.send_replace(true);
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits for the cancellation. Returns at once if the cancellation has already happened.
    pub(crate) async fn cancelled(&self) {
        // Waiting cannot fail, because `self` keeps the sender alive.
        drop(self.0.subscribe().wait_for(|called| *called).await);
    }
}

#[cfg(test)]
mod tests {
    use super::CancelToken;

    #[tokio::test]
    async fn cancel_reaches_every_clone() {
        let cancel = CancelToken::default();
        let other = cancel.clone();
        assert!(!other.is_cancelled());
        cancel.cancel();
        other.cancelled().await;
        assert!(other.is_cancelled());
    }
}
