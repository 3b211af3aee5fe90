//! Progress notifications, for clients that ask for them: at most one in a second, and one at least
//! every ten seconds, because clients give up on a silent call.

use std::time::Duration;

use agenix_protocol::{documents::ActionStatus, time::Timestamp};
use rmcp::{
    RoleServer,
    model::{ProgressNotificationParam, ProgressToken},
    service::{Peer, RequestContext},
};
use tokio::time::Instant;

use crate::{action, settings::McpServerSettings};

const MIN_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(10);

/// Step of a notification without progress, because the value has to increase.
const STEP: f64 = 0.001;

/// Notifications of one call.
pub(crate) struct ProgressNotifier {
    to: Option<(Peer<RoleServer>, ProgressToken)>,
    sent_at: Option<Instant>,
    value: f64,
    now: fn() -> Timestamp,
}

impl ProgressNotifier {
    pub(crate) fn of(context: &RequestContext<RoleServer>, settings: &McpServerSettings) -> Self {
        let to = context.meta.get_progress_token().map(|token| (context.peer.clone(), token));
        Self { to, sent_at: None, value: 0.0, now: settings.now }
    }

    /// Sends a notification, if one is due.
    pub(crate) async fn show(&mut self, status: &ActionStatus) {
        let Some((peer, token)) = &self.to else { return };
        #[expect(clippy::cast_precision_loss, reason = "no action has so many jobs")]
        let (ended, total) = (status.ended() as f64, status.total_jobs as f64);
        let pause = self.sent_at.map_or(Duration::MAX, |at| at.elapsed());
        let has_news = ended > self.value.floor() || self.sent_at.is_none();
        if pause < if has_news { MIN_PAUSE } else { MAX_PAUSE } {
            return;
        }
        self.value = if ended > self.value { ended } else { self.value + STEP };
        self.sent_at = Some(Instant::now());
        let text = action::progress_text(&action::of_status(status, (self.now)()));
        let notification =
            ProgressNotificationParam::new(token.clone(), self.value).with_total(total).with_message(text);
        // A client that has gone does not read the reply either.
        let _gone = peer.notify_progress(notification).await;
    }
}
