//! Serves one HTTP/1.1 connection until the client closes it or agq stops.

use std::{error::Error, io, sync::Arc, time::Duration};

use axum::{Extension, Router};
use hyper::{rt::Timer, server::conn::http1};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    io::{AsyncRead, DuplexStream, copy, duplex, join, sink},
    sync::watch,
    task::JoinSet,
    time::timeout,
};
use tracing::{debug, warn};

use crate::{
    http::{
        HttpState,
        peer::{ConnectionSlot, Peer},
    },
    net::{ClientStream, SlowClient, TimeoutWriter},
};

/// Maximum time for running requests after agq begins to stop.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(2);
/// Maximum time to read from a client after the last answer. Unread bytes would make the system
/// reset the connection, and a reset would discard the answer.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of bytes that agq reads ahead of the HTTP parser.
const READ_AHEAD_BYTES: usize = 64 * 1024;

pub(super) async fn serve_connection(
    state: Arc<HttpState>,
    router: Router,
    (accepted, number): (ClientStream, u64),
    mut stop: watch::Receiver<bool>,
) {
    let ClientStream { reader, writer, ip, shown, certified, permit, process: _ } = accepted;
    let slot = ConnectionSlot::of(permit);
    let (closing, has_closed) = watch::channel(false);
    let (stream, reading) = read_ahead(reader, closing);
    // Dropping the set aborts the reading task.
    let mut read_task = JoinSet::new();
    read_task.spawn(reading);
    let peer = Peer { number, ip, shown: shown.clone(), certified, has_closed, slot: slot.clone() };
    let router = router.layer(Extension(peer));
    let writer = TimeoutWriter::new(writer, Duration::from_millis(state.app.settings.send_timeout_ms));
    let outcome = serve_requests(&state, router, (stream, writer), &mut stop).await;
    match outcome {
        Err(error) if is_slow_client(&error) => {
            warn!(from = shown, error = %cause(&error), "a client is disconnected");
            return;
        }
        Err(error) => debug!(%error, "an HTTP connection failed"),
        Ok(()) => {}
    }
    if !*stop.borrow() {
        tokio::select! {
            closed = timeout(CLOSE_TIMEOUT, read_task.join_next()) => if closed.is_err() {
                debug!(from = shown, "a client did not close its connection");
            },
            _ = stop.changed() => {}
        }
    }
    slot.give_back();
}

/// Answers requests until the connection ends, and then closes `reader` and `writer`.
async fn serve_requests(
    state: &HttpState,
    router: Router,
    (reader, writer): (DuplexStream, TimeoutWriter),
    stop: &mut watch::Receiver<bool>,
) -> Result<(), hyper::Error> {
    let builder = builder(TokioTimer::new(), state.app.settings.frame_timeout_ms);
    let serving =
        builder.serve_connection(TokioIo::new(join(reader, writer)), TowerToHyperService::new(router));
    tokio::pin!(serving);
    tokio::select! {
        outcome = serving.as_mut() => outcome,
        _ = stop.changed() => {
            serving.as_mut().graceful_shutdown();
            timeout(SHUTDOWN_GRACE, serving).await.unwrap_or(Ok(()))
        }
    }
}

/// Returns the settings of connections. `head_timeout_ms` bounds the time in which the head of a
/// request arrives; zero means no bound.
fn builder(timer: impl Timer + Send + Sync + 'static, head_timeout_ms: u64) -> http1::Builder {
    let mut builder = http1::Builder::new();
    // A client that has closed its sending side still gets the answer.
    builder.timer(timer).half_close(true).max_buf_size(READ_AHEAD_BYTES);
    // Without this call, hyper has a bound of its own.
    builder.header_read_timeout((head_timeout_ms > 0).then(|| Duration::from_millis(head_timeout_ms)));
    builder
}

fn cause(error: &hyper::Error) -> String {
    error.source().map_or_else(|| error.to_string(), ToString::to_string)
}

fn is_slow_client(error: &hyper::Error) -> bool {
    error.source().and_then(|cause| cause.downcast_ref::<io::Error>()).is_some_and(SlowClient::is_behind)
}

/// Returns a stream with the bytes of `from`, and the task that reads them. The task sets `closing`
/// at the end of the input, which the parser would not notice during a request. After that, the
/// task discards bytes.
fn read_ahead(
    mut from: Box<dyn AsyncRead + Send + Unpin>,
    closing: watch::Sender<bool>,
) -> (DuplexStream, impl Future<Output = ()> + Send) {
    let (mut to, stream) = duplex(READ_AHEAD_BYTES);
    let reading = async move {
        // End of input and read errors are equal here: no more bytes arrive.
        let _ended = copy(&mut from, &mut to).await.is_ok();
        closing.send_replace(true);
        drop(to);
        let _ended = copy(&mut from, &mut sink()).await.is_ok();
    };
    (stream, reading)
}

/// Formats the only answer to a client whose connection is over a limit.
pub(super) fn too_many_connections(reason: &str) -> String {
    let body = format!(r#"{{"error":{{"code":"rate_limited","message":{reason:?},"retryable":true}}}}"#);
    format!(
        "HTTP/1.1 429 Too Many Requests\r\nOJS-Version: 1.0\r\nContent-Type: application/openjobspec+json\r\nRetry-After: 1\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

#[cfg(test)]
mod tests {
    use std::{
        pin::Pin,
        sync::{Arc, Mutex},
        task::{Context, Poll},
        time::{Duration, Instant},
    };

    use axum::Router;
    use hyper::rt::{Sleep, Timer};
    use hyper_util::{rt::TokioIo, service::TowerToHyperService};
    use tokio::io::{AsyncWriteExt, duplex};

    use super::builder;

    /// Timer whose time does not advance, and which records the durations of all waits.
    #[derive(Clone)]
    struct StoppedTimer {
        now: Instant,
        waits: Arc<Mutex<Vec<Duration>>>,
    }

    impl Timer for StoppedTimer {
        fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
            self.waits.lock().unwrap().push(duration);
            Box::pin(EndlessSleep)
        }

        fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
            self.sleep(deadline - self.now)
        }

        fn now(&self) -> Instant {
            self.now
        }
    }

    struct EndlessSleep;

    impl Future for EndlessSleep {
        type Output = ();

        fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
            Poll::Pending
        }
    }

    impl Sleep for EndlessSleep {}

    /// Serves one request, and returns the bounds of its head.
    async fn bounds(head_timeout_ms: u64) -> Vec<Duration> {
        let timer = StoppedTimer { now: Instant::now(), waits: Arc::default() };
        let (mut client, server) = duplex(1024);
        client.write_all(b"GET / HTTP/1.1\r\nHost: agq\r\nConnection: close\r\n\r\n").await.unwrap();
        let router: Router = Router::new();
        let builder = builder(timer.clone(), head_timeout_ms);
        builder.serve_connection(TokioIo::new(server), TowerToHyperService::new(router)).await.unwrap();
        timer.waits.lock().unwrap().clone()
    }

    #[tokio::test]
    async fn head_of_a_request_has_the_configured_time_and_zero_is_no_bound() {
        assert_eq!(bounds(5000).await, [Duration::from_secs(5)]);
        assert!(bounds(0).await.is_empty());
    }
}
