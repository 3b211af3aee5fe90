//! Records that an owner has submitted.

use agenix_protocol::ids::{ActionId, JobId, PlanId};
use agenix_rules::{action::Action, job::Job, owner::Owner};

use crate::{app::AppState, error::Result};

/// Returns true if `owner` owns the plan.
pub(crate) async fn plan(app: &AppState, owner: &Owner, plan_id: &PlanId) -> Result<bool> {
    let found = app.store.plan(plan_id).await?;
    Ok(found.is_some_and(|plan| plan.owner.as_ref() == Some(owner)))
}

/// Returns the action, if `owner` owns it.
pub(crate) async fn action(app: &AppState, owner: &Owner, action_id: &ActionId) -> Result<Option<Action>> {
    let found = app.store.action(action_id).await?.map(|(action, _)| action);
    Ok(found.filter(|action| action.owner.as_ref() == Some(owner)))
}

/// Returns the job, if `owner` owns it.
pub(crate) async fn job(app: &AppState, owner: &Owner, job_id: &JobId) -> Result<Option<Job>> {
    let found = app.store.job_record(job_id).await?;
    Ok(found.filter(|job| job.owner.as_ref() == Some(owner)))
}
