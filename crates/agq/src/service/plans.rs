//! Submission and deletion of plans. A plan is checked once, when it is submitted (AGQ API spec
//! §2).

use agenix_protocol::{
    documents::{self, Plan},
    ids::PlanId,
};
use agenix_rules::{ojs::OJS_PLAN, plan, rejection::Rejection};

use super::{approvals, budgets::SubmitterBudget, chunked_submission};
use crate::{
    app::{AppState, PlanDecision, Submitter},
    auth::keyring::Identity,
    error::Result,
    store::StoredPlan,
};

pub(crate) async fn submit(app: &AppState, by: Submitter<'_>, json: &[u8]) -> Result<PlanId> {
    let limits = &app.settings.limits;
    plan::check_size(json.len(), limits)?;
    let mut plan: Plan =
        documents::parse_object(json).map_err(|error| Rejection::InvalidPlan(error.to_string()))?;
    plan::check(&plan, limits)?;
    let decision = app.plan_policy.check(&plan)?;
    let plan_id = plan.plan_id.get_or_insert_with(|| app.clock.plan_id()).clone();
    if by.agent.is_some() && plan_id.as_str() == OJS_PLAN {
        // agq adds this plan with the first job that needs it.
        return Err(Rejection::PlanExists(plan_id).into());
    }
    let (json, created_at) = (documents::to_json(&plan), app.clock.now());
    let stored = StoredPlan { plan_id: plan_id.clone(), json, created_at, owner: by.owner.cloned() };
    if app.plan_policy.is_on() {
        prepare_approval(app, &stored, by.identity, &decision).await?;
    }
    let is_new = match SubmitterBudget::of(app, by.owner) {
        Some(budget) => app.store.add_booked_plan(stored, budget.booking(0)).await??,
        None => app.store.add_plan(stored).await?,
    };
    if is_new { Ok(plan_id) } else { Err(Rejection::PlanExists(plan_id).into()) }
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
