//! Responses with server-sent events (HTML living standard §9.2), and the limit on their number.

use std::convert::Infallible;

use axum::{
    body::Body,
    http::{HeaderValue, Response, StatusCode, header},
};
use bytes::Bytes;
use futures_util::{Stream, StreamExt};

use crate::{
    http::{
        HttpState,
        peer::Peer,
        response::{ApiError, HttpResult},
    },
    net::ConnectionPermit,
};

/// Permission to receive an event stream, and its place under the limit of the address.
pub(super) struct StreamPermit {
    /// Called before each event, because a session may end, or a key be withdrawn, meanwhile.
    pub(super) is_admitted: Box<dyn Fn() -> bool + Send>,
    _permit: Option<ConnectionPermit>,
}

impl StreamPermit {
    /// Takes a place among the event streams, and gives back that of the connection.
    pub(super) fn take(
        state: &HttpState,
        peer: &Peer,
        is_admitted: Box<dyn Fn() -> bool + Send>,
    ) -> HttpResult<Self> {
        let permit = state.access_control.admit_stream(peer.ip).map_err(|reason| {
            let hint = "Close streams and dashboards that are not in use, or raise --max-connections-per-ip.";
            ApiError::new(StatusCode::TOO_MANY_REQUESTS, "rate_limited", reason, hint)
        })?;
        peer.slot.give_back();
        Ok(Self { is_admitted, _permit: permit })
    }
}

pub(super) fn response(texts: impl Stream<Item = String> + Send + 'static) -> Response<Body> {
    let mut response =
        Response::new(Body::from_stream(texts.map(|text| Ok::<_, Infallible>(Bytes::from(text)))));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // nginx would otherwise hold back events until they fill a buffer.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    // The connection has given its place back, so that it must not serve another request.
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

#[cfg(test)]
mod tests {
    use futures_util::stream;

    #[tokio::test]
    async fn event_stream_is_neither_stored_nor_held_back_by_a_proxy() {
        let response = super::response(stream::empty());
        let header = |name: &str| response.headers()[name].to_str().unwrap();
        assert_eq!(header("content-type"), "text/event-stream");
        assert_eq!((header("cache-control"), header("x-accel-buffering")), ("no-store", "no"));
    }
}
