//! Handlers of the admin API (extension admin-api).

use agenix_protocol::{documents::Status, request::Search};
use agenix_rules::worker::{Directive, Liveness, Worker};
use axum::extract::{Path, Query};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    http::{
        Shared,
        auth::role::{RequireAdmin, RequireClient},
        extract::{JsonBody, above_zero, job_id, worker_id},
        job_view::job_view,
        queues::{counts, status},
        response::{ApiError, HttpResult, no_content, object, ok, quoted, raw},
    },
    registry::queue_limits::QueueChanges,
    service::{dead_letters, jobs, lookup, queues, workers},
    store::StoredJob,
};

pub(super) async fn stats(state: Shared, _: RequireAdmin) -> HttpResult {
    let all = queues::queue_states(&state.app).await?;
    let mut sum = [0; 8];
    for (_, numbers, _) in &all {
        sum.iter_mut().zip(numbers).for_each(|(sum, number)| *sum += number);
    }
    let workers = state.app.store.workers().await?;
    let alive = workers.iter().filter(|(worker, _)| worker.liveness == Liveness::Active).count();
    let (processed, failed) =
        state.app.throughput.per_minute(state.app.clock.now(), &state.app.store.totals().await?);
    Ok(ok(&json!({
        "queues": all.len(),
        "workers": alive,
        "jobs": counts(&sum),
        "throughput": {"processed_per_minute": processed, "failed_per_minute": failed},
        "uptime_seconds": state.app.clock.now().ms_since(state.app.started_at) / 1000,
    })))
}

fn queue_of(name: &str, numbers: &[u64; 8], paused: bool) -> Value {
    json!({
        "name": name,
        "state": status(paused),
        "paused": paused,
        "counts": counts(numbers),
    })
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct PageQuery {
    page: Option<usize>,
    per_page: Option<usize>,
}

impl PageQuery {
    /// Returns the entries of the page and its `pagination` object.
    fn of(&self, items: Vec<Value>) -> HttpResult<(Vec<Value>, Value)> {
        let per_page = above_zero("per_page", self.per_page)?.unwrap_or(50).min(200);
        let page = self.page.unwrap_or(1).max(1);
        let total = items.len();
        let shown = items.into_iter().skip((page - 1).saturating_mul(per_page)).take(per_page).collect();
        Ok((shown, json!({"total": total, "page": page, "per_page": per_page})))
    }
}

pub(super) async fn queues(state: Shared, _: RequireAdmin, Query(page): Query<PageQuery>) -> HttpResult {
    let all = queues::queue_states(&state.app).await?;
    let items = all.iter().map(|(name, numbers, paused)| queue_of(name, numbers, *paused)).collect();
    let (items, pagination) = page.of(items)?;
    Ok(ok(&json!({"items": items, "pagination": pagination})))
}

pub(super) async fn queue(state: Shared, _: RequireAdmin, Path(name): Path<String>) -> HttpResult {
    let (numbers, paused) = queues::queue_counts(&state.app, &name).await?;
    let mut queue = queue_of(&name, &numbers, paused);
    queue["config"] = json!(queues::queue_settings(&state.app, &name).await?);
    Ok(ok(&queue))
}

pub(super) async fn set_paused<const PAUSED: bool>(
    state: Shared,
    _: RequireAdmin,
    Path(name): Path<String>,
) -> HttpResult {
    queues::pause(&state.app, &name, PAUSED).await?;
    Ok(ok(&json!({"name": name, "paused": PAUSED})))
}

pub(super) async fn config(state: Shared, _: RequireAdmin, Path(name): Path<String>) -> HttpResult {
    Ok(ok(&json!({"name": name, "config": queues::queue_settings(&state.app, &name).await?})))
}

pub(super) async fn configure(
    state: Shared,
    _: RequireAdmin,
    Path(name): Path<String>,
    sent: JsonBody,
) -> HttpResult {
    let changes: QueueChanges = sent.object()?;
    let settings = queues::configure(&state.app, &name, changes).await?;
    Ok(ok(&json!({"name": name, "config": settings})))
}

/// `GET admin/jobs/{id}`: answers with the bare job, without an enclosing object.
pub(super) async fn job(state: Shared, _: RequireAdmin, Path(id): Path<String>) -> HttpResult {
    Ok(ok(&job_view(&lookup::job(&state.app, &job_id(&id)?).await?)?))
}

/// Answers with `{id, state, job}` of a changed job.
fn changed(job: &StoredJob) -> HttpResult {
    let job = job_view(job)?;
    Ok(ok(&object([("id", raw(&job.id)), ("state", raw(job.state)), ("job", raw(&job))])?))
}

pub(super) async fn retry(state: Shared, _: RequireAdmin, Path(id): Path<String>) -> HttpResult {
    changed(&dead_letters::retry(&state.app, &job_id(&id)?).await?)
}

pub(super) async fn retry_dead(state: Shared, _: RequireAdmin, Path(id): Path<String>) -> HttpResult {
    changed(&dead_letters::retry_dead(&state.app, &job_id(&id)?).await?)
}

pub(super) async fn cancel(state: Shared, _: RequireAdmin, Path(id): Path<String>) -> HttpResult {
    changed(&jobs::cancel_unended(&state.app, &job_id(&id)?).await?)
}

#[derive(Debug, Default, Deserialize)]
struct BulkRetry {
    #[serde(default)]
    confirm: bool,
    #[serde(default)]
    filter: BulkFilter,
}

#[derive(Debug, Default, Deserialize)]
struct BulkFilter {
    queue: Option<String>,
    #[serde(rename = "type")]
    job_type: Option<String>,
}

/// `POST admin/jobs/bulk/retry`: retries all failed and dead jobs, or those of a queue or a type.
pub(super) async fn retry_all(state: Shared, _: RequireAdmin, sent: JsonBody) -> HttpResult {
    let bulk: BulkRetry = sent.object_or_default()?;
    if !bulk.confirm {
        let text = "confirm is not true: this request may change many jobs, so it needs \"confirm\": true";
        return Err(ApiError::invalid(text));
    }
    let (mut matched, mut retried) = (0, 0);
    for status in [Status::Failed, Status::Dead] {
        let search = Search { status: Some(status), limit: usize::MAX, ..Search::default() };
        for job_id in state.app.store.search(search, None).await? {
            // Retention may have removed the job since the search.
            let Some(stored) = state.app.store.job(&job_id).await? else { continue };
            let job = job_view(&stored)?;
            let fits = bulk.filter.queue.as_ref().is_none_or(|queue| *queue == job.queue)
                && bulk.filter.job_type.as_ref().is_none_or(|name| *name == job.job_type);
            if fits {
                matched += 1;
                retried += u64::from(dead_letters::retry(&state.app, &job_id).await.is_ok());
            }
        }
    }
    Ok(ok(&json!({"action": "retry", "matched": matched, "succeeded": retried, "failed": matched - retried})))
}

fn worker_json(worker: &Worker, jobs: u64) -> Value {
    json!({
        "id": worker.worker_id,
        "worker_id": worker.worker_id,
        "state": state_of(worker),
        "active_jobs": jobs,
        "concurrency": worker.max_concurrent_jobs,
        "registered_at": worker.registered_at,
        "last_heartbeat_at": worker.last_seen_at,
    })
}

/// Returns the state of a worker as the extension names it.
fn state_of(worker: &Worker) -> &'static str {
    match (worker.liveness, worker.directive) {
        (Liveness::Dead, _) => "stale",
        (_, Some(Directive::Terminate)) => "terminate",
        (_, Some(Directive::Drain)) => "quiet",
        _ if worker.is_quiet || worker.quarantine.is_some() => "quiet",
        _ => "running",
    }
}

pub(super) async fn workers(state: Shared, _: RequireClient, Query(page): Query<PageQuery>) -> HttpResult {
    let all = state.app.store.workers().await?;
    let count = |state: &str| all.iter().filter(|(worker, _)| state_of(worker) == state).count();
    let summary = json!({
        "total": all.len(),
        "running": count("running"),
        "quiet": count("quiet") + count("terminate"),
        "stale": count("stale"),
    });
    let (items, pagination) =
        page.of(all.iter().map(|(worker, jobs)| worker_json(worker, *jobs)).collect())?;
    Ok(ok(&json!({"items": items, "summary": summary, "pagination": pagination})))
}

pub(super) async fn worker(state: Shared, _: RequireClient, Path(id): Path<String>) -> HttpResult {
    let worker = lookup::worker(&state.app, &worker_id(&id)?).await?;
    let jobs = state.app.store.held_by(worker.worker_id.as_str()).await?;
    let mut shown = worker_json(&worker, jobs.len() as u64);
    shown["active_job_ids"] = json!(jobs);
    Ok(ok(&shown))
}

/// `POST admin/workers/{id}/quiet|terminate|resume`
pub(super) async fn set_directive(
    state: Shared,
    _: RequireAdmin,
    Path((id, order)): Path<(String, String)>,
) -> HttpResult {
    let directive = match order.as_str() {
        "quiet" => Some(Directive::Drain),
        "terminate" => Some(Directive::Terminate),
        "resume" => None,
        other => {
            let text = format!("there is no directive '{}': use quiet, terminate or resume", quoted(other));
            return Err(ApiError::not_found(text));
        }
    };
    let worker_id = worker_id(&id)?;
    workers::set_directive(&state.app, &worker_id, directive).await?;
    let worker = lookup::worker(&state.app, &worker_id).await?;
    Ok(ok(&json!({"worker_id": worker_id, "state": state_of(&worker)})))
}

pub(super) async fn dead_letter(state: Shared, _: RequireAdmin, Path(id): Path<String>) -> HttpResult {
    Ok(ok(&job_view(&dead_letters::dead_letter(&state.app, &job_id(&id)?).await?)?))
}

pub(super) async fn forget_dead(state: Shared, _: RequireAdmin, Path(id): Path<String>) -> HttpResult {
    dead_letters::forget_dead(&state.app, &job_id(&id)?).await?;
    Ok(no_content())
}
