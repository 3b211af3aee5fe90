//! Handlers of the approval of plans.

use agenix_protocol::{documents::ApprovalState, ids::PlanId};
use axum::{extract::Path, response::IntoResponse};
use serde::Deserialize;
use serde_json::json;

use crate::{
    auth::audit_log::AuditedDecision,
    http::{
        Shared,
        auth::role::{RequireAdmin, RequireClient},
        extract::JsonBody,
        response::{ApiError, HttpResult, ok, quoted},
    },
    service::{approval_decisions, approvals},
};

#[derive(Debug, Deserialize)]
pub(super) struct DecisionBody {
    digest: String,
}

pub(super) async fn list(state: Shared, _: RequireClient) -> HttpResult {
    Ok(ok(&json!({"approvals": approvals::all(&state.app).await?})))
}

pub(super) async fn approve(
    state: Shared,
    sender: RequireAdmin,
    Path(id): Path<String>,
    sent: JsonBody,
) -> HttpResult {
    decide(state, sender, &id, (ApprovalState::Approved, sent)).await
}

pub(super) async fn reject(
    state: Shared,
    sender: RequireAdmin,
    Path(id): Path<String>,
    sent: JsonBody,
) -> HttpResult {
    decide(state, sender, &id, (ApprovalState::Rejected, sent)).await
}

async fn decide(
    state: Shared,
    sender: RequireAdmin,
    id: &str,
    (decision, sent): (ApprovalState, JsonBody),
) -> HttpResult {
    let no_plan = |_| ApiError::not_found(format!("'{}' is not the id of a plan", quoted(id)));
    let plan_id = PlanId::new(id).map_err(no_plan)?;
    let DecisionBody { digest } = sent.object()?;
    let decider = Some(sender.identity());
    let decided = approval_decisions::decide(&state.app, &plan_id, decision, (&digest, decider)).await;
    let mut response = match decided {
        Ok(jobs) => ok(&json!({"plan_id": plan_id, "state": decision, "jobs": jobs})),
        Err(error) => ApiError::from(error).into_response(),
    };
    response.extensions_mut().insert(AuditedDecision::on(&digest));
    Ok(response)
}
