//! Staged jobs of actions whose plans waited for approval.

use agenix_protocol::{
    documents::{ApprovalState, Status},
    ids::{ActionId, PlanId},
    request::Slice,
};
use agenix_rules::job::{self, RuleOutcome};

use super::{
    action_changes,
    approvals::of_plan,
    job_changes::{decide_jobs, if_exists},
};
use crate::{app::AppState, error::Result};

/// Applies a decision that was made while the jobs of an action were stored as staged.
pub(crate) async fn recheck(app: &AppState, plan_id: &PlanId, action_id: &ActionId) -> Result<()> {
    if !app.plan_policy.is_on() {
        return Ok(());
    }
    // Boxed, because the future contains cancellations, and every submission contains the future.
    Box::pin(recheck_decision(app, plan_id, action_id)).await
}

async fn recheck_decision(app: &AppState, plan_id: &PlanId, action_id: &ActionId) -> Result<()> {
    match of_plan(app, plan_id).await?.map(|approval| approval.state) {
        None | Some(ApprovalState::Waiting) => Ok(()),
        Some(ApprovalState::Approved) => release(app, action_id).await.map(drop),
        // The reaper advances the workflow of the action.
        Some(ApprovalState::Rejected | ApprovalState::Expired) => {
            action_changes::cancel(app, action_id).await.map(drop)
        }
    }
}

/// Releases the staged jobs of an action.
pub(super) async fn release(app: &AppState, action_id: &ActionId) -> Result<usize> {
    let jobs = app.store.jobs_of(action_id, vec![Status::Pending], Slice::ALL).await?;
    let now = app.clock.now();
    let released = decide_jobs(app, &jobs, || {
        if_exists(move |job| job::activated(job, now).unwrap_or(RuleOutcome::Unchanged))
    });
    Ok(released.await?.changed)
}
