//! A request as handlers see it: who asks, what was sent, and what the path and the query say.

use std::sync::Arc;

use agenix_protocol::{
    documents::{OjsDocument, parse_object},
    ids::{JobId, WorkerId},
    limits::exceeds,
    request::Access,
};
use axum::{
    body::Body,
    extract::{FromRequest, FromRequestParts},
    http::{Request, StatusCode, header, request::Parts},
};
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{
    Desk,
    answer::{Refusal, forbidden},
};
use crate::keyring::{Identity, Role};

/// Whoever asks, known by a key or a certificate.
#[derive(Debug, Clone)]
pub(super) struct Guest(pub(super) Identity);

impl Guest {
    /// Whether the key may do this.
    pub(super) fn may(&self, access: Access) -> Result<(), Refusal> {
        if self.0.role.allows(access) {
            return Ok(());
        }
        Err(forbidden(format!(
            "this key is that of the {} '{}', and may not do this",
            self.0.role, self.0.name
        )))
    }

    /// The worker whose own key it is: it speaks for that worker alone.
    pub(super) fn worker(&self) -> Option<WorkerId> {
        Some(&self.0)
            .filter(|identity| identity.role == Role::Worker)
            .and_then(|identity| WorkerId::new(&*identity.name).ok())
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Guest {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        parts.extensions.get::<Self>().cloned().ok_or_else(unauthorized)
    }
}

/// Nobody knows who asks.
pub(super) fn unauthorized() -> Refusal {
    let refusal = Refusal::new(
        StatusCode::UNAUTHORIZED,
        "unauthorized",
        "no key that agq knows came with the request",
        "Send the session key, or another key of the config file, as `Authorization: Bearer KEY`.",
    );
    Refusal { headers: vec![("www-authenticate", "Bearer".into())], ..refusal }
}

/// Most bytes of a body that is too large that are read all the same.
const MAX_DRAINED_BYTES: usize = 64 * 1024 * 1024;

/// What was sent.
pub(super) struct Sent(Bytes);

impl FromRequest<Arc<Desk>> for Sent {
    type Rejection = Refusal;

    async fn from_request(request: Request<Body>, desk: &Arc<Desk>) -> Result<Self, Refusal> {
        let content_type = request.headers().get(header::CONTENT_TYPE).map(|told| told.as_bytes().to_vec());
        let limit = desk.house.settings.limits.max_message_bytes;
        let bytes = read_all(request.into_body(), limit).await?;
        if !bytes.is_empty() {
            check_type(content_type.as_deref())?;
        }
        Ok(Self(bytes))
    }
}

/// A body of at most so many bytes. Of a larger one the rest is read, as far as that is to be borne: who is cut off while they send do
/// not read the answer.
async fn read_all(body: Body, limit: usize) -> Result<Bytes, Refusal> {
    let (mut body, mut bytes, mut total) = (body.into_data_stream(), BytesMut::new(), 0_usize);
    while let Some(piece) = body.next().await {
        let piece =
            piece.map_err(|error| Refusal::invalid(format!("the body could not be read: {error}")))?;
        total = total.saturating_add(piece.len());
        if !exceeds(total, limit) {
            bytes.extend_from_slice(&piece);
        } else if total > limit.saturating_add(MAX_DRAINED_BYTES) {
            break;
        }
    }
    if exceeds(total, limit) { Err(too_large(limit)) } else { Ok(bytes.freeze()) }
}

fn too_large(limit: usize) -> Refusal {
    Refusal::new(
        StatusCode::PAYLOAD_TOO_LARGE,
        "payload_too_large",
        format!("the body has more than {limit} bytes"),
        "Send less at once, or start agq with a larger --max-message-bytes.",
    )
}

/// Two media types are JSON here; a body without any is taken for it.
fn check_type(told: Option<&[u8]>) -> Result<(), Refusal> {
    let Some(told) = told else { return Ok(()) };
    let told = String::from_utf8_lossy(told).to_ascii_lowercase();
    let media = told.split(';').next().unwrap_or_default().trim();
    if matches!(media, "application/openjobspec+json" | "application/json") {
        return Ok(());
    }
    let message = format!("Content-Type is '{}'", media.escape_debug());
    Err(Refusal::invalid(format!("{message}: it is to be application/openjobspec+json or application/json")))
}

impl Sent {
    /// A document; its form is checked by its type.
    pub(super) fn object<T: DeserializeOwned>(&self) -> Result<T, Refusal> {
        let object = parse_object(&self.0).map_err(|error| self.refuse(&error.to_string()))?;
        // What is kept as it came is read by others: a number that is too large, half a character, or a depth beyond reason would
        // stop them.
        serde_json::from_slice::<Value>(&self.0).map_err(|error| self.refuse(&error.to_string()))?;
        Ok(object)
    }

    /// Any JSON of this form.
    pub(super) fn any<T: DeserializeOwned>(&self) -> Result<T, Refusal> {
        serde_json::from_slice(&self.0).map_err(|error| self.refuse(&error.to_string()))
    }

    /// A document, where one was sent.
    pub(super) fn object_or_default<T: DeserializeOwned + Default>(&self) -> Result<T, Refusal> {
        if self.0.trim_ascii().is_empty() { Ok(T::default()) } else { self.object() }
    }

    /// A job's document, each field as it came.
    pub(super) fn document(&self) -> Result<OjsDocument, Refusal> {
        self.object()
    }

    /// Whether it is no JSON at all, or JSON of another form.
    fn refuse(&self, reason: &str) -> Refusal {
        if let Err(error) = serde_json::from_slice::<Value>(&self.0) {
            return Refusal::new(
                StatusCode::BAD_REQUEST,
                "invalid_payload",
                format!("the body is no JSON that can be read: {error}"),
                "Send a JSON object.",
            );
        }
        Refusal::invalid(reason)
    }
}

/// A job's id in a path: what is none names no job.
pub(super) fn job_id(text: &str) -> Result<JobId, Refusal> {
    JobId::new(text).map_err(|_| Refusal::not_found(format!("there is no job '{}'", shown(text))))
}

/// A worker's id in a path.
pub(super) fn worker_id(text: &str) -> Result<WorkerId, Refusal> {
    WorkerId::new(text).map_err(|_| Refusal::not_found(format!("there is no worker '{}'", shown(text))))
}

/// What somebody sent, as far as it is shown again.
pub(super) fn shown(text: &str) -> String {
    text.chars().take(80).collect::<String>().escape_debug().to_string()
}
