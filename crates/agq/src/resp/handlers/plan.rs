//! PLAN.* (AGQ API spec §2).

use agenix_protocol::{documents::PlanStatus, ids::PlanId, request::Page, resp::Reply};

use crate::{
    app::{AppState, Caller},
    resp::outcome::{CommandResult, json as document},
    service::plans,
    store::StoredPlan,
};

pub(crate) async fn submit(app: &AppState, caller: &Caller, json: &[u8]) -> CommandResult {
    let plan_id = plans::submit(app, caller.submitter(), json).await?;
    Ok(Reply::Simple(format!("OK plan_id={plan_id}")))
}

pub(crate) async fn get(app: &AppState, plan_id: &PlanId) -> CommandResult {
    Ok(Reply::bulk_or_nil(app.store.plan(plan_id).await?.map(|plan| plan.json)))
}

pub(crate) async fn status(app: &AppState, plan_id: &PlanId) -> CommandResult {
    let shown = |StoredPlan { plan_id, created_at, owner, .. }: StoredPlan| {
        let owner = owner.map(|owner| owner.to_string());
        document(&PlanStatus { plan_id, created_at, owner })
    };
    Ok(app.store.plan(plan_id).await?.map_or(Reply::Nil, shown))
}

pub(crate) async fn list(app: &AppState, caller: &Caller, page: Page) -> CommandResult {
    let owner = caller.agent().map(|agent| agent.owner.clone());
    Ok(Reply::bulks(app.store.plans(page, owner).await?.into_iter().map(String::from)))
}

pub(crate) async fn delete(app: &AppState, plan_id: &PlanId) -> CommandResult {
    Ok(Reply::Integer(plans::delete(app, plan_id).await?.into()))
}
