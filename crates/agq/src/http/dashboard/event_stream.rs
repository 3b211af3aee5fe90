//! What the dashboard hears as it happens (server-sent events, HTML living standard §9.2): that something has changed, so that it
//! looks again, and how many jobs there are.

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
    app::House,
    http::{
        auth::Peer,
        stream::{self, Leave},
    },
    registry::pubsub::{By, Delivery},
};

/// Changes that come closer together are told as one.
const APART: Duration = Duration::from_millis(500);
/// How often the numbers are told.
const EVERY: Duration = Duration::from_secs(2);

/// Who listens; dropped, they do no more.
struct Listener {
    leave: Leave,
    house: Arc<House>,
    number: u64,
    heard: mpsc::Receiver<Delivery>,
    peer: Peer,
    /// When the numbers were told last; they are the first that is told.
    told_at: Option<Timestamp>,
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.house.hub.leave(self.number);
        self.house.tell_whether_heard();
    }
}

/// Answers with an event stream that goes on until the browser leaves, the browser falls too far
/// behind, or the session ends.
pub(super) fn events(house: &Arc<House>, peer: Peer, leave: Leave) -> Response<Body> {
    let heard = house.hub.join(peer.number, Arc::new(Notify::new()));
    let (house, number) = (Arc::clone(house), peer.number);
    let listener = Listener { leave, house: Arc::clone(&house), number, heard, peer, told_at: None };
    for channel in [JOB_UPDATES, WORKER_UPDATES] {
        house.hub.subscribe(listener.number, By::Name, &Bytes::from_static(channel.as_bytes()));
    }
    house.tell_whether_heard();
    stream::response(unfold(listener, |mut listener| async move {
        let text = listener.next().await?;
        Some((text, listener))
    }))
}

impl Listener {
    /// Returns the next event, or `None` if the browser no longer listens or no longer may listen.
    async fn next(&mut self) -> Option<String> {
        let told = self.happens().await?;
        (self.leave.is_admitted)().then_some(told)
    }

    /// Returns the next event without a check of the permission, or `None` if the browser no longer
    /// listens.
    async fn happens(&mut self) -> Option<String> {
        let clock = self.house.clock.clone();
        let since = self.told_at.map_or(EVERY, |at| Duration::from_millis(clock.now().ms_since(at)));
        let left = EVERY.saturating_sub(since);
        if left.is_zero() {
            return self.totals().await;
        }
        tokio::select! {
            () = self.peer.gone() => None,
            heard = self.heard.recv() => {
                heard?;
                clock.sleep(APART).await;
                while self.heard.try_recv().is_ok() {}
                Some("event: changed\ndata: {}\n\n".into())
            }
            () = clock.sleep(left) => self.totals().await,
        }
    }

    async fn totals(&mut self) -> Option<String> {
        self.told_at = Some(self.house.clock.now());
        let totals = self.house.store.totals().await.ok()?;
        let (ever, now) =
            (|status: Status| totals.ever[status as usize], |status: Status| totals.now[status as usize]);
        let data = json!({
            "at": self.house.clock.now().0,
            "completed": ever(Status::Completed),
            "failed": ever(Status::Failed) + ever(Status::Dead),
            "pending": now(Status::Pending),
            "running": now(Status::Running),
        });
        Some(format!("event: totals\ndata: {data}\n\n"))
    }
}
