//! PLAN.*: plans are checked once, when they come in (AGQ API spec §2).

use std::sync::Arc;

use agenix_protocol::{
    documents::{self, Plan},
    ids::PlanId,
    request::Page,
    resp::Reply,
};
use agenix_rules::{plan, rejection::Rejection};

use super::{Outcome, submission};
use crate::{
    app::House,
    error::CommandError,
    store::{StoreError, StoredPlan},
};

/// PLAN.SUBMIT
pub(super) async fn submit(house: &House, json: &[u8]) -> Outcome {
    let limits = &house.settings.limits;
    plan::check_size(json.len(), limits)?;
    let mut plan: Plan =
        documents::parse_object(json).map_err(|error| Rejection::InvalidPlan(error.to_string()))?;
    plan::check(&plan, limits)?;
    let plan_id = plan.plan_id.get_or_insert_with(|| house.clock.plan_id()).clone();
    let stored = StoredPlan {
        plan_id: plan_id.clone(),
        json: documents::to_json(&plan),
        created_at: house.clock.now(),
    };
    if house.store.add_plan(stored).await? {
        Ok(Reply::Simple(format!("OK plan_id={plan_id}")))
    } else {
        Err(Rejection::PlanExists(plan_id).into())
    }
}

/// PLAN.GET
pub(super) async fn get(house: &House, plan_id: &PlanId) -> Outcome {
    Ok(Reply::bulk_or_nil(house.store.plan(plan_id).await?.map(|plan| plan.json)))
}

/// PLAN.LIST
pub(super) async fn list(house: &House, page: Page) -> Outcome {
    Ok(Reply::bulks(house.store.plans(page).await?.into_iter().map(String::from)))
}

/// PLAN.DELETE
pub(super) async fn delete(house: &House, plan_id: &PlanId) -> Outcome {
    // Inputs that are still to be stored need their plan.
    submission::finish_all(house).await?;
    Ok(Reply::Integer(house.store.delete_plan(plan_id).await??.into()))
}

/// The plan. One that was submitted before on the same connection is there: PLAN.SUBMIT runs alone on it.
pub(super) async fn find(house: &House, plan_id: &PlanId) -> Result<Arc<Plan>, CommandError> {
    let found = house.store.plan(plan_id).await?;
    let stored = found.ok_or_else(|| Rejection::PlanNotFound(plan_id.clone()))?;
    Ok(house
        .plans
        .read(&stored.json)
        .map_err(|error| StoreError(format!("plan {plan_id} cannot be read: {error}")))?)
}
