//! One connection: HTTP/1.1 on whatever came in, until it closes or agq stops.

use std::{sync::Arc, time::Duration};

use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    io::{AsyncRead, DuplexStream, copy, duplex, join},
    sync::watch,
    task::JoinSet,
    time::timeout,
};
use tracing::debug;

use super::{Desk, gate::Peer};
use crate::server::Accepted;

/// How long a request under way may take once agq stops.
const LINGER: Duration = Duration::from_secs(2);
/// Most bytes that are read ahead of a connection.
const READ_AHEAD: usize = 64 * 1024;

/// Serves a connection to its end.
pub(super) async fn attend(
    desk: Arc<Desk>,
    router: Router,
    (accepted, number): (Accepted, u64),
    mut stop: watch::Receiver<bool>,
) {
    let Accepted { reader, writer, ip, shown, certified, guest: _place } = accepted;
    let (closed, has_closed) = watch::channel(false);
    let (reader, reading) = watched(reader, closed);
    // Dropped, it ends what goes on in it.
    let mut aside = JoinSet::new();
    aside.spawn(reading);
    let router = router.layer(Extension(Peer { number, ip, shown, certified, has_closed }));
    let mut builder = http1::Builder::new();
    // Whoever has sent all and closes their side is still owed the answer.
    builder.timer(TokioTimer::new()).half_close(true).pipeline_flush(true).max_buf_size(READ_AHEAD);
    if desk.house.settings.frame_timeout_ms > 0 {
        builder.header_read_timeout(Duration::from_millis(desk.house.settings.frame_timeout_ms));
    }
    let serving =
        builder.serve_connection(TokioIo::new(join(reader, writer)), TowerToHyperService::new(router));
    tokio::pin!(serving);
    let outcome = tokio::select! {
        outcome = serving.as_mut() => outcome,
        _ = stop.changed() => {
            serving.as_mut().graceful_shutdown();
            timeout(LINGER, serving).await.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = outcome {
        debug!(%error, "an HTTP connection broke");
    }
}

/// What comes, and the work of reading it: while a request is under way, nobody else would notice that no more will come.
fn watched(
    mut from: Box<dyn AsyncRead + Send + Unpin>,
    closed: watch::Sender<bool>,
) -> (DuplexStream, impl Future<Output = ()> + Send) {
    let (mut to, reader) = duplex(READ_AHEAD);
    let reading = async move {
        // An end and an error are the same here: nothing more comes.
        let _ended = copy(&mut from, &mut to).await.is_ok();
        closed.send_replace(true);
    };
    (reader, reading)
}

/// What someone is told for whom there is no place.
pub(super) fn farewell(reason: &str) -> String {
    let body = format!(r#"{{"error":{{"code":"rate_limited","message":{reason:?},"retryable":true}}}}"#);
    format!(
        "HTTP/1.1 429 Too Many Requests\r\nOJS-Version: 1.0\r\nContent-Type: application/openjobspec+json\r\nRetry-After: 1\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}
