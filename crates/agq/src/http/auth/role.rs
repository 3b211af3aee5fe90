//! Identity and role of the sender of a request, as extractors for handlers.

use agenix_protocol::{ids::WorkerId, request::CommandAccess};
use axum::{
    extract::FromRequestParts,
    http::{StatusCode, request::Parts},
};

use crate::{
    auth::keyring::{Identity, Role},
    http::response::{ApiError, forbidden},
};

/// Extractor of the sender of a request, who may have any role. The middleware has proved the
/// identity by a key or a certificate.
#[derive(Debug, Clone)]
pub(in crate::http) struct Authenticated(pub(in crate::http) Identity);

impl Authenticated {
    /// Checks that the role of the sender allows `access`.
    pub(in crate::http) fn require(&self, access: CommandAccess) -> Result<(), ApiError> {
        if self.0.role.allows(access) {
            return Ok(());
        }
        Err(forbidden(format!(
            "this key is that of the {} '{}', and may not do this",
            self.0.role, self.0.name
        )))
    }

    /// Returns the worker that the key belongs to. Such a key may act for that worker only.
    pub(in crate::http) fn worker(&self) -> Option<WorkerId> {
        Some(&self.0)
            .filter(|identity| identity.role == Role::Worker)
            .and_then(|identity| WorkerId::new(&*identity.name).ok())
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Authenticated {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        parts.extensions.get::<Self>().cloned().ok_or_else(unauthorized)
    }
}

/// Returns the refusal of a request without a valid credential.
pub(in crate::http) fn unauthorized() -> ApiError {
    let refusal = ApiError::new(
        StatusCode::UNAUTHORIZED,
        "unauthorized",
        "no key that agq knows came with the request",
        "Send the session key, or another key of the config file, as `Authorization: Bearer KEY`.",
    );
    ApiError { headers: vec![("www-authenticate", "Bearer".into())], ..refusal }
}

/// Marker of a request that only a certificate authenticates.
#[derive(Debug, Clone, Copy)]
pub(in crate::http) struct CertificateAlone;
