//! Answers to requests that match no route.

use axum::http::{Method, StatusCode, Uri};

use crate::http::response::{ApiError, quoted};

pub(super) async fn no_such_path(uri: Uri) -> ApiError {
    ApiError::not_found(format!("there is no path '{}'", quoted(uri.path())))
}

pub(super) async fn no_such_method(method: Method, uri: Uri) -> ApiError {
    let (text, hint) = (
        format!("{} does not take {method}", quoted(uri.path())),
        "See docs/ojs.md for the methods of this path.",
    );
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "invalid_request", text, hint)
}
