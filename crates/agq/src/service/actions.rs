//! Operations on an action: cancel and retry.

use std::collections::{BTreeMap, HashMap};

use agenix_protocol::{
    documents::Status,
    ids::{ActionId, JobId, PlanId},
    request::Slice,
};
use agenix_rules::{
    action::Action,
    action_bounds,
    job::{self, Job, RuleOutcome},
};
use futures_util::future::try_join_all;

use super::{
    action_changes, approvals, job_changes::decide_jobs, job_ended::on_jobs_ended, lookup, workflow,
};
use crate::{app::AppState, error::Result};

/// Number of records that are read at the same time.
const READ_STEP: usize = 100;

/// Returns the number of cancelled jobs.
pub(crate) async fn cancel(app: &AppState, action_id: &ActionId) -> Result<usize> {
    let cancelled = action_changes::cancel(app, action_id).await?;
    on_jobs_ended(app, &cancelled).await;
    Ok(cancelled.changed)
}

/// Cancels the pending jobs, asks workers to give up claimed jobs that have not started, and
/// returns the number of cancelled jobs. A started job continues, even if its start is not reported
/// yet.
pub(crate) async fn cancel_unstarted(app: &AppState, action_id: &ActionId) -> Result<usize> {
    action_changes::close(app, action_id).await?;
    let cancelled = action_changes::cancel_pending(app, action_id).await?;
    action_changes::withdraw_unstarted(app, action_id).await?;
    on_jobs_ended(app, &cancelled).await;
    Ok(cancelled.changed)
}

/// Returns the number of retried jobs.
pub(crate) async fn retry(app: &AppState, action_id: &ActionId) -> Result<usize> {
    let (action, _) = lookup::action(app, action_id).await?;
    lookup::plan(app, &action.plan_id).await?;
    approvals::check_open(app, &action.plan_id, action_id).await?;
    let jobs = app.store.jobs_of(action_id, vec![Status::Failed, Status::Dead], Slice::ALL).await?;
    check_plans(app, &action, &jobs).await?;
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

/// Checks that a retry of each of the jobs would run the plan that the job was submitted with. A
/// batch over HTTP has several plans, and the plan of an open action may have been replaced. Jobs
/// of the same plan and lane have the same needs, so one of them is checked.
async fn check_plans(app: &AppState, action: &Action, jobs: &[JobId]) -> Result<()> {
    let mut examples: BTreeMap<PlanId, HashMap<u32, JobId>> = BTreeMap::new();
    for step in jobs.chunks(READ_STEP) {
        let records = try_join_all(step.iter().map(|job_id| app.store.job_record(job_id))).await?;
        for job in records.into_iter().flatten() {
            examples.entry(job.plan_id).or_default().entry(job.lane).or_insert(job.job_id);
        }
    }
    for (plan_id, by_lane) in examples {
        approvals::check_open(app, &plan_id, &action.action_id).await?;
        let plan = lookup::plan(app, &plan_id).await?;
        let examples: Vec<JobId> = by_lane.into_values().collect();
        for step in examples.chunks(READ_STEP) {
            for stored in
                try_join_all(step.iter().map(|job_id| app.store.job(job_id))).await?.iter().flatten()
            {
                action_bounds::check_same_needs(action, &plan, &plan_id, &stored.needs)?;
            }
        }
    }
    Ok(())
}
