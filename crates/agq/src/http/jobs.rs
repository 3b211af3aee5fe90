//! Handlers for clients that submit jobs, read jobs, and change jobs.

use agenix_protocol::documents::OjsDocument;
use agenix_rules::job::{Job, JobState};
use axum::{
    body::Body,
    extract::Path,
    http::{HeaderMap, HeaderValue, Response, StatusCode},
};
use serde::Deserialize;
use serde_json::{
    json,
    value::{RawValue, to_raw_value},
};

use crate::{
    http::{
        HttpState, Shared,
        auth::role::{Authenticated, RequireClient},
        extract::{JsonBody, job_id},
        job_view::job_view,
        response::{ApiError, HttpResult, Object, created, naming, object, ok, raw, with_status},
    },
    service::{dead_letters, jobs, lookup, ojs_submission, queues},
    store::StoredJob,
};

/// Answers with `{"job": …}`.
pub(super) fn in_object(job: &StoredJob) -> HttpResult {
    Ok(ok(&object([("job", raw(&job_view(job)?))])?))
}

pub(super) async fn enqueue(
    state: Shared,
    sender: RequireClient,
    headers: HeaderMap,
    sent: JsonBody,
) -> HttpResult {
    let mut document: OjsDocument = sent.object()?;
    add_trace(&mut document, &headers)?;
    let enqueued = ojs_submission::enqueue(&state.app, sender.owner(), document).await?;
    let (job, is_new) = (enqueued.job, enqueued.is_new);
    let limited = job.job.ojs.as_ref().and_then(|ojs| ojs.limit.clone());
    let name = job.queue.clone();
    let job = job_view(&job)?;
    let location = format!("/ojs/v1/jobs/{}", job.id);
    let body = object([("job", raw(&job))])?;
    let mut response = if is_new { created(&body, &location) } else { with_status(StatusCode::OK, &body) };
    set_depth_headers(&state, &name, &mut response).await;
    if let Some(key) = limited {
        set_limit_headers(&state, &key, &mut response).await;
    }
    Ok(response)
}

/// Copies the trace headers (W3C Trace Context), unless the metadata has a trace.
fn add_trace(document: &mut OjsDocument, headers: &HeaderMap) -> HttpResult<()> {
    for name in ["traceparent", "tracestate"] {
        let Some(trace) = headers.get(name).and_then(|value| value.to_str().ok()) else { continue };
        let meta = document.get("meta").map_or("{}", |meta| meta.get());
        // The values stay raw, because numbers keep their text.
        let Ok(mut meta) = serde_json::from_str::<OjsDocument>(meta) else { return Ok(()) };
        let invalid = |error: serde_json::Error| ApiError::invalid(error.to_string());
        if !meta.contains_key(name) {
            meta.insert(name.to_owned(), to_raw_value(trace).map_err(invalid)?);
        }
        document.insert("meta".into(), to_raw_value(&meta).map_err(invalid)?);
    }
    Ok(())
}

fn set(response: &mut Response<Body>, name: &'static str, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}

/// Sets depth and bound of the queue, and the pressure if it is nearly full (ext backpressure).
/// Sets nothing after an error, because the job is stored.
async fn set_depth_headers(state: &HttpState, queue: &str, response: &mut Response<Body>) {
    if let Ok(Some(level)) = queues::fill_level(&state.app, queue).await {
        set(response, "x-ojs-queue-depth", &level.depth.to_string());
        set(response, "x-ojs-queue-bound", &level.bound.to_string());
        if level.is_nearly_full {
            #[expect(clippy::cast_precision_loss, reason = "it is a hint")]
            let pressure = level.depth as f64 / level.bound.max(1) as f64;
            set(response, "x-ojs-queue-pressure", &format!("{pressure:.2}"));
        }
    }
}

/// Sets the state of a rate limit (extension rate-limiting). Sets nothing after an error.
async fn set_limit_headers(state: &HttpState, key: &str, response: &mut Response<Body>) {
    if let Ok(Some(limit)) = queues::limit(&state.app, key).await {
        let max = limit.terms.rate.or(limit.terms.concurrency).unwrap_or_default();
        set(response, "x-ratelimit-limit", &max.to_string());
        let left = limit.terms.concurrency.map_or(max, |max| max.saturating_sub(limit.active));
        set(response, "x-ratelimit-remaining", &left.to_string());
    }
}

#[derive(Deserialize)]
struct BatchRequest {
    jobs: Vec<OjsDocument>,
}

pub(super) async fn enqueue_all(state: Shared, sender: RequireClient, sent: JsonBody) -> HttpResult {
    let BatchRequest { jobs } = sent.object()?;
    if jobs.is_empty() {
        return Err(ApiError::invalid("jobs is empty: send at least one"));
    }
    let all = ojs_submission::enqueue_all(&state.app, sender.owner(), jobs).await?;
    // The new jobs of a request are jobs of one action.
    let action_id = all.iter().find(|one| one.is_new).map(|one| one.job.job.action_id.clone());
    let jobs = all.into_iter().map(|one| job_view(&one.job)).collect::<Result<Vec<_>, _>>()?;
    let body = object([("count", raw(&jobs.len())), ("jobs", raw(&jobs))])?;
    let response = with_status(StatusCode::CREATED, &body);
    Ok(match action_id {
        Some(action_id) => naming(action_id.as_str(), response),
        None => response,
    })
}

pub(super) async fn get(state: Shared, _: Authenticated, Path(id): Path<String>) -> HttpResult {
    in_object(&lookup::job(&state.app, &job_id(&id)?).await?)
}

pub(super) async fn cancel(state: Shared, _: RequireClient, Path(id): Path<String>) -> HttpResult {
    in_object(&jobs::cancel_unended(&state.app, &job_id(&id)?).await?)
}

pub(super) async fn activate(state: Shared, _: RequireClient, Path(id): Path<String>) -> HttpResult {
    in_object(&jobs::activate(&state.app, &job_id(&id)?).await?)
}

pub(super) async fn retry(state: Shared, _: RequireClient, Path(id): Path<String>) -> HttpResult {
    in_object(&dead_letters::retry(&state.app, &job_id(&id)?).await?)
}

pub(super) async fn retry_dead(state: Shared, _: RequireClient, Path(id): Path<String>) -> HttpResult {
    in_object(&dead_letters::retry_dead(&state.app, &job_id(&id)?).await?)
}

pub(super) async fn progress(state: Shared, _: Authenticated, Path(id): Path<String>) -> HttpResult {
    let job = lookup::job_record(&state.app, &job_id(&id)?).await?;
    Ok(ok(&progress_of(&job)?))
}

pub(super) fn progress_of(job: &Job) -> Object {
    let report = job.ojs.as_ref().and_then(|ojs| ojs.progress.as_ref());
    let progress = job.progress().filter(|_| matches!(job.state, JobState::Active | JobState::Completed));
    let data = report.and_then(|report| serde_json::from_str::<&RawValue>(report.data.as_deref()?).ok());
    object([
        ("job_id", raw(&job.job_id)),
        ("state", raw(job.state.ojs_name())),
        ("progress", raw(&progress)),
        ("message", raw(&report.and_then(|report| report.message.as_ref()))),
        ("data", raw(&data)),
        ("updated_at", raw(&report.map(|report| report.at))),
    ])
}

pub(super) async fn dead_letter(state: Shared, _: RequireClient, Path(id): Path<String>) -> HttpResult {
    in_object(&dead_letters::dead_letter(&state.app, &job_id(&id)?).await?)
}

pub(super) async fn forget_dead(state: Shared, _: RequireClient, Path(id): Path<String>) -> HttpResult {
    let job_id = job_id(&id)?;
    dead_letters::forget_dead(&state.app, &job_id).await?;
    Ok(ok(&json!({"deleted": true, "job_id": job_id})))
}

#[cfg(test)]
mod tests {
    use agenix_protocol::documents::{OjsDocument, parse};
    use axum::http::HeaderMap;

    use super::add_trace;

    /// Returns the metadata of a document with the header `traceparent`.
    fn traced(document: &str) -> Option<String> {
        let mut document: OjsDocument = parse(document.as_bytes()).unwrap();
        let mut headers = HeaderMap::new();
        headers.insert("traceparent", "00-1-2-01".parse().unwrap());
        add_trace(&mut document, &headers).ok().unwrap();
        document.get("meta").map(|meta| meta.get().to_owned())
    }

    #[test]
    fn trace_leaves_the_numbers_of_the_metadata_as_they_are() {
        let meta = traced(r#"{"meta":{"n":123456789012345678901234,"p":1.10}}"#);
        let expected = r#"{"n":123456789012345678901234,"p":1.10,"traceparent":"00-1-2-01"}"#;
        assert_eq!(meta.as_deref(), Some(expected));
        assert_eq!(traced("{}").as_deref(), Some(r#"{"traceparent":"00-1-2-01"}"#));
        let own = r#"{"traceparent":"mine"}"#;
        assert_eq!(traced(&format!(r#"{{"meta":{own}}}"#)).as_deref(), Some(own));
        assert_eq!(traced(r#"{"meta":[1.10]}"#).as_deref(), Some("[1.10]"), "a later check refuses it");
    }
}
