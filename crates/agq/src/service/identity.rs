//! Identity of a connection (ADR 1), the first of the following that exists: the worker whose own
//! key the connection has shown; the worker that registered on the connection; the registered
//! worker whose id is the name of the connection; the connection itself.

use std::sync::Arc;

use agenix_protocol::ids::{JobId, WorkerId};
use agenix_rules::{
    capability::ClaimantCapabilities,
    job,
    rejection::Rejection,
    worker::{self, Liveness, Worker},
};

use super::{lookup, worker_health::begin_trial};
use crate::{
    app::{AppState, Caller},
    error::Result,
    store::Claimant,
};

/// Rejects a connection with the key of one worker that acts for another worker.
pub(crate) fn check_own(caller: &Caller, worker_id: &WorkerId) -> Result<(), Rejection> {
    worker::check_key(caller.key_worker().as_ref(), worker_id)
}

async fn worker_of(app: &AppState, caller: &Caller) -> Result<Option<Worker>> {
    if let Some(worker_id) = caller.key_worker().or_else(|| caller.registered_here().cloned()) {
        let worker = app.store.worker(&worker_id).await?.filter(|worker| worker.liveness == Liveness::Active);
        return Ok(Some(worker.ok_or_else(|| Rejection::WorkerUnknown(worker_id.clone()))?));
    }
    let Some(name) = caller.claimed_name() else { return Ok(None) };
    match app.store.worker(name).await? {
        None => Ok(None),
        Some(worker) if worker.liveness == Liveness::Active => Ok(Some(worker)),
        Some(_dead) => Err(Rejection::WorkerUnknown(name.clone()).into()),
    }
}

/// Returns the claimant, and the id of a quarantined worker whose trial this claim is. `waits` is
/// true if the claim waits for a job.
pub(crate) async fn claimant(
    app: &AppState,
    caller: &Caller,
    queues: Arc<[String]>,
    waits: bool,
) -> Result<(Claimant, Option<WorkerId>)> {
    let share_terms = app.shares.terms();
    let Some(worker) = worker_of(app, caller).await? else {
        let (holder, capabilities) =
            (Arc::clone(&caller.connection), Arc::new(ClaimantCapabilities::Anything));
        return Ok((Claimant { holder, capabilities, queues, share_terms, visibility_ms: None }, None));
    };
    let is_trial = !worker.takes_jobs() && begin_trial(app, &worker, &queues, waits).await?;
    let capabilities = if worker.takes_jobs() || is_trial {
        app.capabilities.of(&*app.store, &worker).await?
    } else {
        Arc::new(ClaimantCapabilities::Nothing)
    };
    let holder = worker.worker_id.as_str().into();
    let claimant = Claimant { holder, capabilities, queues, share_terms, visibility_ms: None };
    Ok((claimant, is_trial.then_some(worker.worker_id)))
}

pub(crate) async fn reporter_id(app: &AppState, caller: &Caller) -> Result<Option<WorkerId>> {
    if let Some(worker_id) = caller.key_worker() {
        return Ok(Some(worker_id));
    }
    // A dead worker may report, because holder and attempt fence stale reports.
    match caller.registered_here().or(caller.claimed_name()) {
        Some(worker_id) => Ok(app.store.worker(worker_id).await?.map(|worker| worker.worker_id)),
        None => Ok(None),
    }
}

/// Returns the holder that reports: a worker or the connection. A job that the connection itself
/// holds is reported by the connection, whatever this returns ([`job::reporter_of`]).
pub(crate) async fn reporter(app: &AppState, caller: &Caller, named: Option<&WorkerId>) -> Result<Arc<str>> {
    let own = reporter_id(app, caller).await?;
    let Some(reporter_id) = worker::reporter(own.as_ref(), named)? else {
        return Ok(Arc::clone(&caller.connection));
    };
    if own.is_none() && app.store.worker(reporter_id).await?.is_none() {
        return Err(Rejection::WorkerUnknown(reporter_id.clone()).into());
    }
    Ok(reporter_id.as_str().into())
}

/// Rejects a caller that does not hold the job, or no longer holds the attempt.
pub(crate) async fn check_holder(
    app: &AppState,
    caller: &Caller,
    job_id: &JobId,
    attempt: u32,
) -> Result<()> {
    let reporter = reporter(app, caller, None).await?;
    let record = lookup::job_record(app, job_id).await?;
    let reporter = job::reporter_of(&record, &reporter, &caller.connection);
    Ok(job::check_upload(&record, reporter, attempt)?)
}
