//! A word to everything that works on a job: it is not ours any more.

use tokio::sync::watch;

/// Heard by all who hold a clone of it, now or later; never taken back.
#[derive(Debug, Clone)]
pub(crate) struct CancelToken(watch::Sender<bool>);

impl Default for CancelToken {
    fn default() -> Self {
        Self(watch::Sender::new(false))
    }
}

impl CancelToken {
    /// Calls everybody off.
    pub(crate) fn cancel(&self) {
        self.0.send_replace(true);
    }

    /// Whether that has happened.
    pub(crate) fn is_cancelled(&self) -> bool {
        *self.0.borrow()
    }

    /// When it happens.
    pub(crate) async fn cancelled(&self) {
        // It cannot fail: the sender is ours.
        drop(self.0.subscribe().wait_for(|called| *called).await);
    }
}

#[cfg(test)]
mod tests {
    use super::CancelToken;

    #[tokio::test]
    async fn every_clone_hears_it_whenever_it_asks() {
        let cancel = CancelToken::default();
        let other = cancel.clone();
        assert!(!other.is_cancelled());
        cancel.cancel();
        other.cancelled().await;
        assert!(other.is_cancelled());
    }
}
