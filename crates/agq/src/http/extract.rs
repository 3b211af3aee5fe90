//! Extractor of JSON bodies, with bounds on size and time, and parsers of ids in paths.

use std::{sync::Arc, time::Duration};

use agenix_protocol::{
    documents::{check_fields, parse_object},
    ids::{JobId, WorkerId},
    limits::exceeds,
};
use agenix_rules::ojs::worker_of;
use axum::{
    body::{Body, HttpBody},
    extract::FromRequest,
    http::{HeaderMap, HeaderValue, Request, StatusCode, header},
};
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::timeout;

use crate::{
    http::{
        HttpState,
        auth::role::{Authenticated, CertificateAlone},
        response::{ApiError, HttpResult, quoted},
    },
    settings::ServiceSettings,
};

/// Maximum body of an unauthenticated client. A login is much smaller.
const MAX_ANONYMOUS_BYTES: usize = 4096;

/// The bounds of authenticated clients are those of a command over RESP.
#[derive(Debug, Clone, Copy)]
struct BodyLimits {
    /// Maximum number of bytes; zero means no bound.
    bytes: usize,
    /// Maximum reading time; zero means no bound.
    time: Duration,
    is_authenticated: bool,
}

impl BodyLimits {
    fn of(settings: &ServiceSettings, is_authenticated: bool) -> Self {
        let max = settings.limits.max_message_bytes;
        let anonymous = if exceeds(MAX_ANONYMOUS_BYTES, max) { max } else { MAX_ANONYMOUS_BYTES };
        let (bytes, ms) = if is_authenticated {
            (max, settings.frame_timeout_ms)
        } else {
            (anonymous, settings.login_timeout_ms)
        };
        Self { bytes, time: Duration::from_millis(ms), is_authenticated }
    }

    fn too_large(self) -> ApiError {
        let hint = if self.is_authenticated {
            "Send less at once, or start agq with a larger --max-message-bytes."
        } else {
            "Log in, or send a key: agq reads a longer body only from known clients."
        };
        let message = format!("the body has more than {} bytes", self.bytes);
        closing(ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "payload_too_large", message, hint))
    }

    fn too_slow(self) -> ApiError {
        let message = format!("the body was not complete within {} seconds", self.time.as_secs_f64());
        let hint = "Send the request again, and send its body without pauses.";
        closing(ApiError::new(StatusCode::REQUEST_TIMEOUT, "request_timeout", message, hint))
    }
}

/// Closes the connection, because the unread rest of the body would be parsed as the next request.
fn closing(refusal: ApiError) -> ApiError {
    ApiError { headers: vec![("connection", "close".into())], ..refusal }
}

pub(super) struct JsonBody(Bytes);

impl FromRequest<Arc<HttpState>> for JsonBody {
    type Rejection = ApiError;

    async fn from_request(request: Request<Body>, state: &Arc<HttpState>) -> HttpResult<Self> {
        let (parts, body) = request.into_parts();
        let is_authenticated = parts.extensions.get::<Authenticated>().is_some();
        let bytes = read_all(body, BodyLimits::of(&state.app.settings, is_authenticated)).await?;
        if !bytes.is_empty() {
            let content_type = parts.headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
            check_type(content_type, parts.extensions.get::<CertificateAlone>().is_some())?;
            check_coding(&parts.headers)?;
        }
        Ok(Self(bytes))
    }
}

/// Refuses a body whose announced size is too large before any of it is read.
async fn read_all(body: Body, bounds: BodyLimits) -> HttpResult<Bytes> {
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if exceeds(announced, bounds.bytes) {
        return Err(bounds.too_large());
    }
    let reading = collect(body, bounds);
    if bounds.time.is_zero() {
        return reading.await;
    }
    timeout(bounds.time, reading).await.unwrap_or_else(|_| Err(bounds.too_slow()))
}

async fn collect(body: Body, bounds: BodyLimits) -> HttpResult<Bytes> {
    let (mut body, mut bytes) = (body.into_data_stream(), BytesMut::new());
    while let Some(chunk) = body.next().await {
        let chunk =
            chunk.map_err(|error| ApiError::invalid(format!("the body could not be read: {error}")))?;
        if exceeds(bytes.len().saturating_add(chunk.len()), bounds.bytes) {
            return Err(bounds.too_large());
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes.freeze())
}

/// A missing type means JSON, but is refused with a certificate alone (`is_required`), because a
/// browser sends a request without a type for another site's page without a preflight request.
fn check_type(content_type: Option<&[u8]>, is_required: bool) -> HttpResult<()> {
    const EXPECTED: &str = "application/openjobspec+json or application/json";
    let Some(content_type) = content_type else {
        let missing = format!("there is no Content-Type: with a certificate alone it must be {EXPECTED}");
        return if is_required { Err(ApiError::invalid(missing)) } else { Ok(()) };
    };
    let content_type = String::from_utf8_lossy(content_type).to_ascii_lowercase();
    let media = content_type.split(';').next().unwrap_or_default().trim();
    if matches!(media, "application/openjobspec+json" | "application/json") {
        return Ok(());
    }
    let message = format!("Content-Type is '{}'", media.escape_debug());
    Err(ApiError::invalid(format!("{message}: it must be {EXPECTED}")))
}

/// Refuses a compressed body (RFC 9110 §15.5.16). Its bytes would be called JSON that is not valid.
fn check_coding(headers: &HeaderMap) -> HttpResult<()> {
    let codings = headers.get_all(header::CONTENT_ENCODING);
    if codings.iter().all(|coding| coding.as_bytes().eq_ignore_ascii_case(b"identity")) {
        return Ok(());
    }
    let (text, hint) = (
        "Content-Encoding is not 'identity', and agq decompresses nothing",
        "Send the body as it is, without the header.",
    );
    let refusal = ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported", text, hint);
    Err(ApiError { headers: vec![("accept-encoding", "identity".into())], ..refusal })
}

impl JsonBody {
    pub(super) fn object<T: DeserializeOwned>(&self) -> HttpResult<T> {
        let object = parse_object(&self.0).map_err(|error| self.refuse(&error.to_string()))?;
        // Other programs read the document as it is. A number that is too large, half a character,
        // excessive depth or a duplicate field would stop or mislead these programs.
        check_fields(&self.0).map_err(|error| self.refuse(&error.to_string()))?;
        Ok(object)
    }

    pub(super) fn any<T: DeserializeOwned>(&self) -> HttpResult<T> {
        serde_json::from_slice(&self.0).map_err(|error| self.refuse(&error.to_string()))
    }

    /// Parses an object of type `T`, or returns the default for an empty body.
    pub(super) fn object_or_default<T: DeserializeOwned + Default>(&self) -> HttpResult<T> {
        if self.0.trim_ascii().is_empty() { Ok(T::default()) } else { self.object() }
    }

    /// Returns the error of a body that is not JSON, or otherwise an error with `reason`.
    fn refuse(&self, reason: &str) -> ApiError {
        if let Err(error) = serde_json::from_slice::<Value>(&self.0) {
            let (text, hint) = (format!("the body is not valid JSON: {error}"), "Send a JSON object.");
            return ApiError::new(StatusCode::BAD_REQUEST, "invalid_payload", text, hint);
        }
        ApiError::invalid(reason)
    }
}

/// Returns `value` unless it is zero. `name` is the query parameter that the error names.
pub(super) fn above_zero(name: &str, value: Option<usize>) -> HttpResult<Option<usize>> {
    if value == Some(0) {
        return Err(ApiError::invalid(format!("{name} must be a whole number of at least 1")));
    }
    Ok(value)
}

/// Text that is not an id names no job.
pub(super) fn job_id(text: &str) -> HttpResult<JobId> {
    JobId::new(text).map_err(|_| ApiError::not_found(format!("there is no job '{}'", quoted(text))))
}

/// Returns the worker that chose this id. Text that no worker may choose names no worker.
pub(super) fn worker_id(text: &str) -> HttpResult<WorkerId> {
    worker_of(text).ok_or_else(|| ApiError::not_found(format!("there is no worker '{}'", quoted(text))))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use axum::{
        body::Body,
        http::{HeaderMap, HeaderValue, header},
    };
    use bytes::Bytes;
    use futures_util::{StreamExt, stream};

    use super::{BodyLimits, check_coding, check_type, read_all};
    use crate::http::response::ApiError;

    const BOUNDS: BodyLimits =
        BodyLimits { bytes: 4, time: Duration::from_secs(3600), is_authenticated: false };

    async fn read(body: Body, bounds: BodyLimits) -> Result<Bytes, (u16, String)> {
        read_all(body, bounds).await.map_err(|ApiError { status, message, .. }| (status.as_u16(), message))
    }

    fn in_chunks(chunks: &[&'static str]) -> Body {
        let chunks: Vec<_> = chunks.iter().map(|chunk| Ok::<_, std::io::Error>(*chunk)).collect();
        Body::from_stream(stream::iter(chunks))
    }

    #[tokio::test]
    async fn body_is_refused_one_byte_beyond_its_bound() {
        assert_eq!(read(Body::from("1234"), BOUNDS).await.unwrap(), "1234");
        assert_eq!(read(in_chunks(&["12", "34"]), BOUNDS).await.unwrap(), "1234");
        let refused = (413, "the body has more than 4 bytes".to_owned());
        assert_eq!(read(Body::from("12345"), BOUNDS).await.unwrap_err(), refused);
        assert_eq!(read(in_chunks(&["12", "345"]), BOUNDS).await.unwrap_err(), refused);
        let unbounded = BodyLimits { bytes: 0, ..BOUNDS };
        assert_eq!(read(in_chunks(&["12", "345"]), unbounded).await.unwrap(), "12345");
    }

    #[tokio::test]
    async fn body_beyond_its_bound_is_refused_before_its_end() {
        let endless = stream::iter(["12", "345"].map(Ok::<_, std::io::Error>)).chain(stream::pending());
        assert_eq!(read(Body::from_stream(endless), BOUNDS).await.unwrap_err().0, 413);
    }

    #[tokio::test]
    async fn body_is_refused_after_its_time() {
        let silent = stream::iter(["1"].map(Ok::<_, std::io::Error>)).chain(stream::pending());
        let bounds = BodyLimits { time: Duration::from_millis(5), ..BOUNDS };
        let refused = (408, "the body was not complete within 0.005 seconds".to_owned());
        assert_eq!(read(Body::from_stream(silent), bounds).await.unwrap_err(), refused);
    }

    #[test]
    fn compressed_body_is_refused_as_that() {
        let mut headers = HeaderMap::new();
        assert!(check_coding(&headers).is_ok());
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("Identity"));
        assert!(check_coding(&headers).is_ok());
        headers.append(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        let refusal = check_coding(&headers).unwrap_err();
        assert_eq!((refusal.status.as_u16(), refusal.code), (415, "unsupported"));
    }

    #[test]
    fn body_needs_a_content_type_with_a_certificate_alone() {
        assert!(check_type(None, false).is_ok() && check_type(None, true).is_err());
        for required in [false, true] {
            assert!(check_type(Some(b"Application/JSON; charset=utf-8"), required).is_ok());
            assert!(check_type(Some(b"text/plain"), required).is_err());
        }
    }
}
