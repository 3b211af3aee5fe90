//! Operations on an action: cancel and retry.

use agenix_protocol::{documents::Status, ids::ActionId, request::Slice};
use agenix_rules::{
    job::{self, Job, RuleOutcome},
    plan,
};

use super::{action_changes, job_changes::decide_jobs, job_ended::on_jobs_ended, lookup, workflow};
use crate::{app::AppState, error::CommandError};

/// Closes an action, cancels its jobs that have not ended, and returns their number.
pub(crate) async fn cancel(app: &AppState, action_id: &ActionId) -> Result<usize, CommandError> {
    let cancelled = action_changes::cancel(app, action_id).await?;
    on_jobs_ended(app, &cancelled).await?;
    Ok(cancelled.changed)
}

/// Closes an action, cancels its pending jobs, and asks workers to give up the jobs that they have
/// claimed and not started. Returns the number of cancelled jobs. A started job goes on, even if
/// agq has no report of its start yet.
pub(crate) async fn cancel_unstarted(app: &AppState, action_id: &ActionId) -> Result<usize, CommandError> {
    action_changes::close(app, action_id).await?;
    let cancelled = action_changes::cancel_pending(app, action_id).await?;
    action_changes::withdraw_unstarted(app, action_id).await?;
    on_jobs_ended(app, &cancelled).await?;
    Ok(cancelled.changed)
}

/// Queues the failed and dead jobs of an action again, and returns their number.
pub(crate) async fn retry(app: &AppState, action_id: &ActionId) -> Result<usize, CommandError> {
    let (action, _) = lookup::action(app, action_id).await?;
    let plan = lookup::plan(app, &action.plan_id).await?;
    let jobs = app.store.jobs_of(action_id, vec![Status::Failed, Status::Dead], Slice::ALL).await?;
    if let Some(first) = jobs.first()
        && let Some(stored) = app.store.job(first).await?
    {
        plan::check_same_needs(&plan, &action.plan_id, &stored.needs)?;
    }
    // Without failed jobs, nothing is retried and the workflow does not change.
    let place = if jobs.is_empty() { None } else { workflow::place_of_action(app, action_id).await? };
    workflow::resume(app, place.as_ref()).await?;
    let retried = decide_jobs(app, &jobs, || {
        Box::new(|job: Option<&Job>| job.map_or(Ok(RuleOutcome::Unchanged), |job| job::retried(job, true)))
    })
    .await?;
    workflow::resume(app, place.as_ref()).await?;
    Ok(retried.changed)
}
