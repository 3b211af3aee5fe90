//! Credentials of a request, before agq checks them: the bearer key, or the certificate of the
//! connection.

use axum::{
    body::Body,
    http::{HeaderValue, Request, header},
};
use bytes::Bytes;

use crate::{
    auth::keyring::{Identity, Role},
    http::{
        form::{is_of_another_site, may_change},
        peer::Peer,
    },
};

/// Paths of probes. Probes have no keys, so the answers of these paths hold no secret.
const PROBE_PATHS: [&str; 3] = ["/health", "/ready", "/ojs/v1/health"];

/// Parts of a request from which agq derives the identity of the sender.
pub(super) struct Credentials {
    key: Option<Bytes>,
    certified: Option<Identity>,
    /// True if the path needs no credential from the middleware.
    is_open: bool,
    /// True if the request may change something and a browser sends it for a page of another site.
    is_forged: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Proof {
    /// Session key, which may be wrong.
    Key(Bytes),
    /// Certificate alone. A browser shows its certificate whichever page sends the request.
    Certificate(Identity),
    /// No credential that counts, on a path that needs none.
    Needless,
    /// Certificate that does not count, because a page of another site sends the request.
    Forged(Identity),
    Missing,
}

impl Credentials {
    pub(super) fn of(request: &Request<Body>) -> Self {
        let authorization = request.headers().get(header::AUTHORIZATION).map(HeaderValue::as_bytes);
        Self {
            key: authorization.and_then(bearer).map(Bytes::copy_from_slice),
            certified: request.extensions().get::<Peer>().and_then(|peer| peer.certified.clone()),
            is_open: is_open(request.uri().path()),
            is_forged: may_change(request.method()) && is_of_another_site(request.headers()),
        }
    }

    /// Returns the credential that counts. A key takes precedence over a certificate.
    pub(super) fn proof(self) -> Proof {
        match (self.key, self.certified) {
            (Some(key), _) => Proof::Key(key),
            // The certificate of an agent adds nothing to a path that needs none.
            (None, Some(identity)) if self.is_open && identity.role == Role::Agent => Proof::Needless,
            (None, Some(identity)) if !self.is_forged => Proof::Certificate(identity),
            _ if self.is_open => Proof::Needless,
            (None, Some(identity)) => Proof::Forged(identity),
            (None, None) => Proof::Missing,
        }
    }
}

/// The handlers of the dashboard authenticate by session.
fn is_open(path: &str) -> bool {
    PROBE_PATHS.contains(&path) || path == "/" || path.starts_with("/dashboard/")
}

/// Returns the key in `Bearer KEY`, a value of the `Authorization` header (RFC 6750 §2.1).
pub(in crate::http) fn bearer(authorization: &[u8]) -> Option<&[u8]> {
    let (scheme, key) = authorization.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| key.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::{Credentials, Proof};
    use crate::auth::keyring::{Identity, Role};

    #[test]
    fn credentials_prefer_the_key_and_ignore_the_certificate_for_pages_of_other_sites() {
        let alice = || Identity::new(Role::Client, "alice");
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
        assert_eq!(proof(None, true, false, true), Proof::Forged(alice()));
        assert_eq!(proof(None, true, true, true), Proof::Needless);
    }
}
