//! Operations on an action: cancel and retry.

use agenix_protocol::{documents::Status, ids::ActionId, request::Slice};
use agenix_rules::{
    action_bounds,
    job::{self, Job, RuleOutcome},
};

use super::{
    action_changes, approvals, job_changes::decide_jobs, job_ended::on_jobs_ended, lookup, workflow,
};
use crate::{app::AppState, error::Result};

/// Returns the number of cancelled jobs.
pub(crate) async fn cancel(app: &AppState, action_id: &ActionId) -> Result<usize> {
    let cancelled = action_changes::cancel(app, action_id).await?;
    on_jobs_ended(app, &cancelled).await?;
    Ok(cancelled.changed)
}

/// Cancels the pending jobs, asks workers to give up claimed jobs that have not started, and
/// returns the number of cancelled jobs. A started job goes on, even if its start is not reported
/// yet.
pub(crate) async fn cancel_unstarted(app: &AppState, action_id: &ActionId) -> Result<usize> {
    action_changes::close(app, action_id).await?;
    let cancelled = action_changes::cancel_pending(app, action_id).await?;
    action_changes::withdraw_unstarted(app, action_id).await?;
    on_jobs_ended(app, &cancelled).await?;
    Ok(cancelled.changed)
}

/// Returns the number of retried jobs.
pub(crate) async fn retry(app: &AppState, action_id: &ActionId) -> Result<usize> {
    let (action, _) = lookup::action(app, action_id).await?;
    let plan = lookup::plan(app, &action.plan_id).await?;
    approvals::check_open(app, &action.plan_id, action_id).await?;
    let jobs = app.store.jobs_of(action_id, vec![Status::Failed, Status::Dead], Slice::ALL).await?;
    if let Some(first) = jobs.first()
        && let Some(stored) = app.store.job(first).await?
    {
        action_bounds::check_same_needs(&action, &plan, &action.plan_id, &stored.needs)?;
    }
    // Without failed jobs, nothing is retried and the workflow does not change.
    let place = if jobs.is_empty() { None } else { workflow::place_of_action(app, action_id).await? };
    workflow::resume(app, place.as_ref()).await?;
    let now = app.clock.now();
    let retried = decide_jobs(app, &jobs, || {
        Box::new(move |job: Option<&Job>| {
            job.map_or(Ok(RuleOutcome::Unchanged), |job| job::retried(job, true, now))
        })
    })
    .await?;
    workflow::resume_after_retry(app, place.as_ref()).await?;
    Ok(retried.changed)
}
