//! Identity and role of the sender of a request, as extractors for handlers.

use std::marker::PhantomData;

use agenix_protocol::{ids::WorkerId, request::CommandAccess};
use agenix_rules::owner::Owner;
use axum::{
    extract::FromRequestParts,
    http::{StatusCode, request::Parts},
};

use crate::{
    auth::keyring::{Identity, Role},
    http::response::{ApiError, HttpResult, forbidden},
};

/// Sender of a request with any role, which the middleware has proved.
#[derive(Debug, Clone)]
pub(in crate::http) struct Authenticated(pub(in crate::http) Identity);

impl<S: Send + Sync> FromRequestParts<S> for Authenticated {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> HttpResult<Self> {
        parts.extensions.get::<Self>().cloned().ok_or_else(unauthorized)
    }
}

pub(in crate::http) trait RequiredAccess {
    const ACCESS: CommandAccess;
}

/// Keys of clients and admins have this access.
pub(in crate::http) enum ClientAccess {}

/// Keys of workers and admins have this access.
pub(in crate::http) enum WorkerAccess {}

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

/// Sender whose role allows the access `A`. A handler has this extractor, or [`Authenticated`],
/// before the body, so that agq does not read the body of a refused request.
pub(in crate::http) struct Require<A> {
    identity: Identity,
    access: PhantomData<A>,
}

pub(in crate::http) type RequireClient = Require<ClientAccess>;
pub(in crate::http) type RequireWorker = Require<WorkerAccess>;
pub(in crate::http) type RequireAdmin = Require<AdminAccess>;

impl<S: Send + Sync, A: RequiredAccess> FromRequestParts<S> for Require<A> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> HttpResult<Self> {
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

impl<A> Require<A> {
    pub(in crate::http) fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Returns the owner of what the sender submits.
    pub(in crate::http) fn owner(&self) -> Option<&Owner> {
        self.identity.owner.as_ref()
    }
}

impl RequireWorker {
    /// Returns the only worker that the key may act for, or `None` for the key of an admin.
    pub(in crate::http) fn worker(&self) -> Option<WorkerId> {
        Some(&self.identity)
            .filter(|identity| identity.role == Role::Worker)
            .and_then(|identity| WorkerId::new(&*identity.name).ok())
    }
}

/// Refuses the key of an agent, which may use RESP alone.
pub(in crate::http) fn refuse_agent(identity: &Identity) -> HttpResult<()> {
    if identity.role != Role::Agent {
        return Ok(());
    }
    Err(forbidden("this key is an agent's and may not use HTTP: agents use RESP"))
}

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
