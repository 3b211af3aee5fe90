//! Event stream of the dashboard (server-sent events, HTML living standard §9.2). A `changed` event
//! makes the page reload its data; a `totals` event has the number of jobs.

use std::{sync::Arc, time::Duration};

use agenix_protocol::{
    documents::{JOB_UPDATES, Status, WORKER_UPDATES},
    time::Timestamp,
};
use axum::{body::Body, http::Response};
use bytes::Bytes;
use futures_util::stream::unfold;
use serde_json::json;
use tokio::sync::{Notify, mpsc};

use crate::{
    app::AppState,
    http::{
        peer::Peer,
        stream::{self, StreamPermit},
    },
    registry::pubsub::{QueuedMessage, SubscriptionKind},
};

/// Time within which several changes become one event.
const COALESCE_WITHIN: Duration = Duration::from_millis(500);
/// Interval of the `totals` events.
const TOTALS_EVERY: Duration = Duration::from_secs(2);

/// Dropping the listener ends the subscription.
struct DashboardListener {
    permit: StreamPermit,
    app: Arc<AppState>,
    number: u64,
    messages: mpsc::Receiver<QueuedMessage>,
    peer: Peer,
    /// Time of the last `totals` event. The stream begins with a `totals` event.
    totals_at: Option<Timestamp>,
}

impl Drop for DashboardListener {
    fn drop(&mut self) {
        self.app.pubsub.leave(self.number);
        self.app.update_event_interest();
    }
}

/// The stream ends when the browser leaves or falls too far behind, or the session ends.
pub(super) fn events(app: &Arc<AppState>, peer: Peer, permit: StreamPermit) -> Response<Body> {
    let messages = app.pubsub.join(peer.number, Arc::new(Notify::new()));
    let (app, number) = (Arc::clone(app), peer.number);
    let listener =
        DashboardListener { permit, app: Arc::clone(&app), number, messages, peer, totals_at: None };
    for channel in [JOB_UPDATES, WORKER_UPDATES] {
        let name = Bytes::from_static(channel.as_bytes());
        app.pubsub.subscribe(listener.number, SubscriptionKind::Name, &name);
    }
    app.update_event_interest();
    stream::response(unfold(listener, |mut listener| async move {
        let text = listener.next().await?;
        Some((text, listener))
    }))
}

impl DashboardListener {
    /// Returns the next event, or `None` if the browser has left or its session has ended.
    async fn next(&mut self) -> Option<String> {
        let event = self.next_unchecked().await?;
        (self.permit.is_admitted)().then_some(event)
    }

    async fn next_unchecked(&mut self) -> Option<String> {
        let clock = self.app.clock.clone();
        let since = self.totals_at.map_or(TOTALS_EVERY, |at| Duration::from_millis(clock.now().ms_since(at)));
        let left = TOTALS_EVERY.saturating_sub(since);
        if left.is_zero() {
            return self.totals().await;
        }
        tokio::select! {
            () = self.peer.gone() => None,
            message = self.messages.recv() => {
                message?;
                clock.sleep(COALESCE_WITHIN).await;
                while self.messages.try_recv().is_ok() {}
                Some("event: changed\ndata: {}\n\n".into())
            }
            () = clock.sleep(left) => self.totals().await,
        }
    }

    async fn totals(&mut self) -> Option<String> {
        self.totals_at = Some(self.app.clock.now());
        let totals = self.app.store.totals().await.ok()?;
        let (ever, now) =
            (|status: Status| totals.ever[status as usize], |status: Status| totals.now[status as usize]);
        let data = json!({
            "at": self.app.clock.now().0,
            "completed": ever(Status::Completed),
            "failed": ever(Status::Failed) + ever(Status::Dead),
            "pending": now(Status::Pending),
            "running": now(Status::Running),
        });
        Some(format!("event: totals\ndata: {data}\n\n"))
    }
}
