//! Whether agq is well, what it can do, and its figures.

use std::{sync::Arc, time::Duration};

use axum::{
    body::Body,
    extract::State,
    http::{HeaderValue, Response, StatusCode, header},
};
use serde_json::{Value, json};

use crate::{
    http::{
        HttpState,
        auth::role::Authenticated,
        response::{HttpResult, ok, with_status},
    },
    service::metrics::prometheus,
    store::StoreError,
};

/// Maximum time for which a probe waits for the store.
const PROBE_TIMEOUT: Duration = Duration::from_millis(500);

/// `GET /health`: it runs, and whether its store answers.
pub(super) async fn health(State(state): State<Arc<HttpState>>) -> HttpResult {
    let is_healthy = store_state(&state).await.is_ok();
    let word = if is_healthy { "ok" } else { "degraded" };
    Ok(ok(&json!({
        "status": word,
        "version": env!("CARGO_PKG_VERSION"),
        "uptime_seconds": state.app.clock.now().ms_since(state.app.started_at) / 1000,
        "backend": {"type": backend(&state), "status": if is_healthy { "ok" } else { "unhealthy" }},
    })))
}

/// Returns whether the store can do its work, within `PROBE_TIMEOUT` even if the store does not
/// answer. An orchestrator takes a process that does not answer for dead, and would end all
/// processes while the database is away.
async fn store_state(state: &HttpState) -> Result<(), StoreError> {
    let state = state.app.clock.within(PROBE_TIMEOUT, state.app.store.is_healthy()).await;
    let late = || StoreError(format!("it has not answered for {} milliseconds", PROBE_TIMEOUT.as_millis()));
    state.unwrap_or_else(|| Err(late()))
}

/// `GET /ready`: whether it can do what it is asked.
pub(super) async fn ready(State(state): State<Arc<HttpState>>) -> HttpResult {
    match store_state(&state).await {
        Ok(()) => Ok(ok(&json!({"status": "ready"}))),
        Err(error) => {
            // A probe needs no key, so the text of the store is for the log alone, because that
            // text may name hosts and users.
            tracing::debug!(%error, "the store does not answer");
            let body = json!({"status": "not_ready", "reason": "the store does not answer"});
            Ok(with_status(StatusCode::SERVICE_UNAVAILABLE, &body))
        }
    }
}

/// `GET /metrics`: the text format of Prometheus. Every key may read it: it says nothing of any one job.
pub(super) async fn metrics(State(state): State<Arc<HttpState>>, _: Authenticated) -> HttpResult {
    let mut response = Response::new(Body::from(prometheus(&state.app).await?));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    Ok(response)
}

/// `GET /ojs/manifest`: what agq implements of the specification.
pub(super) async fn manifest(State(state): State<Arc<HttpState>>, _: Authenticated) -> HttpResult {
    Ok(ok(&document(backend(&state))))
}

fn document(backend: &str) -> Value {
    let extension = |name: &str| json!({"name": name, "version": "1.0"});
    let extensions = [
        "admin-api",
        "backpressure",
        "dead-letter",
        "events",
        "graceful-shutdown",
        "observability",
        "progress",
        "rate-limiting",
    ];
    json!({
        "specversion": "1.0",
        "ojs_version": "1.0",
        "implementation": {"name": "agq", "version": env!("CARGO_PKG_VERSION"), "language": "rust"},
        "conformance_level": 4,
        "conformance_tier": "runtime",
        "protocols": ["http"],
        "backend": backend,
        "capabilities": {
            "batch_enqueue": true, "cron_jobs": true, "dead_letter": true, "delayed_jobs": true, "job_ttl": true,
            "priority_queues": true, "rate_limiting": true, "schema_validation": false, "unique_jobs": true,
            "workflows": true, "pause_resume": true,
        },
        "unique_job_strength": "strong",
        "extensions": extensions.map(extension),
    })
}

fn backend(state: &HttpState) -> &'static str {
    if state.app.store.node().is_some() { "postgresql" } else { "redb" }
}
