//! Authentication of requests. The middleware [`authenticate`] gives every request an id and proves
//! the identity of the sender by a bearer key or a certificate. The middleware refuses requests
//! without a valid credential. Handlers get the identity and the role by the extractors in
//! [`role`], and users of the dashboard by their [`session`].

mod audit;
pub(super) mod credentials;
pub(super) mod role;
pub(super) mod session;

use axum::{
    body::Body,
    extract::{RawPathParams, rejection::RawPathParamsRejection},
    http::{HeaderValue, Request, Response, StatusCode},
    middleware::Next,
    response::IntoResponse,
};
use tracing::warn;

use self::{
    audit::RequestAudit,
    credentials::{Credentials, Proof},
    role::{Authenticated, CertificateAlone, refuse_agent, unauthorized},
};
use crate::{
    auth::{audit_log::AuditEntry, keyring::Identity},
    http::{
        HttpState, Shared,
        form::{check_form, check_version},
        peer::Peer,
        response::{ApiError, HttpResult, finish, forbidden},
    },
};

/// Maximum number of bytes of a request id that agq accepts from a client.
const MAX_ID_BYTES: usize = 128;

pub(super) async fn authenticate(
    state: Shared,
    params: Result<RawPathParams, RawPathParamsRejection>,
    mut request: Request<Body>,
    next: Next,
) -> Response<Body> {
    state.app.connections.count_command();
    let request_id = request_id(&state, &request);
    let (proof, peer) = (Credentials::of(&request).proof(), request.extensions().get::<Peer>().cloned());
    let admitted = match check_form(&request).and_then(|()| check_version(&request)) {
        Ok(()) => admit(&state, proof, peer).await,
        Err(refusal) => Err(refusal),
    };
    let mut record = None;
    let mut response = match admitted {
        Ok(None) => next.run(request).await,
        Ok(Some(user)) => {
            record = RequestAudit::of(&state.app, &user.identity, &request, params.as_ref().ok());
            match user.check() {
                Ok(()) => {
                    request.extensions_mut().insert(Authenticated(user.identity));
                    if user.by_certificate_alone {
                        request.extensions_mut().insert(CertificateAlone);
                    }
                    next.run(request).await
                }
                Err(refusal) => refusal.into_response(),
            }
        }
        Err(refusal) => refusal.into_response(),
    };
    if response.status() == StatusCode::BAD_REQUEST && response.extensions().get::<ApiError>().is_none() {
        // An extractor of axum has refused the path or the query, with a body in its own format.
        response = ApiError::invalid("the path or the query cannot be read").into_response();
    }
    if let Some(record) = record {
        record.write(&response);
    }
    if let Some(refusal) = response.extensions_mut().remove::<ApiError>() {
        response = refusal.response(request_id.to_str().unwrap_or_default());
    }
    finish(&mut response, &request_id);
    response
}

/// Returns the `X-Request-Id` of the request if it is usable, and a new id otherwise.
fn request_id(state: &HttpState, request: &Request<Body>) -> HeaderValue {
    let received = request.headers().get("x-request-id");
    let is_usable = |id: &&HeaderValue| !id.is_empty() && id.len() <= MAX_ID_BYTES && id.to_str().is_ok();
    match received.filter(is_usable) {
        Some(id) => id.clone(),
        None => {
            let id = format!("req_{}", state.app.clock.uuid());
            HeaderValue::from_str(&id).expect("a UUID is letters, digits and '-'")
        }
    }
}

struct AuthenticatedUser {
    identity: Identity,
    by_certificate_alone: bool,
    /// True if a page of another site sends the request with the certificate of the user.
    is_forged: bool,
}

impl AuthenticatedUser {
    fn check(&self) -> HttpResult<()> {
        if self.is_forged {
            return Err(forbidden(
                "the request comes from a page of another site, and a certificate alone does not allow that",
            ));
        }
        refuse_agent(&self.identity)
    }
}

/// Returns the user that `proof` identifies, or `None` on a path that needs no credential.
async fn admit(state: &HttpState, proof: Proof, peer: Option<Peer>) -> HttpResult<Option<AuthenticatedUser>> {
    let (identity, by_certificate_alone, is_forged) = match proof {
        Proof::Key(key) => match state.access_control.keyring.identify(&key) {
            Some(identity) => (identity, false, false),
            None => return Err(refuse_key(state, peer.as_ref()).await),
        },
        Proof::Certificate(identity) => (identity, true, false),
        Proof::Forged(identity) => (identity, true, true),
        Proof::Needless => return Ok(None),
        Proof::Missing => return Err(unauthorized()),
    };
    Ok(Some(AuthenticatedUser { identity, by_certificate_alone, is_forged }))
}

/// Returns the refusal after a delay that grows with the number of wrong keys from the address.
pub(super) async fn refuse_key(state: &HttpState, peer: Option<&Peer>) -> ApiError {
    let (now, from) = (state.app.clock.now(), peer.map_or("", |peer| &peer.shown));
    let delay = state.access_control.auth_guard.wrong_key(peer.and_then(|peer| peer.ip), now);
    state.app.audit.record(&AuditEntry::wrong_key(now, from));
    if !delay.is_zero() {
        warn!(from, delay_ms = delay.as_millis(), "many wrong session keys come from here");
        state.app.clock.sleep(delay).await;
    }
    unauthorized()
}
