//! Submission and deletion of plans. A plan is checked once, when it is submitted (AGQ API spec
//! §2).

use agenix_protocol::{
    documents::{self, Plan},
    ids::PlanId,
};
use agenix_rules::{plan, rejection::Rejection};

use super::{approvals, chunked_submission};
use crate::{
    app::{AppState, PlanDecision},
    auth::keyring::Identity,
    error::Result,
    store::StoredPlan,
};

/// Stores a plan. `submitter` is the identity of the sender's key.
pub(crate) async fn submit(app: &AppState, json: &[u8], submitter: Option<&Identity>) -> Result<PlanId> {
    let limits = &app.settings.limits;
    plan::check_size(json.len(), limits)?;
    let mut plan: Plan =
        documents::parse_object(json).map_err(|error| Rejection::InvalidPlan(error.to_string()))?;
    plan::check(&plan, limits)?;
    let decision = app.plan_policy.check(&plan)?;
    let plan_id = plan.plan_id.get_or_insert_with(|| app.clock.plan_id()).clone();
    let stored =
        StoredPlan { plan_id: plan_id.clone(), json: documents::to_json(&plan), created_at: app.clock.now() };
    if app.plan_policy.is_on() {
        prepare_approval(app, &stored, submitter, &decision).await?;
    }
    if app.store.add_plan(stored).await? { Ok(plan_id) } else { Err(Rejection::PlanExists(plan_id).into()) }
}

/// Stores or removes the approval of a plan that is about to be stored.
async fn prepare_approval(
    app: &AppState,
    plan: &StoredPlan,
    submitter: Option<&Identity>,
    decision: &PlanDecision,
) -> Result<()> {
    if app.store.plan(&plan.plan_id).await?.is_some() {
        return Err(Rejection::PlanExists(plan.plan_id.clone()).into());
    }
    match decision {
        PlanDecision::NeedsApproval(judgement, policy) => {
            approvals::request(app, plan, submitter, (judgement, policy.clone())).await
        }
        // A plan of this id may have been deleted.
        PlanDecision::Allowed => approvals::forget(app, &plan.plan_id).await,
    }
}

/// Returns false if there is no such plan.
pub(crate) async fn delete(app: &AppState, plan_id: &PlanId) -> Result<bool> {
    // Inputs that are not stored yet need their plan.
    chunked_submission::finish_all(app).await?;
    let is_deleted = app.store.delete_plan(plan_id).await??;
    if is_deleted && app.plan_policy.is_on() {
        approvals::forget(app, plan_id).await?;
    }
    Ok(is_deleted)
}
