//! What every request passes first: it gets an id, and whoever sends it is known, or is sent away.

use std::{net::IpAddr, sync::Arc};

use axum::{
    body::Body,
    extract::{MatchedPath, State},
    http::{HeaderValue, Method, Request, Response, StatusCode, Uri, header},
    middleware::Next,
    response::IntoResponse,
};
use bytes::Bytes;
use tokio::sync::watch;
use tracing::warn;

use crate::{
    auth::{audit_log, keyring::Identity},
    http::{
        HttpState,
        connection::ConnectionSlot,
        dashboard,
        extract::{Authenticated, CertificateAlone, shown, unauthorized},
        form::{check_form, check_version, is_of_another_site, may_change},
        response::{ApiError, finish, forbidden},
    },
};

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
    /// Place of the connection among the connections of its address.
    pub(super) place: ConnectionSlot,
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

pub(super) async fn authenticate(
    State(desk): State<Arc<HttpState>>,
    mut request: Request<Body>,
    next: Next,
) -> Response<Body> {
    desk.app.connections.count_command();
    let request_id = request_id(&desk, &request);
    let (proof, peer) = (Credentials::of(&request).proof(), request.extensions().get::<Peer>().cloned());
    let admitted = match check_form(&request).and_then(|()| check_version(&request)) {
        Ok(()) => admit(&desk, proof, peer).await,
        Err(refusal) => Err(refusal),
    };
    let record = RequestAudit::of(&desk, &request);
    let mut response = match admitted {
        Ok(known) => {
            let identity = known.as_ref().map(|known| known.identity.clone());
            if let Some(AuthenticatedUser { identity, by_certificate_alone }) = known {
                request.extensions_mut().insert(Authenticated(identity));
                if by_certificate_alone {
                    request.extensions_mut().insert(CertificateAlone);
                }
            }
            let response = next.run(request).await;
            if let (Some(record), Some(identity)) = (record, identity) {
                record.write(&desk, &identity, &response);
            }
            response
        }
        Err(refusal) => refusal.into_response(),
    };
    if response.status() == StatusCode::BAD_REQUEST && response.extensions().get::<ApiError>().is_none() {
        // What the path or the query is to be is checked before any handler, in words of its own.
        response = ApiError::invalid("the path or the query cannot be read").into_response();
    }
    if let Some(refusal) = response.extensions_mut().remove::<ApiError>() {
        response = refusal.response(request_id.to_str().unwrap_or_default());
    }
    finish(&mut response, &request_id);
    response
}

/// The id that came with the request, or a new one.
fn request_id(desk: &HttpState, request: &Request<Body>) -> HeaderValue {
    let told = request.headers().get("x-request-id");
    let fine = |told: &&HeaderValue| !told.is_empty() && told.len() <= MAX_ID_BYTES && told.to_str().is_ok();
    match told.filter(fine) {
        Some(told) => told.clone(),
        None => {
            let id = format!("req_{}", desk.app.clock.uuid());
            HeaderValue::from_str(&id).expect("a UUID is letters, digits and '-'")
        }
    }
}

/// What of a request says who asks.
struct Credentials {
    key: Option<Bytes>,
    certified: Option<Identity>,
    /// Whether nobody need be known for it.
    is_open: bool,
    /// Tells whether the request may change something and a browser sends it for a page of another
    /// site.
    is_forged: bool,
}

/// Credential that a request shows.
#[derive(Debug, PartialEq, Eq)]
enum Proof {
    /// Session key, which may be wrong.
    Key(Bytes),
    /// Certificate alone. A browser shows its certificate whichever page sends the request.
    Certificate(Identity),
    /// No credential that counts, on a path that needs none.
    Needless,
    /// Certificate that does not count, because a page of another site sends the request.
    Forged,
    /// No credential.
    Missing,
}

impl Credentials {
    fn of(request: &Request<Body>) -> Self {
        let told = request.headers().get(header::AUTHORIZATION).map(HeaderValue::as_bytes);
        Self {
            key: told.and_then(bearer).map(Bytes::copy_from_slice),
            certified: request.extensions().get::<Peer>().and_then(|peer| peer.certified.clone()),
            is_open: OPEN.contains(&request.uri().path()) || dashboard::is_own(request.uri().path()),
            is_forged: may_change(request.method()) && is_of_another_site(request.headers()),
        }
    }

    /// Returns the credential that counts. A key takes precedence over a certificate.
    fn proof(self) -> Proof {
        match (self.key, self.certified) {
            (Some(key), _) => Proof::Key(key),
            (None, Some(identity)) if !self.is_forged => Proof::Certificate(identity),
            _ if self.is_open => Proof::Needless,
            (None, Some(_)) => Proof::Forged,
            (None, None) => Proof::Missing,
        }
    }
}

/// Authenticated sender of a request.
struct AuthenticatedUser {
    identity: Identity,
    by_certificate_alone: bool,
}

/// Who asks.
async fn admit(
    desk: &HttpState,
    proof: Proof,
    peer: Option<Peer>,
) -> Result<Option<AuthenticatedUser>, ApiError> {
    match proof {
        Proof::Key(key) => match desk.access_control.identify(&key) {
            Some(identity) => Ok(Some(AuthenticatedUser { identity, by_certificate_alone: false })),
            None => Err(refuse_key(desk, peer.as_ref()).await),
        },
        Proof::Certificate(identity) => Ok(Some(AuthenticatedUser { identity, by_certificate_alone: true })),
        Proof::Needless => Ok(None),
        Proof::Forged => Err(forbidden(
            "the request comes from a page of another site, and a certificate alone does not allow that",
        )),
        Proof::Missing => Err(unauthorized()),
    }
}

/// The key of `Bearer KEY` (RFC 6750 §2.1).
pub(super) fn bearer(told: &[u8]) -> Option<&[u8]> {
    let (scheme, key) = told.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| key.trim_ascii())
}

/// A wrong key: whoever tries many waits for the answer.
pub(super) async fn refuse_key(desk: &HttpState, peer: Option<&Peer>) -> ApiError {
    let (now, from) = (desk.app.clock.now(), peer.map_or("", |peer| &peer.shown));
    let delay = desk.access_control.wrong_key(peer.and_then(|peer| peer.ip), now);
    desk.app.audit.record(&audit_log::AuditEntry {
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
        desk.app.clock.sleep(delay).await;
    }
    unauthorized()
}

pub(super) async fn no_such_path(uri: Uri) -> ApiError {
    ApiError::not_found(format!("there is no path '{}'", shown(uri.path())))
}

pub(super) async fn no_such_method(method: Method, uri: Uri) -> ApiError {
    ApiError::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "invalid_request",
        format!("{method} is nothing that {} takes", shown(uri.path())),
        "Look into docs/ojs.md for the methods of this path.",
    )
}

/// What is recorded of a request that may change something; what workers say of their jobs is not, as over RESP.
struct RequestAudit {
    what: String,
    from: String,
}

/// Routes that workers use all the time. The list has routes and no paths, because a name in a path
/// may be any of these words.
const OF_WORKERS: [&str; 11] = [
    "/ojs/v1/jobs/fetch",
    "/ojs/v1/jobs/{id}/ack",
    "/ojs/v1/jobs/{id}/nack",
    "/ojs/v1/jobs/{id}/fail",
    "/ojs/v1/jobs/{id}/progress",
    "/ojs/v1/workers/register",
    "/ojs/v1/workers/fetch",
    "/ojs/v1/workers/ack",
    "/ojs/v1/workers/nack",
    "/ojs/v1/workers/heartbeat",
    "/ojs/v1/workers/beat",
];

impl RequestAudit {
    fn of(desk: &HttpState, request: &Request<Body>) -> Option<Self> {
        let path = request.uri().path();
        let route = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
        let is_change =
            may_change(request.method()) && !route.is_some_and(|route| OF_WORKERS.contains(&route));
        let from = request.extensions().get::<Peer>().map_or_else(String::new, |peer| peer.shown.clone());
        (desk.app.audit.is_on() && is_change)
            .then(|| Self { what: format!("{} {}", request.method(), shown(path)), from })
    }

    fn write(self, desk: &HttpState, identity: &Identity, response: &Response<Body>) {
        let refusal = response.extensions().get::<ApiError>();
        let outcome = refusal.map_or_else(|| "OK".to_owned(), |refusal| format!("ERR {}", refusal.message));
        desk.app.audit.record(&audit_log::AuditEntry {
            at: desk.app.clock.now(),
            who: Some(&identity.name),
            role: Some(identity.role),
            from: &self.from,
            command: &self.what,
            target: None,
            outcome: &outcome,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::{Credentials, Proof};
    use crate::auth::keyring::{Identity, Role};

    #[test]
    fn a_key_that_is_sent_decides_and_a_certificate_is_no_proof_for_another_site() {
        let alice = || Identity { role: Role::Client, name: "alice".into() };
        let proof = |key: Option<&'static [u8]>, has_certificate: bool, is_open, is_forged| {
            let certified = has_certificate.then(alice);
            Credentials { key: key.map(Into::into), certified, is_open, is_forged }.proof()
        };
        let key = Some(&b"any"[..]);
        for is_forged in [false, true] {
            assert_eq!(proof(key, true, false, is_forged), Proof::Key("any".into()));
            assert_eq!(proof(key, false, true, is_forged), Proof::Key("any".into()));
            assert_eq!(proof(None, false, false, is_forged), Proof::Missing);
            assert_eq!(proof(None, false, true, is_forged), Proof::Needless);
        }
        assert_eq!(proof(None, true, false, false), Proof::Certificate(alice()));
        assert_eq!(proof(None, true, false, true), Proof::Forged);
        assert_eq!(proof(None, true, true, true), Proof::Needless);
    }
}
