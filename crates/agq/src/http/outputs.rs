//! Outputs of tasks over HTTP, whole or a range, sent in chunks (docs/protocol/outputs.md).

use std::sync::Arc;

use agenix_protocol::{blob::OutputStream, ids::JobId};
use axum::{
    body::Body,
    extract::{Path, Query},
    http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header},
};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use tracing::warn;

use crate::{
    app::AppState,
    blobs::BlobError,
    error::Result,
    http::{
        Shared,
        auth::role::RequireClient,
        extract::job_id,
        ranges::Selection,
        response::{ApiError, HttpResult, quoted},
    },
    service::outputs::{self, StoredOutput},
};

/// Number of bytes that are read at once, and so the memory of a download.
const CHUNK_BYTES: u64 = 1024 * 1024;

/// The output is data of a user: it never runs as a page, even if a browser shows it.
const POLICY: &str = "default-src 'none'; sandbox";

/// Job, task and stream of a path, as they were sent.
pub(super) type OutputPath = (String, String, String);

/// Query of a request for an output.
pub(super) type OutputQuery = Query<Vec<(String, String)>>;

pub(super) async fn output(
    state: Shared,
    _: RequireClient,
    Path(path): Path<OutputPath>,
    Query(query): OutputQuery,
    method: Method,
    headers: HeaderMap,
) -> HttpResult {
    let is_download = query.iter().any(|(name, _)| name == "download");
    answer(&state.app, &path, is_download, (&method, &headers)).await
}

/// Answers with the output of a task. A browser saves the output to a file with `is_download`.
pub(super) async fn answer(
    app: &Arc<AppState>,
    path: &OutputPath,
    is_download: bool,
    (method, request): (&Method, &HeaderMap),
) -> HttpResult {
    let (job, task, stream) = path;
    let job = job_id(job)?;
    let none = || {
        let name = format!("there is no {} of task {} of the job {job}", quoted(stream), quoted(task));
        ApiError::not_found(format!("{name}: an attempt that has not ended has none"))
    };
    let task: u32 = task.parse().map_err(|_| none())?;
    let stream: OutputStream = stream.parse().map_err(|_| none())?;
    let output = outputs::find(app, &job, (task, stream)).await?.ok_or_else(none)?;
    let etag = format!("\"{}\"", output.hash());
    let selection = Selection::of(method, request, &etag, output.total);
    let (status, start, end) = match selection {
        Selection::Whole => (StatusCode::OK, 0, output.total),
        Selection::Part(start, end) => (StatusCode::PARTIAL_CONTENT, start, end),
        Selection::NotModified => (StatusCode::NOT_MODIFIED, 0, 0),
        Selection::Unsatisfiable => return Err(unsatisfiable(output.total)),
        Selection::PreconditionFailed => return Err(precondition_failed(&etag)),
    };
    let mut headers = headers(&output, etag);
    if selection != Selection::NotModified {
        headers.push((header::CONTENT_LENGTH, (end - start).to_string()));
    }
    if let Selection::Part(start, end) = selection {
        let range = format!("bytes {start}-{}/{}", end - 1, output.total);
        headers.push((header::CONTENT_RANGE, range));
    }
    if is_download {
        let name = file_name(&job, task, stream);
        headers.push((header::CONTENT_DISPOSITION, format!("attachment; filename=\"{name}\"")));
    }
    let download = Download { app: Arc::clone(app), output, at: start, end };
    let mut response = Response::new(download.body(*method == Method::HEAD).await?);
    *response.status_mut() = status;
    for (name, value) in headers {
        let value = HeaderValue::try_from(value).map_err(|error| ApiError::invalid(error.to_string()))?;
        response.headers_mut().insert(name, value);
    }
    Ok(response)
}

/// Returns the headers that all answers with an output have.
fn headers(output: &StoredOutput, etag: String) -> Vec<(HeaderName, String)> {
    let media =
        if is_text(output.beginning()) { "text/plain; charset=utf-8" } else { "application/octet-stream" };
    let mut headers = vec![
        (header::ETAG, etag),
        (header::ACCEPT_RANGES, "bytes".to_owned()),
        (header::CONTENT_TYPE, media.to_owned()),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
        (header::CONTENT_SECURITY_POLICY, POLICY.to_owned()),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin".to_owned()),
        (header::CACHE_CONTROL, "private, no-cache".to_owned()),
    ];
    if output.written > output.total {
        headers.push((HeaderName::from_static("agq-output-bytes"), output.written.to_string()));
    }
    headers
}

/// Returns true for UTF-8, whose last character may be cut.
fn is_text(beginning: &[u8]) -> bool {
    std::str::from_utf8(beginning).map_or_else(|error| error.error_len().is_none(), |_| true)
}

/// Returns a name that every file system takes, because an id may be long, and begin with a dot.
fn file_name(job: &JobId, task: u32, stream: OutputStream) -> String {
    let safe = |char: char| if char.is_ascii_alphanumeric() || char == '-' { char } else { '_' };
    let job: String = job.as_str().chars().map(safe).take(100).collect();
    format!("output-{job}-{task}-{}.txt", stream.as_str())
}

fn unsatisfiable(total: u64) -> ApiError {
    let message = format!("the range begins beyond the output, which has {total} bytes");
    let hint = "Ask for a range that begins within the output, or for the whole.";
    let refusal = ApiError::new(StatusCode::RANGE_NOT_SATISFIABLE, "invalid_request", message, hint);
    ApiError { headers: vec![("content-range", format!("bytes */{total}"))], ..refusal }
}

fn precondition_failed(etag: &str) -> ApiError {
    let message = format!("the output has the entity tag {etag}, which If-Match does not name");
    let hint = "Ask for the output without If-Match: the job has another result than before.";
    ApiError::new(StatusCode::PRECONDITION_FAILED, "conflict", message, hint)
}

/// Bytes of an output that are left to send.
struct Download {
    app: Arc<AppState>,
    output: StoredOutput,
    at: u64,
    end: u64,
}

impl Download {
    /// Returns a body that reads the next chunk when the client has taken the last one. The first
    /// chunk is read before the answer, so that a missing or damaged output is an answer with an
    /// error.
    async fn body(mut self, is_head: bool) -> Result<Body> {
        if self.at == self.end {
            return Ok(Body::empty());
        }
        if is_head {
            // The client gets no body, but an error if the output is missing.
            self.end = self.at + 1;
        }
        let first = self.next().await?;
        let rest = stream::try_unfold(self, Self::following);
        Ok(Body::from_stream(stream::iter([Ok(first)]).chain(rest)))
    }

    /// Returns the next chunk and what is left, or `None` at the end. An error ends the connection
    /// before `Content-Length` is reached.
    async fn following(mut self) -> Result<Option<(Bytes, Self)>> {
        if self.at == self.end {
            return Ok(None);
        }
        let chunk = self.next().await.inspect_err(|error| warn!(%error, "a download was interrupted"))?;
        Ok(Some((chunk, self)))
    }

    /// Reads the next chunk. Fails if the output has fewer bytes.
    async fn next(&mut self) -> Result<Bytes> {
        let length = (self.end - self.at).min(CHUNK_BYTES);
        let chunk = self.output.read(&self.app, (self.at, length)).await?;
        if chunk.len() as u64 != length {
            let hash = self.output.hash();
            return Err(BlobError::Failed(format!("the blob {hash} is shorter than its output")).into());
        }
        self.at += length;
        Ok(chunk)
    }
}

#[cfg(test)]
mod tests {
    use agenix_protocol::blob::OutputStream;

    use super::{file_name, is_text};

    #[test]
    fn output_is_text_if_its_beginning_is_utf_8() {
        for (beginning, expected) in [
            (&b""[..], true),
            (b"<b>", true),
            ("\u{e9}".as_bytes(), true),
            (b"a\xc3", true),
            (b"a\xc3b", false),
        ] {
            assert_eq!(is_text(beginning), expected, "{beginning:?}");
        }
    }

    #[test]
    fn output_has_a_file_name_without_special_characters() {
        let name = |job: &str| file_name(&job.parse().unwrap(), 2, OutputStream::Stderr);
        assert_eq!(name("01a2-b"), "output-01a2-b-2-stderr.txt");
        assert_eq!(name("a.b_c"), "output-a_b_c-2-stderr.txt");
    }
}
