//! Submission and deletion of plans. A plan is checked once, when it is submitted (AGQ API spec
//! §2).

use agenix_order::{Envelope, InvalidEnvelope, InvalidOrder};
use agenix_protocol::{
    documents::{self, Plan},
    ids::PlanId,
    limits::{Limits, exceeds},
};
use agenix_rules::{ojs::OJS_PLAN, plan, rejection::Rejection};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{approvals, budgets::SubmitterBudget, chunked_submission, lookup};
use crate::{
    app::{AppState, PlanDecision, Submitter},
    auth::{
        audit_log::AuditedDecision,
        keyring::{Identity, Role},
    },
    error::Result,
    store::{NewPlan, StoredPlan},
};

/// Bytes of an envelope beyond twice the bytes of a plan: signatures, and the terms of an order.
const ENVELOPE_BYTES: usize = 64 * 1024;

/// Submission of a signed order.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SignedSubmission {
    order: Box<RawValue>,
}

/// Any object, to see whether it has an order.
#[derive(Deserialize)]
struct AnySubmission {
    order: Option<Box<RawValue>>,
}

/// Stores a plan, or the plan of a signed order.
pub(crate) async fn submit(app: &AppState, by: Submitter<'_>, json: &[u8]) -> Result<PlanId> {
    let limits = &app.settings.limits;
    let (mut plan, order) = read(json, limits)?;
    plan::check(&plan, limits)?;
    let decision = app.plan_policy.check(&plan, by.agent.is_some())?;
    let plan_id = plan.plan_id.get_or_insert_with(|| app.clock.plan_id()).clone();
    if by.agent.is_some() && plan_id.as_str() == OJS_PLAN {
        // agq adds this plan with the first job that needs it.
        return Err(Rejection::PlanExists(plan_id).into());
    }
    let (json, created_at) = (documents::to_json(&plan), app.clock.now());
    let owner = by.owner.cloned();
    let record = StoredPlan { plan_id: plan_id.clone(), json, created_at, owner, order };
    let approval = approvals::of_new_plan(app, &record, by.identity, &decision);
    let charge = SubmitterBudget::of(app, by.owner).map(|budget| budget.charge(0));
    let is_new = app.store.add_plan(NewPlan { record, charge, approval }).await??;
    if is_new { Ok(plan_id) } else { Err(Rejection::PlanExists(plan_id).into()) }
}

/// Returns the decision of the policy about a submission, for the audit log. Returns `None` for a
/// submission that is neither signed nor judged.
pub(crate) fn audited_decision(app: &AppState, by: Submitter<'_>, json: &[u8]) -> Option<AuditedDecision> {
    let (plan, order) = read(json, &app.settings.limits).ok()?;
    let policy = app.plan_policy.digest();
    let verdict = policy.as_ref().map(|_| match app.plan_policy.check(&plan, by.agent.is_some()) {
        Ok(PlanDecision::Allowed) => "allow",
        Ok(PlanDecision::NeedsApproval(_)) => "ask",
        Err(_) => "refuse",
    });
    let payload = |order: String| Some(Envelope::parse(order.as_bytes()).ok()?.payload);
    let order = order.and_then(payload).map(|payload| agenix_order::sha256(&payload));
    let policy = policy.map(|digest| format!("sha256:{digest}"));
    let is_known = order.is_some() || policy.is_some();
    is_known.then_some(AuditedDecision { order, policy, verdict, digest: None })
}

/// Returns the plan of a submission, and the envelope if the plan is signed.
fn read(json: &[u8], limits: &Limits) -> Result<(Plan, Option<String>), Rejection> {
    let fault = match documents::parse_object::<Plan>(json) {
        Ok(plan) => return plan::check_size(json.len(), limits).map(|()| (plan, None)),
        Err(fault) => fault,
    };
    let is_signed = documents::parse_object::<AnySubmission>(json).is_ok_and(|any| any.order.is_some());
    if !is_signed {
        plan::check_size(json.len(), limits)?;
        return Err(Rejection::InvalidPlan(fault.to_string()));
    }
    let of_order = |fault: String| Rejection::InvalidPlan(format!("order: {fault}"));
    let max = limits.max_plan_bytes.saturating_mul(2).saturating_add(ENVELOPE_BYTES);
    if exceeds(json.len(), max) {
        return Err(of_order(format!("the envelope has {} bytes, max {max}", json.len())));
    }
    let SignedSubmission { order } =
        documents::parse_object(json).map_err(|fault| Rejection::InvalidPlan(fault.to_string()))?;
    let envelope = Envelope::parse(order.get().as_bytes());
    let envelope = envelope.map_err(|fault: InvalidEnvelope| of_order(fault.to_string()))?;
    let plan = envelope.order().map_err(|fault: InvalidOrder| of_order(fault.to_string()))?.plan;
    plan::check_size(documents::to_json(&plan).len(), limits)?;
    Ok((plan, Some(order.get().to_owned())))
}

/// Returns a plan as the key of `reader` may see it: another key than that of the owner gets a plan
/// without literal values of environment variables, and no order with such values.
pub(crate) async fn shown_to(
    app: &AppState,
    plan_id: &PlanId,
    reader: Option<&Identity>,
) -> Result<Option<StoredPlan>> {
    let Some(stored) = app.store.plan(plan_id).await? else { return Ok(None) };
    let reads_all = reader.is_none_or(|reader| reader.role == Role::Admin);
    let reader = reader.and_then(|reader| reader.owner.as_ref());
    if reads_all || stored.owner.is_none() || stored.owner.as_ref() == reader {
        return Ok(Some(stored));
    }
    without_literal_env(stored).map(Some)
}

/// Returns a plan without literal values of environment variables.
pub(crate) fn without_literal_env(stored: StoredPlan) -> Result<StoredPlan> {
    let mut plan: Plan = lookup::parse("plan", stored.plan_id.as_str(), &stored.json)?;
    if !plan.hide_literal_env() {
        return Ok(stored);
    }
    Ok(StoredPlan { json: documents::to_json(&plan), order: None, ..stored })
}

/// Removes a plan. Returns false if there is no such plan, or if it is not that of the agent who
/// asks.
pub(crate) async fn delete(app: &AppState, by: Submitter<'_>, plan_id: &PlanId) -> Result<bool> {
    // Inputs that are not stored yet need their plan.
    chunked_submission::finish_all_of(app, plan_id).await?;
    let only_of = by.agent.map(|agent| agent.owner.clone());
    Ok(app.store.delete_plan(plan_id, only_of).await??)
}

#[cfg(test)]
mod tests {
    use agenix_order::{Envelope, Order};
    use agenix_protocol::limits::Limits;
    use serde_json::json;

    use super::{ENVELOPE_BYTES, read};

    #[test]
    fn signed_plan_and_its_envelope_are_limited_in_size() {
        let task = json!({"task_number": 1, "command": "sort", "args": []});
        let terms = json!({"for": ["a"], "not_after": "2026-12-01T00:00:00Z", "serial": "s"});
        let order = json!({"v": 1, "plan": {"tasks": [task]}, "terms": terms});
        let order: Order = serde_json::from_value(order).unwrap();
        let plan_bytes = serde_json::to_string(&order.plan).unwrap().len();
        let submission = |padding: usize| {
            let mut envelope: serde_json::Value =
                serde_json::from_str(&Envelope::new(&order).to_json()).unwrap();
            envelope["signatures"] = json!([{"sig": ""}]);
            envelope["ignored"] = json!("x".repeat(padding));
            json!({"order": envelope}).to_string()
        };
        let refusal = |submission: &str, max_plan_bytes: usize| {
            let limits = Limits { max_plan_bytes, ..Limits::default() };
            read(submission.as_bytes(), &limits).err().map(|rejection| rejection.to_string())
        };
        assert_eq!(refusal(&submission(0), plan_bytes), None);
        let large = refusal(&submission(0), plan_bytes - 1).unwrap();
        assert!(
            large.ends_with(&format!("the plan has {plan_bytes} bytes, max {}", plan_bytes - 1)),
            "{large}"
        );

        let max = 2 * plan_bytes + ENVELOPE_BYTES;
        let most = submission(max - submission(0).len());
        assert_eq!((most.len(), refusal(&most, plan_bytes)), (max, None));
        let larger = submission(max - submission(0).len() + 1);
        let refused = refusal(&larger, plan_bytes).unwrap();
        assert!(
            refused.ends_with(&format!("order: the envelope has {} bytes, max {max}", max + 1)),
            "{refused}"
        );
    }
}
