//! Staged jobs of actions whose plans waited for approval.

use agenix_protocol::{
    documents::{ApprovalState, Status},
    ids::{ActionId, PlanId},
    request::Slice,
};
use agenix_rules::job::{self, Job, RuleOutcome};
use tracing::error;

use super::{
    action_changes,
    approvals::of_plan,
    job_changes::{BulkChange, decide_jobs, if_exists},
};
use crate::{app::AppState, error::Result};

/// Applies a decision that was made while the jobs of an action were stored as staged. The reaper
/// applies the decision after an error, because the client must not submit stored jobs again.
pub(crate) async fn recheck(app: &AppState, plan_id: &PlanId, action_id: &ActionId) {
    if let Err(error) = apply_decision(app, plan_id, action_id).await {
        error!(%plan_id, %action_id, %error, "a decision could not be applied; a later round tries again");
    }
}

async fn apply_decision(app: &AppState, plan_id: &PlanId, action_id: &ActionId) -> Result<()> {
    match of_plan(app, plan_id).await?.map(|approval| approval.state) {
        None | Some(ApprovalState::Waiting) => Ok(()),
        Some(ApprovalState::Approved) => release(app, plan_id, action_id).await.map(drop),
        // The reaper advances the workflow of the action.
        Some(ApprovalState::Rejected | ApprovalState::Expired) => {
            cancel(app, plan_id, action_id).await.map(drop)
        }
    }
}

/// Releases the staged jobs of an action that run the plan, and returns their number. A job with a
/// start time in the future is scheduled.
pub(super) async fn release(app: &AppState, plan_id: &PlanId, action_id: &ActionId) -> Result<usize> {
    let Some((action, _)) = app.store.action(action_id).await? else { return Ok(0) };
    let (now, run_at) = (app.clock.now(), action.run_at);
    let released = decide_pending(app, plan_id, action_id, move |job| job::released(job, run_at, now));
    Ok(released.await?.changed)
}

/// Cancels the unclaimed jobs of an action that run the plan. Closes an action of the plan.
pub(super) async fn cancel(app: &AppState, plan_id: &PlanId, action_id: &ActionId) -> Result<BulkChange> {
    // The action was not stored, or retention has removed it.
    let Some((action, _)) = app.store.action(action_id).await? else { return Ok(BulkChange::default()) };
    if action.plan_id == *plan_id {
        action_changes::close(app, action_id).await?;
    }
    let now = app.clock.now();
    decide_pending(app, plan_id, action_id, move |job| job::cancelled_unclaimed(job, now)).await
}

/// Applies `rule` to the pending jobs of an action that run the plan. Jobs of other plans in the
/// action are not those of the approval.
async fn decide_pending(
    app: &AppState,
    plan_id: &PlanId,
    action_id: &ActionId,
    rule: impl Fn(&Job) -> RuleOutcome + Clone + Send + Sync + 'static,
) -> Result<BulkChange> {
    let jobs = app.store.jobs_of(action_id, vec![Status::Pending], Slice::ALL).await?;
    decide_jobs(app, &jobs, || {
        let (plan_id, rule) = (plan_id.clone(), rule.clone());
        if_exists(move |job| if job.plan_id == plan_id { rule(job) } else { RuleOutcome::Unchanged })
    })
    .await
}
