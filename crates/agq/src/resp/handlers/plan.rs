//! PLAN.* (AGQ API spec §2), and APPROVAL.LIST.

use agenix_protocol::{
    documents::{ApprovalState, PlanStatus, to_json},
    ids::PlanId,
    request::Page,
    resp::Reply,
};

use crate::{
    app::{AppState, Caller},
    resp::outcome::{CommandResult, json as document},
    service::{approval_decisions, approvals, plans},
    store::StoredPlan,
};

pub(crate) async fn submit(app: &AppState, caller: &Caller, json: &[u8]) -> CommandResult {
    let plan_id = plans::submit(app, caller.submitter(), json).await?;
    Ok(Reply::Simple(format!("OK plan_id={plan_id}")))
}

pub(crate) async fn get(app: &AppState, caller: &Caller, plan_id: &PlanId) -> CommandResult {
    let plan = plans::shown_to(app, plan_id, caller.identity.as_ref()).await?;
    Ok(Reply::bulk_or_nil(plan.map(|plan| plan.json)))
}

pub(crate) async fn order(app: &AppState, caller: &Caller, plan_id: &PlanId) -> CommandResult {
    let plan = plans::shown_to(app, plan_id, caller.identity.as_ref()).await?;
    Ok(Reply::bulk_or_nil(plan.and_then(|plan| plan.order)))
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

pub(crate) async fn delete(app: &AppState, caller: &Caller, plan_id: &PlanId) -> CommandResult {
    Ok(Reply::Integer(plans::delete(app, caller.submitter(), plan_id).await?.into()))
}

/// Answers with the number of jobs that the approval released.
pub(crate) async fn approve(
    app: &AppState,
    caller: &Caller,
    plan_id: &PlanId,
    digest: &str,
) -> CommandResult {
    decide(app, caller, plan_id, (ApprovalState::Approved, digest)).await
}

/// Answers with the number of jobs that the rejection cancelled.
pub(crate) async fn reject(app: &AppState, caller: &Caller, plan_id: &PlanId, digest: &str) -> CommandResult {
    decide(app, caller, plan_id, (ApprovalState::Rejected, digest)).await
}

async fn decide(
    app: &AppState,
    caller: &Caller,
    plan_id: &PlanId,
    (state, digest): (ApprovalState, &str),
) -> CommandResult {
    let decided = approval_decisions::decide(app, plan_id, state, (digest, caller.identity.as_ref()));
    Ok(Reply::count(decided.await?))
}

pub(crate) async fn approvals(app: &AppState) -> CommandResult {
    Ok(Reply::bulks(approvals::all(app).await?.iter().map(to_json)))
}
