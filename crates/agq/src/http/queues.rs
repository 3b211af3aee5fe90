//! Handlers of queues and rate limits.

use agenix_rules::{job::JobState, limit::Limit};
use axum::extract::{Path, Query};
use serde_json::{Value, json};

use crate::{
    http::{
        HttpState, Shared,
        auth::role::{Authenticated, RequireAdmin, RequireClient},
        list_query::ListQuery,
        response::{ApiError, HttpResult, ok, quoted},
    },
    service::queues,
    store::DocumentKind,
};

/// Returns the number of jobs in each state, under the names of the specification.
pub(super) fn counts(counts: &[u64; 8]) -> Value {
    let of = |state: JobState| counts[state as usize];
    json!({
        "available": of(JobState::Available),
        "active": of(JobState::Active),
        "scheduled": of(JobState::Scheduled),
        "retryable": of(JobState::Retryable),
        "pending": of(JobState::Staged),
        "completed": of(JobState::Completed),
        "cancelled": of(JobState::Cancelled),
        "discarded": of(JobState::Discarded),
    })
}

fn queue(name: &str, numbers: &[u64; 8], paused: bool) -> Value {
    let mut queue = counts(numbers);
    queue["name"] = name.into();
    queue["paused"] = paused.into();
    queue["status"] = status(paused).into();
    queue
}

pub(super) async fn list(state: Shared, _: Authenticated, Query(query): Query<ListQuery>) -> HttpResult {
    let (shown, pagination) = query.page_of(queues::queue_states(&state.app).await?)?;
    let queues: Vec<Value> =
        shown.iter().map(|(name, counts, paused)| queue(name, counts, *paused)).collect();
    Ok(ok(&json!({"queues": queues, "pagination": pagination})))
}

pub(super) async fn stats(state: Shared, _: Authenticated, Path(name): Path<String>) -> HttpResult {
    let (numbers, paused) = queues::queue_counts(&state.app, &name).await?;
    let mut stats = counts(&numbers);
    stats["queue"] = name.as_str().into();
    stats["depth"] = numbers[JobState::Available as usize].into();
    stats["paused"] = paused.into();
    if let Some(level) = queues::fill_level(&state.app, &name).await? {
        stats["max_depth"] = level.bound.into();
    }
    Ok(ok(&json!({"queue": queue(&name, &numbers, paused), "stats": stats})))
}

pub(super) async fn set_paused<const PAUSED: bool>(
    state: Shared,
    _: RequireAdmin,
    Path(name): Path<String>,
) -> HttpResult {
    queues::pause(&state.app, &name, PAUSED).await?;
    Ok(ok(&json!({"queue": {"name": name, "paused": PAUSED, "status": status(PAUSED)}})))
}

/// Returns the status of a queue, as the specification names it.
pub(super) fn status(paused: bool) -> &'static str {
    if paused { "paused" } else { "active" }
}

/// Requires a client, because keys of limits have values of inputs and ids of plans and actions.
pub(super) async fn limit(state: Shared, _: RequireClient, Path(key): Path<String>) -> HttpResult {
    let limit = queues::limit(&state.app, &key).await?;
    let limit =
        limit.ok_or_else(|| ApiError::not_found(format!("no job has the limit '{}'", quoted(&key))))?;
    Ok(ok(&limit_of(&state, &key, &limit)))
}

/// Requires a client as [`limit`] does.
pub(super) async fn limits(state: Shared, _: RequireClient, Query(query): Query<ListQuery>) -> HttpResult {
    let (documents, pagination) = query.page_of(state.app.store.documents(DocumentKind::Limit).await?)?;
    let mut items = Vec::new();
    for (key, json) in documents {
        if let Ok(limit) = serde_json::from_str::<Limit>(&json) {
            items.push(limit_of(&state, &key, &limit));
        }
    }
    Ok(ok(&json!({"rate_limits": items, "pagination": pagination})))
}

fn limit_of(state: &HttpState, key: &str, limit: &Limit) -> Value {
    let now = state.app.clock.now();
    json!({
        "key": key,
        "concurrency": {"limit": limit.terms.concurrency, "active": limit.active},
        "rate": limit.terms.rate.map(|rate| json!({
            "limit": rate, "period_ms": limit.terms.period_ms, "next_at": limit.begins_at(now),
        })),
        "on_limit": "wait",
        "admits": limit.admits(now),
    })
}
