//! Probes, metrics, and the manifest of the specification.

use std::time::Duration;

use agenix_protocol::request::CommandAccess;
use axum::{
    body::Body,
    http::{HeaderValue, Response, StatusCode, header},
};
use serde_json::{Value, json};

use crate::{
    http::{
        HttpState, Shared,
        auth::role::Authenticated,
        response::{HttpResult, ok, with_status},
    },
    service::metrics::prometheus,
    store::StoreError,
};

/// Maximum time for which a probe waits for the store.
const PROBE_TIMEOUT: Duration = Duration::from_millis(500);

/// `GET /health`: answers 200 while agq runs. The body has the state of the store, and of the
/// storage of large outputs.
pub(super) async fn health(state: Shared) -> HttpResult {
    let is_healthy = store_state(&state).await.is_ok();
    let word = if is_healthy { "ok" } else { "degraded" };
    Ok(ok(&json!({
        "status": word,
        "version": env!("CARGO_PKG_VERSION"),
        "uptime_seconds": state.app.clock.now().ms_since(state.app.started_at) / 1000,
        "backend": {"type": backend(&state), "status": if is_healthy { "ok" } else { "unhealthy" }},
        "large_outputs": large_outputs(&state),
    })))
}

/// Returns the state of the storage of large outputs. Without this storage, agq still does
/// everything else.
fn large_outputs(state: &HttpState) -> &'static str {
    match &state.app.blobs {
        None => "off",
        Some(storage) if storage.is_available() => "ok",
        Some(_) => "unavailable",
    }
}

/// A longer wait would fail the probe, and an orchestrator would end all agq while the database is
/// away.
async fn store_state(state: &HttpState) -> Result<(), StoreError> {
    let state = state.app.clock.within(PROBE_TIMEOUT, state.app.store.is_healthy()).await;
    let late = || StoreError(format!("it has not answered for {} milliseconds", PROBE_TIMEOUT.as_millis()));
    state.unwrap_or_else(|| Err(late()))
}

/// `GET /ready`: answers 200 if the store works, and 503 otherwise.
pub(super) async fn ready(state: Shared) -> HttpResult {
    match store_state(&state).await {
        Ok(()) => Ok(ok(&json!({"status": "ready", "large_outputs": large_outputs(&state)}))),
        Err(error) => {
            // The error goes to the log only, because a probe needs no key, and the error may name
            // hosts and users.
            tracing::debug!(%error, "the store does not answer");
            let body = json!({"status": "not_ready", "reason": "the store does not answer"});
            Ok(with_status(StatusCode::SERVICE_UNAVAILABLE, &body))
        }
    }
}

/// `GET /metrics`. Every key may read the metrics, because they contain no data of a single job.
/// Workers do not see the budgets.
pub(super) async fn metrics(state: Shared, Authenticated(sender): Authenticated) -> HttpResult {
    let has_budgets = sender.role.allows(CommandAccess::Client);
    let mut response = Response::new(Body::from(prometheus(&state.app, has_budgets).await?));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    Ok(response)
}

/// `GET /ojs/manifest`: the parts of the specification that agq implements.
pub(super) async fn manifest(state: Shared, _: Authenticated) -> HttpResult {
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
