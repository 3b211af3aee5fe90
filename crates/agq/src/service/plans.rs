//! Submission and deletion of plans. A plan is checked once, when it is submitted (AGQ API spec
//! §2).

use agenix_protocol::{
    documents::{self, Plan},
    ids::PlanId,
};
use agenix_rules::{ojs::OJS_PLAN, plan, rejection::Rejection};

use super::{budgets::SubmitterBudget, chunked_submission};
use crate::{
    app::{AppState, Submitter},
    error::Result,
    store::StoredPlan,
};

pub(crate) async fn submit(app: &AppState, by: Submitter<'_>, json: &[u8]) -> Result<PlanId> {
    let limits = &app.settings.limits;
    plan::check_size(json.len(), limits)?;
    let mut plan: Plan =
        documents::parse_object(json).map_err(|error| Rejection::InvalidPlan(error.to_string()))?;
    plan::check(&plan, limits)?;
    app.plan_policy.check(&plan)?;
    let plan_id = plan.plan_id.get_or_insert_with(|| app.clock.plan_id()).clone();
    if by.agent.is_some() && plan_id.as_str() == OJS_PLAN {
        // agq adds this plan with the first job that needs it.
        return Err(Rejection::PlanExists(plan_id).into());
    }
    let (json, created_at) = (documents::to_json(&plan), app.clock.now());
    let stored = StoredPlan { plan_id: plan_id.clone(), json, created_at, owner: by.owner.cloned() };
    let is_new = match SubmitterBudget::of(app, by.owner) {
        Some(budget) => app.store.add_booked_plan(stored, budget.booking(0)).await??,
        None => app.store.add_plan(stored).await?,
    };
    if is_new { Ok(plan_id) } else { Err(Rejection::PlanExists(plan_id).into()) }
}

/// Returns false if there is no such plan.
pub(crate) async fn delete(app: &AppState, plan_id: &PlanId) -> Result<bool> {
    // Inputs that are not stored yet need their plan.
    chunked_submission::finish_all(app).await?;
    Ok(app.store.delete_plan(plan_id).await??)
}
