//! Explanation of the reason why a job does not run.

use std::collections::BTreeMap;

use agenix_protocol::{
    documents::{Explanation, Nearest, Quantities, Status, WaitsFor},
    ids::JobId,
    time::Timestamp,
};
use agenix_rules::{
    budget::JobBudget,
    explain::{self, Candidate},
    job::{self, JobState},
    limit::Limit,
    resources,
};

use super::{approvals, budgets, lookup};
use crate::{
    app::AppState,
    error::Result,
    store::{DocumentKind, StoredJob},
};

/// Maximum number of jobs ahead that are counted.
const MAX_AHEAD: usize = 10_000;

pub(crate) async fn explain(app: &AppState, job_id: &JobId) -> Result<Explanation> {
    let StoredJob { job, queue, needs, .. } = lookup::job(app, job_id).await?;
    let paused = app.store.paused().await?.contains(&queue);
    let ahead = app.store.position(&job, MAX_AHEAD).await?;
    let mut candidates = Vec::new();
    let wanted = needs.resources.as_deref();
    let used = if wanted.is_some() { app.store.used_resources(None).await? } else { BTreeMap::new() };
    for (worker, active_jobs) in app.store.workers().await? {
        let capabilities = app.capabilities.of(&*app.store, &worker).await?;
        let (mut shortfall, mut occupied, none) = (0, Vec::new(), Quantities::default());
        let is_partly_used = used.contains_key(worker.worker_id.as_str());
        if let (Some(offered), Some(wanted)) = (capabilities.offered(), wanted) {
            let used = used.get(worker.worker_id.as_str()).unwrap_or(&none);
            shortfall = resources::shortfall(offered, wanted);
            occupied = resources::occupied(offered, used, wanted).collect();
        }
        let missing = capabilities.missing(&needs);
        candidates.push(Candidate { worker, missing, shortfall, occupied, is_partly_used, active_jobs });
    }
    let nearest = explain::nearest(candidates);
    let now = app.clock.now();
    let waits = job.state == JobState::Available && !paused;
    let limited = match &needs.limit {
        Some(key) if waits => limited(app, key, now).await?,
        _ => None,
    };
    let waiting = match job.state {
        JobState::Staged => approvals::reason(app, &job.plan_id).await?,
        _ => None,
    };
    let limited = match job::start_of(&job) {
        Some((name, bound)) if waits && limited.is_none() => {
            let budget = JobBudget { name: name.to_owned(), bound, ..JobBudget::default() };
            budgets::reason(app, &budget, now).await?
        }
        _ => limited,
    };
    let reason =
        waiting.or(limited).unwrap_or_else(|| explain::reason(&job, &queue, paused, ahead, &nearest, now));
    let (profile, tags) = needs.profile_and_tags();
    let sandbox = profile.map(str::to_owned);
    let waits_for = (job.status() == Status::Pending).then_some(WaitsFor {
        queue,
        priority: job.priority,
        tags,
        sandbox,
        resources: needs.resources.as_deref().cloned().unwrap_or_default(),
        tools: needs.tools,
        labels: needs.labels,
        due_at: job.available_from(),
        paused,
    });
    let workers = nearest.into_iter().map(|Candidate { worker, missing, active_jobs, .. }| Nearest {
        state: worker.state().into(),
        missing,
        active_jobs,
        max_concurrent_jobs: worker.max_concurrent_jobs,
        worker_id: worker.worker_id,
    });
    Ok(Explanation {
        status: job.status(),
        state: job.state.as_str().into(),
        reason,
        jobs_ahead: if waits_for.is_some() { ahead } else { 0 },
        waits_for,
        workers: workers.collect(),
        job_id: job.job_id,
    })
}

/// Returns the reason if the limit `key` delays its jobs.
async fn limited(app: &AppState, key: &str, now: Timestamp) -> Result<Option<String>> {
    let Some(json) = app.store.document(DocumentKind::Limit, key).await? else { return Ok(None) };
    let limit: Limit = lookup::parse("limit", key, &json)?;
    Ok(explain::limited(key, &limit, now))
}
