//! PLAN.*: plans are checked once, when they come in (AGQ API spec §2).

use std::sync::Arc;

use agenix_protocol::{
    documents::{self, Plan},
    ids::PlanId,
    request::Page,
    resp::Reply,
};
use agenix_rules::{plan, rejection::Rejection};

use super::submission;
use crate::{
    app::AppState,
    error::CommandError,
    resp::outcome::CommandResult,
    store::{StoreError, StoredPlan},
};

/// PLAN.SUBMIT
pub(crate) async fn submit(app: &AppState, json: &[u8]) -> CommandResult {
    let limits = &app.settings.limits;
    plan::check_size(json.len(), limits)?;
    let mut plan: Plan =
        documents::parse_object(json).map_err(|error| Rejection::InvalidPlan(error.to_string()))?;
    plan::check(&plan, limits)?;
    let plan_id = plan.plan_id.get_or_insert_with(|| app.clock.plan_id()).clone();
    let stored =
        StoredPlan { plan_id: plan_id.clone(), json: documents::to_json(&plan), created_at: app.clock.now() };
    if app.store.add_plan(stored).await? {
        Ok(Reply::Simple(format!("OK plan_id={plan_id}")))
    } else {
        Err(Rejection::PlanExists(plan_id).into())
    }
}

/// PLAN.GET
pub(crate) async fn get(app: &AppState, plan_id: &PlanId) -> CommandResult {
    Ok(Reply::bulk_or_nil(app.store.plan(plan_id).await?.map(|plan| plan.json)))
}

/// PLAN.LIST
pub(crate) async fn list(app: &AppState, page: Page) -> CommandResult {
    Ok(Reply::bulks(app.store.plans(page).await?.into_iter().map(String::from)))
}

/// PLAN.DELETE
pub(crate) async fn delete(app: &AppState, plan_id: &PlanId) -> CommandResult {
    // Inputs that are still to be stored need their plan.
    submission::finish_all(app).await?;
    Ok(Reply::Integer(app.store.delete_plan(plan_id).await??.into()))
}

/// The plan. One that was submitted before on the same connection is there: PLAN.SUBMIT runs alone on it.
pub(crate) async fn find(app: &AppState, plan_id: &PlanId) -> Result<Arc<Plan>, CommandError> {
    let found = app.store.plan(plan_id).await?;
    let stored = found.ok_or_else(|| Rejection::PlanNotFound(plan_id.clone()))?;
    Ok(app
        .plans
        .read(&stored.json)
        .map_err(|error| StoreError(format!("plan {plan_id} cannot be read: {error}")))?)
}
