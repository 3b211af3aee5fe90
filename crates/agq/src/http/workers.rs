//! Handlers for workers: fetch, reports, registration and heartbeats.

use agenix_protocol::documents::{OjsAck, OjsFetch, OjsHeartbeat, OjsNack, OjsProgress, OjsRegistration};
use agenix_rules::{
    job::Job,
    ojs::{HEARTBEAT_SECS, SILENCE_MS, VISIBILITY_MS},
    worker::Directive,
};
use axum::{Extension, extract::Path, http::StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    http::{
        HttpState, Shared,
        auth::role::{Authenticated, RequireWorker},
        extract::{JsonBody, job_id, worker_id},
        job_view::job_view,
        jobs::progress_of,
        peer::Peer,
        response::{ApiError, HttpResult, naming, object, ok, raw, with_status},
    },
    service::{fetch, lookup, ojs_reports, ojs_workers},
    store::{Claim, StoredJob},
};

pub(super) async fn fetch(
    state: Shared,
    sender: RequireWorker,
    Extension(peer): Extension<Peer>,
    sent: JsonBody,
) -> HttpResult {
    let body: OjsFetch = sent.object()?;
    let waits = body.wait_ms.is_some();
    let worker = sender.worker();
    let claims = tokio::select! {
        fetched = fetch::fetch(&state.app, worker.as_ref(), body) => fetched?,
        // A client that has left gets no jobs: dropping the future returns the claims to their
        // queues.
        () = peer.gone(), if waits => Vec::new(),
    };
    let jobs = claims.iter().map(|claim| job_view(&stored(claim.get()))).collect::<Result<Vec<_>, _>>()?;
    let reply = object([("job", raw(&jobs.first())), ("jobs", raw(&jobs))])?;
    let response = ok(&reply);
    // Claims that are dropped before this line return to their queues.
    claims.into_iter().for_each(|claim| drop(claim.take()));
    Ok(response)
}

/// Returns the record of a claimed job.
fn stored(claim: &Claim) -> StoredJob {
    StoredJob {
        job: claim.job.clone(),
        queue: claim.queue.clone(),
        needs: Default::default(),
        input: claim.input.clone(),
        results: None,
    }
}

pub(super) async fn ack(state: Shared, sender: RequireWorker, sent: JsonBody) -> HttpResult {
    let body: OjsAck = sent.object()?;
    let id = required_job_id(body.job_id.as_deref())?.to_owned();
    ack_job(&state, &sender, &id, body).await
}

pub(super) async fn ack_named(
    state: Shared,
    sender: RequireWorker,
    Path(id): Path<String>,
    sent: JsonBody,
) -> HttpResult {
    ack_job(&state, &sender, &id, sent.object_or_default()?).await
}

fn required_job_id(job_id: Option<&str>) -> HttpResult<&str> {
    job_id.ok_or_else(|| ApiError::invalid("job_id is missing: name the job"))
}

async fn ack_job(state: &HttpState, sender: &RequireWorker, id: &str, body: OjsAck) -> HttpResult {
    let job = job_view(&ojs_reports::ack(&state.app, sender.worker().as_ref(), &job_id(id)?, body).await?)?;
    Ok(ok(&object([
        ("acknowledged", raw(&true)),
        ("id", raw(&job.id)),
        ("job_id", raw(&job.id)),
        ("state", raw(job.state)),
        ("completed_at", raw(&job.completed_at)),
        ("job", raw(&job)),
    ])?))
}

pub(super) async fn nack(state: Shared, sender: RequireWorker, sent: JsonBody) -> HttpResult {
    let body: OjsNack = sent.object()?;
    let id = required_job_id(body.job_id.as_deref())?.to_owned();
    nack_job(&state, &sender, &id, body).await
}

pub(super) async fn nack_named(
    state: Shared,
    sender: RequireWorker,
    Path(id): Path<String>,
    sent: JsonBody,
) -> HttpResult {
    nack_job(&state, &sender, &id, sent.object_or_default()?).await
}

async fn nack_job(state: &HttpState, sender: &RequireWorker, id: &str, body: OjsNack) -> HttpResult {
    if body.error.is_none() && !body.requeue.unwrap_or_default() {
        return Err(ApiError::invalid("error is missing: describe the failure, or set requeue"));
    }
    let job = job_view(&ojs_reports::nack(&state.app, sender.worker().as_ref(), &job_id(id)?, body).await?)?;
    let mut reply = object([
        ("id", raw(&job.id)),
        ("job_id", raw(&job.id)),
        ("state", raw(job.state)),
        ("attempt", raw(&job.attempt)),
        ("max_attempts", raw(&job.max_attempts)),
        ("next_attempt_at", raw(&job.next_attempt_at)),
        ("retry_delay_ms", raw(&job.retry_delay_ms)),
        ("discarded_at", raw(&job.discarded_at)),
        ("completed_at", raw(&job.completed_at)),
        ("job", raw(&job)),
    ])?;
    reply.retain(|_, value| value.get() != "null");
    Ok(ok(&reply))
}

pub(super) async fn report_progress(state: Shared, sender: RequireWorker, sent: JsonBody) -> HttpResult {
    let body: OjsProgress = sent.object()?;
    let id = required_job_id(body.job_id.as_deref())?.to_owned();
    report_job_progress(&state, &sender, &id, body).await
}

pub(super) async fn report_progress_named(
    state: Shared,
    sender: RequireWorker,
    Path(id): Path<String>,
    sent: JsonBody,
) -> HttpResult {
    report_job_progress(&state, &sender, &id, sent.object()?).await
}

async fn report_job_progress(
    state: &HttpState,
    sender: &RequireWorker,
    id: &str,
    body: OjsProgress,
) -> HttpResult {
    let job: Job =
        ojs_reports::report_progress(&state.app, sender.worker().as_ref(), &job_id(id)?, body).await?;
    Ok(ok(&progress_of(&job)?))
}

pub(super) async fn register(state: Shared, sender: RequireWorker, sent: JsonBody) -> HttpResult {
    let body: OjsRegistration = sent.object()?;
    let worker_id = ojs_workers::register(&state.app, sender.worker().as_ref(), body).await?;
    Ok(ok(&json!({
        "ok": true,
        "worker_id": worker_id,
        "server_time": state.app.clock.now(),
        "heartbeat_interval": HEARTBEAT_SECS,
        "heartbeat_timeout": SILENCE_MS / 1000,
        "visibility_timeout_default": VISIBILITY_MS / 1000,
    })))
}

pub(super) async fn heartbeat(state: Shared, sender: RequireWorker, sent: JsonBody) -> HttpResult {
    let body: OjsHeartbeat = sent.object()?;
    let visibility = body.visibility_timeout_ms.unwrap_or(VISIBILITY_MS) / 1000;
    let beat = ojs_workers::beat(&state.app, sender.worker().as_ref(), &body).await?;
    Ok(ok(&json!({
        "state": beat.state,
        "visibility_timeout": visibility,
        "jobs_extended": beat.extended,
        "jobs_lost": beat.lost,
        "server_time": state.app.clock.now(),
    })))
}

/// `POST workers/beat` (ext graceful-shutdown)
pub(super) async fn beat(state: Shared, sender: RequireWorker, sent: JsonBody) -> HttpResult {
    let mut body: OjsHeartbeat = sent.object()?;
    if body.shutdown == Some(true) {
        body.state = Some("shutting_down".into());
    }
    let own_state = body.state.clone().unwrap_or_else(|| "running".into());
    let beat = ojs_workers::beat(&state.app, sender.worker().as_ref(), &body).await?;
    let reply = if beat.state == "running" { own_state } else { beat.state.to_owned() };
    Ok(ok(&json!({"acknowledged": true, "state": reply, "server_time": state.app.clock.now()})))
}

/// `GET workers/{id}/health` (ext graceful-shutdown)
pub(super) async fn health(state: Shared, _: Authenticated, Path(id): Path<String>) -> HttpResult {
    let worker = lookup::worker(&state.app, &worker_id(&id)?).await?;
    let stats = worker.stats.as_deref().and_then(|stats| serde_json::from_str::<Value>(stats).ok());
    let own_state = stats.as_ref().and_then(|stats| stats.get("state")?.as_str()).unwrap_or("running");
    let state = match (worker.liveness, worker.directive) {
        (agenix_rules::worker::Liveness::Dead, _) => "terminated",
        (_, Some(Directive::Terminate)) => "shutting_down",
        (_, Some(Directive::Drain)) => "draining",
        _ => own_state,
    };
    let status = if state == "running" { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let body = json!({
        "worker_id": worker.worker_id,
        "state": state,
        "status": if state == "running" { "ok" } else { "degraded" },
        "last_seen_at": worker.last_seen_at,
    });
    Ok(with_status(status, &body))
}

#[derive(Deserialize)]
struct WorkerIdBody {
    worker_id: String,
}

pub(super) async fn deregister(state: Shared, sender: RequireWorker, sent: JsonBody) -> HttpResult {
    let WorkerIdBody { worker_id } = sent.object()?;
    deregister_worker(&state, &sender, &worker_id).await
}

pub(super) async fn deregister_named(
    state: Shared,
    sender: RequireWorker,
    Path(id): Path<String>,
) -> HttpResult {
    deregister_worker(&state, &sender, &id).await
}

async fn deregister_worker(state: &HttpState, sender: &RequireWorker, id: &str) -> HttpResult {
    ojs_workers::deregister(&state.app, sender.worker().as_ref(), worker_id(id)?.as_str()).await?;
    Ok(naming(id, ok(&json!({"ok": true, "worker_id": id, "state": "terminated"}))))
}
