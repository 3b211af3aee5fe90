//! Claims of an OJS worker.

use super::ojs_workers::{check_visibility, reporting_worker, seen_worker};
use crate::{
    app::AppState,
    error::Result,
    service::{
        claim_gate, queues,
        timers::fire_due_jobs,
        worker_health::{begin_trial, end_trial_claim},
    },
    store::{AckLevel, Claim, Claimant},
    waiters::Handoff,
};
use agenix_protocol::{
    documents::{OjsFetch, Quantities},
    ids::WorkerId,
    limits::MAX_CLAIMED_QUEUES,
    request::BlockingWait,
};
use agenix_rules::{
    capability::ClaimantCapabilities,
    job,
    ojs::{NOBODY, OJS_TAG},
    rejection::Rejection,
    worker::{self, Worker},
};
use serde_json::{Map, Value};
const MAX_FETCHED: u64 = 1000;

/// Maximum wait for a job, in milliseconds.
const MAX_WAIT_MS: u64 = 60_000;

/// Maximum number of due jobs that a fetch makes available.
const MAX_DUE: usize = 100;

/// Claims in the order of the queues. A job returns to its queue when its handoff is dropped.
pub(crate) async fn fetch(
    app: &AppState,
    own: Option<&WorkerId>,
    request: OjsFetch,
) -> Result<Vec<Handoff<Claim>>> {
    if request.queues.is_empty() {
        let text = "queues is empty: name at least one to fetch from";
        return Err(Rejection::InvalidJob(text.into()).into());
    }
    if request.queues.len() > MAX_CLAIMED_QUEUES {
        let text = format!("queues has {} queues, max {MAX_CLAIMED_QUEUES}", request.queues.len());
        return Err(Rejection::InvalidJob(text).into());
    }
    request.queues.iter().try_for_each(|queue| queues::check(queue).map(drop))?;
    check_visibility(request.visibility_timeout_ms)?;
    let worker_id = reporting_worker(own, request.worker_id.as_deref())?;
    let count = request.count.unwrap_or(1).min(MAX_FETCHED);
    let evictions = app.waiters.evictions();
    let worker = match &worker_id {
        Some(worker_id) => Some(seen_worker(app, worker_id, request.worker_id.as_deref()).await?),
        None => None,
    };
    let claimant = claimant(app, worker.as_ref(), &request).await?;
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let jobs = match worker.as_ref().filter(|worker| !worker.wants_jobs()) {
        None => take(app, claimant, evictions, count, request.wait_ms).await?,
        Some(worker)
            if !worker.is_quiet
                && count > 0
                && begin_trial(app, worker, &claimant.queues, request.wait_ms.unwrap_or_default() > 0)
                    .await? =>
        {
            let jobs = take(app, claimant, evictions, 1, request.wait_ms).await?;
            end_trial_claim(app, &worker.worker_id, !jobs.is_empty()).await?;
            jobs
        }
        Some(_takes_no_jobs) => Vec::new(),
    };
    let jobs = claim_gate::admit(app, jobs).await?;
    if let Some(worker) = &worker {
        outlive_leases(app, worker, jobs.iter().map(Handoff::get)).await?;
    }
    jobs.iter().for_each(|job| app.job_times.claimed(job.get()));
    Ok(jobs)
}

/// Lets a worker that has only fetched be silent for as long as the longest lease of `claims`.
/// Otherwise the worker would count as dead while it runs a job with a longer visibility timeout.
async fn outlive_leases(app: &AppState, worker: &Worker, claims: impl Iterator<Item = &Claim>) -> Result<()> {
    let leases = claims.filter_map(|claim| claim.job.ojs.as_ref().map(|ojs| ojs.lease_ms));
    let longest = leases.max().unwrap_or_default();
    if worker::with_longer_lease(worker, longest).is_none() {
        return Ok(());
    }
    let rule =
        move |known: Option<&Worker>| Ok(known.and_then(|known| worker::with_longer_lease(known, longest)));
    app.store.decide_worker(&worker.worker_id, AckLevel::Applied, None, Box::new(rule)).await??;
    Ok(())
}

/// Waits up to `wait_ms` for the first job if none is ready.
async fn take(
    app: &AppState,
    claimant: Claimant,
    evictions: u64,
    count: usize,
    wait_ms: Option<u64>,
) -> Result<Vec<Handoff<Claim>>> {
    let mut jobs = app.waiters.jobs_now(&claimant, count).await?;
    if jobs.len() < count && fire_due_jobs(app, job::due_while_waiting, MAX_DUE).await? > 0 {
        // Retries and delayed jobs do not wait for the next round of the reaper. Leases do, because
        // the reaper first gives attempts the time back that passed unobserved.
        jobs.extend(app.waiters.jobs_now(&claimant, count - jobs.len()).await?);
    }
    let wait = wait_ms.unwrap_or_default().min(MAX_WAIT_MS);
    if !jobs.is_empty() || wait == 0 || count == 0 {
        return Ok(jobs);
    }
    let mut jobs = app.waiters.jobs(claimant.clone(), evictions, BlockingWait::Ms(wait), count).await?;
    if !jobs.is_empty() && jobs.len() < count {
        jobs.extend(app.waiters.jobs_now(&claimant, count - jobs.len()).await?);
    }
    Ok(jobs)
}

async fn claimant(app: &AppState, worker: Option<&Worker>, request: &OjsFetch) -> Result<Claimant> {
    let capabilities = match worker {
        Some(worker) => app.capabilities.of(&*app.store, worker).await?,
        None => {
            let tags: Map<String, Value> = [(OJS_TAG.to_owned(), Value::Bool(true))].into_iter().collect();
            app.capabilities.shared(ClaimantCapabilities::Worker {
                commands: Default::default(),
                tags,
                profiles: None,
                offered: Quantities::default(),
            })
        }
    };
    Ok(Claimant {
        holder: worker.map_or(NOBODY, |worker| worker.worker_id.as_str()).into(),
        capabilities,
        queues: request.queues.clone().into(),
        share_terms: app.shares.terms(),
        visibility_ms: request.visibility_timeout_ms,
    })
}
