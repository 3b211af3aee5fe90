//! Identity and role of the sender of a request, as extractors for handlers.

use std::marker::PhantomData;

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

impl<S: Send + Sync> FromRequestParts<S> for Authenticated {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        parts.extensions.get::<Self>().cloned().ok_or_else(unauthorized)
    }
}

/// Access that a route requires, as a type.
pub(in crate::http) trait RequiredAccess {
    const ACCESS: CommandAccess;
}

/// Access of clients: keys of clients and admins have it.
pub(in crate::http) enum ClientAccess {}

/// Access of workers: keys of workers and admins have it.
pub(in crate::http) enum WorkerAccess {}

/// Access of admins.
pub(in crate::http) enum AdminAccess {}

impl RequiredAccess for ClientAccess {
    const ACCESS: CommandAccess = CommandAccess::Client;
}

impl RequiredAccess for WorkerAccess {
    const ACCESS: CommandAccess = CommandAccess::Worker;
}

impl RequiredAccess for AdminAccess {
    const ACCESS: CommandAccess = CommandAccess::Admin;
}

/// Extractor of the sender of a request, whose role allows the access `A`. A handler has an
/// extractor of this kind, or [`Authenticated`], before the body, so that agq does not read the
/// body of a refused request.
pub(in crate::http) struct Require<A> {
    identity: Identity,
    access: PhantomData<A>,
}

pub(in crate::http) type RequireClient = Require<ClientAccess>;
pub(in crate::http) type RequireWorker = Require<WorkerAccess>;
pub(in crate::http) type RequireAdmin = Require<AdminAccess>;

impl<S: Send + Sync, A: RequiredAccess> FromRequestParts<S> for Require<A> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let Authenticated(identity) = Authenticated::from_request_parts(parts, state).await?;
        if identity.role.allows(A::ACCESS) {
            return Ok(Self { identity, access: PhantomData });
        }
        Err(forbidden(format!(
            "this key belongs to the {} '{}', whose role does not allow this request",
            identity.role, identity.name
        )))
    }
}

impl RequireWorker {
    /// Returns the worker that the key belongs to, or `None` for the key of an admin. The key of a
    /// worker may act for that worker only.
    pub(in crate::http) fn worker(&self) -> Option<WorkerId> {
        Some(&self.identity)
            .filter(|identity| identity.role == Role::Worker)
            .and_then(|identity| WorkerId::new(&*identity.name).ok())
    }
}

/// Returns the refusal of a request without a valid credential.
pub(in crate::http) fn unauthorized() -> ApiError {
    let refusal = ApiError::new(
        StatusCode::UNAUTHORIZED,
        "unauthorized",
        "the request has no valid key",
        "Send the session key, or another key of the config file, as `Authorization: Bearer KEY`.",
    );
    ApiError { headers: vec![("www-authenticate", "Bearer".into())], ..refusal }
}

/// Marker of a request that only a certificate authenticates.
#[derive(Debug, Clone, Copy)]
pub(in crate::http) struct CertificateAlone;
