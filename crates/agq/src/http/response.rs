//! Responses and errors of handlers. An error has the error body of the specification, with status,
//! code, message and hint.

use std::collections::BTreeMap;

use agenix_protocol::documents::{OJS_MEDIA_TYPE, OJS_VERSION, to_json};
use agenix_rules::rejection::Rejection;
use axum::{
    body::Body,
    http::{HeaderName, HeaderValue, Response, StatusCode, header},
    response::IntoResponse,
};
use serde::Serialize;
use serde_json::{
    Value, json,
    value::{RawValue, to_raw_value},
};

use crate::{error::CommandError, store::StoreError};

const DOCS: &str = "https://github.com/agenix-sh/agenix/blob/main/docs/ojs.md";

pub(super) type HttpResult<T = Response<Body>> = Result<T, ApiError>;

#[derive(Debug, Clone)]
pub(super) struct ApiError {
    pub(super) status: StatusCode,
    pub(super) code: &'static str,
    pub(super) message: String,
    pub(super) hint: &'static str,
    pub(super) is_retryable: bool,
    pub(super) headers: Vec<(&'static str, String)>,
}

impl ApiError {
    pub(super) fn new(
        status: StatusCode,
        code: &'static str,
        message: impl Into<String>,
        hint: &'static str,
    ) -> Self {
        let is_retryable = status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS;
        Self { status, code, message: message.into(), hint, is_retryable, headers: Vec::new() }
    }

    /// Returns the error of a request with a missing or malformed part.
    pub(super) fn invalid(message: impl Into<String>) -> Self {
        let hint = "Correct the field that the message names, and send the request again.";
        Self::new(StatusCode::BAD_REQUEST, "invalid_request", message, hint)
    }

    /// Returns the error of an id or a path that does not exist.
    pub(super) fn not_found(message: impl Into<String>) -> Self {
        let hint = "Check the id: it may be mistyped, or its object was removed.";
        Self::new(StatusCode::NOT_FOUND, "not_found", message, hint)
    }

    fn conflict(message: String) -> Self {
        let hint = "Read the job: its state or its attempt differs from what the request assumes.";
        Self::new(StatusCode::CONFLICT, "conflict", message, hint)
    }

    fn duplicate(message: String) -> Self {
        let hint = "The job exists: read it, or omit the id or the unique options.";
        Self::new(StatusCode::CONFLICT, "duplicate", message, hint)
    }

    pub(super) fn response(self, request_id: &str) -> Response<Body> {
        let body = json!({"error": {
            "code": self.code,
            "type": self.code,
            "message": self.message,
            "retryable": self.is_retryable,
            "hint": self.hint,
            "docs_url": DOCS,
            "request_id": request_id,
        }});
        let mut response = json_response(self.status, to_json(&body));
        for (name, value) in self.headers {
            if let Ok(value) = HeaderValue::from_str(&value) {
                response.headers_mut().insert(HeaderName::from_static(name), value);
            }
        }
        response
    }
}

/// Returns the error of a sender that is not allowed to send the request.
pub(super) fn forbidden(message: impl Into<String>) -> ApiError {
    let hint =
        "Use a key whose role allows it: see the [clients], [workers] and [admins] of the config file.";
    ApiError::new(StatusCode::FORBIDDEN, "forbidden", message, hint)
}

impl From<Rejection> for ApiError {
    fn from(rejection: Rejection) -> Self {
        let message = rejection.to_string();
        match rejection {
            Rejection::InvalidRetry(_) => {
                let hint = "Correct the retry policy that the message names, and send the request again.";
                Self::new(StatusCode::UNPROCESSABLE_ENTITY, "validation_error", message, hint)
            }
            Rejection::JobNotFound(_)
            | Rejection::PlanNotFound(_)
            | Rejection::ApprovalNotFound(_)
            | Rejection::ActionNotFound(_)
            | Rejection::ScheduleNotFound(_)
            | Rejection::WorkflowNotFound(_)
            | Rejection::WorkerUnknown(_)
            | Rejection::NotRegistered => Self::not_found(message),
            Rejection::JobExists(_)
            | Rejection::DuplicateJob(_)
            | Rejection::ActionExists(_)
            | Rejection::ScheduleExists(_) => Self::duplicate(message),
            Rejection::NotActive { .. }
            | Rejection::NotStaged(_)
            | Rejection::IllegalTransition { .. }
            | Rejection::NotHolder { .. }
            | Rejection::StaleAttempt { .. }
            | Rejection::JobEnded(_)
            | Rejection::JobNotEnded(_)
            | Rejection::WorkflowEnded(_)
            | Rejection::JobNotFailed
            | Rejection::RetriesExceeded
            | Rejection::PlanReplaced(_)
            | Rejection::ApprovalDiffers { .. }
            | Rejection::ApprovalDecided { .. }
            | Rejection::WaitsForApproval(_)
            | Rejection::WorkerIdTaken => Self::conflict(message),
            Rejection::NotPermitted(_) | Rejection::OwnPlan { .. } => forbidden(message),
            Rejection::Budget(exhausted) => {
                let hint = "Wait until the time that the message names, or ask for a larger budget.";
                let message = format!("budget {exhausted}");
                Self::new(StatusCode::TOO_MANY_REQUESTS, "BUDGET_EXHAUSTED", message, hint)
            }
            Rejection::QueueFull { depth, bound, .. } => {
                let hint = "Wait until workers have taken jobs of the queue, and send the request again.";
                let full = Self::new(StatusCode::TOO_MANY_REQUESTS, "QUEUE_FULL", message, hint);
                let headers = vec![
                    ("retry-after", "5".to_owned()),
                    ("x-ojs-queue-depth", depth.to_string()),
                    ("x-ojs-queue-bound", bound.to_string()),
                ];
                Self { headers, ..full }
            }
            _ => Self::invalid(message),
        }
    }
}

impl From<CommandError> for ApiError {
    fn from(error: CommandError) -> Self {
        match error {
            CommandError::Rejected(rejection) => rejection.into(),
            other => {
                tracing::error!(error = %other, "a request over HTTP failed");
                let hint = "agq could not complete the request: send it again, and read the log of agq.";
                Self::new(StatusCode::INTERNAL_SERVER_ERROR, "backend_error", other.to_string(), hint)
            }
        }
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        CommandError::from(error).into()
    }
}

impl IntoResponse for ApiError {
    /// The middleware formats the body later, because the id of the request is known only there.
    fn into_response(self) -> Response<Body> {
        let mut response = self.status.into_response();
        response.extensions_mut().insert(self);
        response
    }
}

/// Returns the first 80 characters of text from a client, escaped, for messages and logs.
pub(super) fn quoted(text: &str) -> String {
    text.chars().take(80).collect::<String>().escape_debug().to_string()
}

fn json_response(status: StatusCode, json: String) -> Response<Body> {
    let mut response = Response::new(Body::from(json));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(OJS_MEDIA_TYPE));
    response
}

pub(super) fn ok<T: Serialize>(document: &T) -> Response<Body> {
    json_response(StatusCode::OK, to_json(document))
}

pub(super) fn with_status<T: Serialize>(status: StatusCode, document: &T) -> Response<Body> {
    json_response(status, to_json(document))
}

/// Builds an object without parsing nested documents again, so that numbers keep their text.
pub(super) fn object<const N: usize>(
    fields: [(&'static str, Result<Box<RawValue>, serde_json::Error>); N],
) -> Object {
    let broken = |name: &'static str, error: serde_json::Error| {
        StoreError(format!("{name} cannot be written: {error}"))
    };
    let mut object = BTreeMap::new();
    for (name, value) in fields {
        object.insert(name, value.map_err(|error| broken(name, error))?);
    }
    Ok(object)
}

pub(super) type Object = Result<BTreeMap<&'static str, Box<RawValue>>, StoreError>;

pub(super) fn raw<T: Serialize + ?Sized>(value: &T) -> Result<Box<RawValue>, serde_json::Error> {
    to_raw_value(value)
}

/// Returns the answer to a request that has created the record at `location`.
pub(super) fn created<T: Serialize>(document: &T, location: &str) -> Response<Body> {
    let mut response = json_response(StatusCode::CREATED, to_json(document));
    if let Ok(location) = HeaderValue::from_str(location) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    naming(location.rsplit('/').next().unwrap_or(location), response)
}

/// Extension of a response: id or name of the record that the request has changed, for the audit
/// log.
#[derive(Debug, Clone)]
pub(super) struct ChangedRecord(pub(super) String);

/// Returns `response` with the id or name of the changed record.
pub(super) fn naming(record: &str, mut response: Response<Body>) -> Response<Body> {
    response.extensions_mut().insert(ChangedRecord(record.to_owned()));
    response
}

pub(super) fn no_content() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}

/// Sets the headers that every response has.
pub(super) fn finish(response: &mut Response<Body>, request_id: &HeaderValue) {
    let headers = response.headers_mut();
    headers.insert("ojs-version", HeaderValue::from_static(OJS_VERSION));
    headers.insert("x-request-id", request_id.clone());
    headers.entry(header::CONTENT_TYPE).or_insert(HeaderValue::from_static(OJS_MEDIA_TYPE));
}

/// A page without entries has no next cursor, so that a client that follows the cursors stops.
pub(super) fn pagination(total: u64, offset: usize, shown: usize, has_more: bool) -> Value {
    let end = offset.saturating_add(shown);
    let has_more = has_more && shown > 0;
    let mut pagination = json!({"total": total, "has_more": has_more});
    if has_more {
        pagination["next_cursor"] = end.to_string().into();
    }
    pagination
}
