//! PLAN.* (AGQ API spec §2).

use agenix_protocol::{ids::PlanId, request::Page, resp::Reply};

use crate::{app::AppState, resp::outcome::CommandResult, service::plans};

pub(crate) async fn submit(app: &AppState, json: &[u8]) -> CommandResult {
    let plan_id = plans::submit(app, json).await?;
    Ok(Reply::Simple(format!("OK plan_id={plan_id}")))
}

pub(crate) async fn get(app: &AppState, plan_id: &PlanId) -> CommandResult {
    Ok(Reply::bulk_or_nil(app.store.plan(plan_id).await?.map(|plan| plan.json)))
}

pub(crate) async fn list(app: &AppState, page: Page) -> CommandResult {
    Ok(Reply::bulks(app.store.plans(page).await?.into_iter().map(String::from)))
}

pub(crate) async fn delete(app: &AppState, plan_id: &PlanId) -> CommandResult {
    Ok(Reply::Integer(plans::delete(app, plan_id).await?.into()))
}
