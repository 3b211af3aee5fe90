//! What every request passes first: it gets an id, and whoever sends it is known, or is sent away.

use std::{net::IpAddr, sync::Arc};

use axum::{
    body::Body,
    extract::State,
    http::{HeaderValue, Method, Request, Response, StatusCode, Uri, header},
    middleware::Next,
    response::IntoResponse,
};
use bytes::Bytes;
use tokio::sync::watch;
use tracing::warn;

use super::{
    Desk,
    answer::{Refusal, finish},
    asked::{Guest, shown, unauthorized},
    dashboard,
};
use crate::{audit, keyring::Identity};

/// Where a request comes from.
#[derive(Debug, Clone)]
pub(super) struct Peer {
    /// The number of the connection.
    pub(super) number: u64,
    /// None for a Unix socket.
    pub(super) ip: Option<IpAddr>,
    pub(super) shown: String,
    /// Who it is by its certificate.
    pub(super) certified: Option<Identity>,
    /// Whether nothing more will come from there.
    pub(super) has_closed: watch::Receiver<bool>,
}

impl Peer {
    /// Waits until nothing more will come.
    pub(super) async fn gone(&self) {
        // Without the reader nobody is there.
        let _ended = self.has_closed.clone().wait_for(|closed| *closed).await.is_ok();
    }
}

/// Whatever these answer is no secret: probes have no keys.
const OPEN: [&str; 3] = ["/health", "/ready", "/ojs/v1/health"];
/// Most bytes of an id that came with a request.
const MAX_ID_BYTES: usize = 128;

pub(super) async fn pass(
    State(desk): State<Arc<Desk>>,
    mut request: Request<Body>,
    next: Next,
) -> Response<Body> {
    desk.house.directory.count_command();
    let request_id = request_id(&desk, &request);
    let admitted = match check_version(&request) {
        Ok(()) => admit(&desk, Shown::of(&request)).await,
        Err(refusal) => Err(refusal),
    };
    let record = Record::of(&desk, &request);
    let mut response = match admitted {
        Ok(guest) => {
            let identity = guest.as_ref().map(|guest| guest.0.clone());
            if let Some(guest) = guest {
                request.extensions_mut().insert(guest);
            }
            let response = next.run(request).await;
            if let (Some(record), Some(identity)) = (record, identity) {
                record.write(&desk, &identity, &response);
            }
            response
        }
        Err(refusal) => refusal.into_response(),
    };
    if response.status() == StatusCode::BAD_REQUEST && response.extensions().get::<Refusal>().is_none() {
        // What the path or the query is to be is checked before any handler, in words of its own.
        response = Refusal::invalid("the path or the query cannot be read").into_response();
    }
    if let Some(refusal) = response.extensions_mut().remove::<Refusal>() {
        response = refusal.response(request_id.to_str().unwrap_or_default());
    }
    finish(&mut response, &request_id);
    response
}

/// The id that came with the request, or a new one.
fn request_id(desk: &Desk, request: &Request<Body>) -> HeaderValue {
    let told = request.headers().get("x-request-id");
    let fine = |told: &&HeaderValue| !told.is_empty() && told.len() <= MAX_ID_BYTES && told.to_str().is_ok();
    match told.filter(fine) {
        Some(told) => told.clone(),
        None => {
            let id = format!("req_{}", desk.house.clock.uuid());
            HeaderValue::from_str(&id).expect("a UUID is letters, digits and '-'")
        }
    }
}

/// What of a request says who asks.
struct Shown {
    peer: Option<Peer>,
    key: Option<Bytes>,
    /// Whether nobody need be known for it.
    is_open: bool,
}

impl Shown {
    fn of(request: &Request<Body>) -> Self {
        let told = request.headers().get(header::AUTHORIZATION).map(HeaderValue::as_bytes);
        Self {
            peer: request.extensions().get::<Peer>().cloned(),
            key: told.and_then(bearer).map(Bytes::copy_from_slice),
            is_open: OPEN.contains(&request.uri().path()) || dashboard::is_own(request.uri().path()),
        }
    }
}

/// Who asks.
async fn admit(desk: &Desk, shown: Shown) -> Result<Option<Guest>, Refusal> {
    let Shown { peer, key, is_open } = shown;
    if let Some(identity) = peer.as_ref().and_then(|peer| peer.certified.clone()) {
        return Ok(Some(Guest(identity)));
    }
    let Some(key) = key else { return if is_open { Ok(None) } else { Err(unauthorized()) } };
    match desk.door.identify(&key) {
        Some(identity) => Ok(Some(Guest(identity))),
        None => Err(refuse_key(desk, peer.as_ref()).await),
    }
}

/// The key of `Bearer KEY` (RFC 6750 §2.1).
fn bearer(told: &[u8]) -> Option<&[u8]> {
    let (scheme, key) = told.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| key.trim_ascii())
}

/// A wrong key: whoever tries many waits for the answer.
pub(super) async fn refuse_key(desk: &Desk, peer: Option<&Peer>) -> Refusal {
    let (now, from) = (desk.house.clock.now(), peer.map_or("", |peer| &peer.shown));
    let delay = desk.door.wrong_key(peer.and_then(|peer| peer.ip), now);
    desk.house.audit.record(&audit::Entry {
        at: now,
        who: None,
        role: None,
        from,
        command: "AUTH",
        target: None,
        outcome: "ERR Invalid session key",
    });
    if !delay.is_zero() {
        warn!(from, delay_ms = delay.as_millis(), "many wrong session keys come from here");
        desk.house.clock.sleep(delay).await;
    }
    unauthorized()
}

/// Whoever says which version they speak speaks this one.
fn check_version(request: &Request<Body>) -> Result<(), Refusal> {
    let told = request.headers().get("ojs-version").and_then(|told| told.to_str().ok());
    let Some(told) = told.filter(|told| *told != "1" && !told.starts_with("1.")) else { return Ok(()) };
    Err(Refusal::new(
        StatusCode::UNPROCESSABLE_ENTITY,
        "unsupported",
        format!("OJS-Version is '{}', and agq speaks 1.0", shown(told)),
        "Leave the header out, or say 1.0.",
    ))
}

pub(super) async fn no_such_path(uri: Uri) -> Refusal {
    Refusal::not_found(format!("there is no path '{}'", shown(uri.path())))
}

pub(super) async fn no_such_method(method: Method, uri: Uri) -> Refusal {
    Refusal::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "invalid_request",
        format!("{method} is nothing that {} takes", shown(uri.path())),
        "Look into docs/ojs.md for the methods of this path.",
    )
}

/// What is recorded of a request that may change something; what workers say of their jobs is not, as over RESP.
struct Record {
    what: String,
    from: String,
}

/// What workers ask and say all the time.
const OF_WORKERS: [&str; 8] = ["fetch", "ack", "nack", "fail", "heartbeat", "beat", "progress", "register"];

impl Record {
    fn of(desk: &Desk, request: &Request<Body>) -> Option<Self> {
        let path = request.uri().path();
        let last = path.rsplit('/').next().unwrap_or_default();
        let is_change =
            !matches!(*request.method(), Method::GET | Method::HEAD) && !OF_WORKERS.contains(&last);
        let from = request.extensions().get::<Peer>().map_or_else(String::new, |peer| peer.shown.clone());
        (desk.house.audit.is_on() && is_change)
            .then(|| Self { what: format!("{} {}", request.method(), shown(path)), from })
    }

    fn write(self, desk: &Desk, identity: &Identity, response: &Response<Body>) {
        let refusal = response.extensions().get::<Refusal>();
        let outcome = refusal.map_or_else(|| "OK".to_owned(), |refusal| format!("ERR {}", refusal.message));
        desk.house.audit.record(&audit::Entry {
            at: desk.house.clock.now(),
            who: Some(&identity.name),
            role: Some(identity.role),
            from: &self.from,
            command: &self.what,
            target: None,
            outcome: &outcome,
        });
    }
}
