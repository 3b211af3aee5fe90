//! A word to everything that works on a job: it is not ours any more.

use tokio::sync::watch;

/// Heard by all who hold a clone of it, now or later; never taken back.
#[derive(Debug, Clone)]
pub(crate) struct Stop(watch::Sender<bool>);

impl Default for Stop {
    fn default() -> Self {
        Self(watch::Sender::new(false))
    }
}

impl Stop {
    /// Calls everybody off.
    pub(crate) fn call(&self) {
        self.0.send_replace(true);
    }

    /// Whether that has happened.
    pub(crate) fn is_called(&self) -> bool {
        *self.0.borrow()
    }

    /// When it happens.
    pub(crate) async fn called(&self) {
        // It cannot fail: the sender is ours.
        drop(self.0.subscribe().wait_for(|called| *called).await);
    }
}

#[cfg(test)]
mod tests {
    use super::Stop;

    #[tokio::test]
    async fn every_clone_hears_it_whenever_it_asks() {
        let stop = Stop::default();
        let other = stop.clone();
        assert!(!other.is_called());
        stop.call();
        other.called().await;
        assert!(other.is_called());
    }
}
