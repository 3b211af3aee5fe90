//! Approvals of plans, which the policy of agq requests.
//!
//! The request is stored before its plan, and names an action before the jobs of the action are
//! stored, so that no crash lets a job run without a decision.

use std::sync::{Arc, Mutex};

use agenix_policy::Judgement;
use agenix_protocol::{
    documents::{Approval, ApprovalState, to_json},
    ids::{ActionId, PlanId},
};
use agenix_rules::approval::{self, Admitted};

use super::lookup;
use crate::{
    app::AppState,
    auth::keyring::Identity,
    error::Result,
    store::{DocumentChange, DocumentKind, RuleResult, StoredPlan},
    sync::lock,
};

/// Stores the request for the approval of a plan that is about to be stored.
pub(crate) async fn request(
    app: &AppState,
    plan: &StoredPlan,
    submitter: Option<&Identity>,
    (judgement, policy): (&Judgement, String),
) -> Result<()> {
    let now = app.clock.now();
    let timeout = app.settings.approval_timeout_ms;
    let approval = Approval {
        plan_id: plan.plan_id.clone(),
        digest: approval::digest(&plan.json, &policy),
        policy,
        submitted_by: submitter.map(name_of),
        reasons: reasons(judgement),
        state: ApprovalState::Waiting,
        requested_at: now,
        expires_at: (timeout > 0).then(|| now.plus_ms(timeout)),
        decided_by: None,
        decided_at: None,
        actions: Vec::new(),
        settled: false,
    };
    put(app, &plan.plan_id, DocumentChange::Put(to_json(&approval))).await
}

/// Removes the approval of a plan that does not exist.
pub(crate) async fn forget(app: &AppState, plan_id: &PlanId) -> Result<()> {
    put(app, plan_id, DocumentChange::Remove).await
}

async fn put(app: &AppState, plan_id: &PlanId, change: DocumentChange) -> Result<()> {
    let rule = Box::new(move |_: Option<&str>| Ok(change.clone()));
    Ok(app.store.update_document(DocumentKind::Approval, plan_id.as_str(), rule).await??)
}

/// Returns the role and the name of a key, as `client:alice`.
pub(super) fn name_of(identity: &Identity) -> String {
    format!("{}:{}", identity.role, identity.name)
}

/// Returns the findings that ask, each with its place.
fn reasons(judgement: &Judgement) -> Vec<String> {
    let of_plan = judgement.findings.iter().map(ToString::to_string);
    let of_tasks = judgement.tasks.iter().flat_map(|task| {
        let named = move |finding| format!("task {} ({}), {finding}", task.task_number, task.command);
        task.findings.iter().map(named)
    });
    of_plan.chain(of_tasks).collect()
}

/// Returns all approvals, in the order of the plans.
pub(crate) async fn all(app: &AppState) -> Result<Vec<Approval>> {
    let documents = app.store.documents(DocumentKind::Approval).await?;
    let parsed = documents.iter().map(|(id, json)| lookup::parse("approval of plan", id, json));
    Ok(parsed.collect::<std::result::Result<_, _>>()?)
}

/// Returns the reason why a staged job waits, if its plan waits for approval.
pub(super) async fn reason(app: &AppState, plan_id: &PlanId) -> Result<Option<String>> {
    let waiting = of_plan(app, plan_id).await?.filter(|approval| approval.state == ApprovalState::Waiting);
    Ok(waiting.map(|approval| {
        let end = approval.expires_at.map(|end| format!(" until {end}")).unwrap_or_default();
        format!("It waits{end} for the approval of an admin: `agx approve {plan_id}` shows its plan.")
    }))
}

pub(super) async fn of_plan(app: &AppState, plan_id: &PlanId) -> Result<Option<Approval>> {
    let json = app.store.document(DocumentKind::Approval, plan_id.as_str()).await?;
    let parsed = json.map(|json| lookup::parse("approval of plan", plan_id.as_str(), &json));
    Ok(parsed.transpose()?)
}

/// Returns true if the jobs of an action of the plan have to be staged. The approval names the
/// action from then on.
pub(crate) async fn is_staged(app: &AppState, plan_id: &PlanId, action_id: &ActionId) -> Result<bool> {
    if !app.plan_policy.is_on() {
        return Ok(false);
    }
    let (now, action_id) = (app.clock.now(), action_id.clone());
    let admitted = update(app, plan_id, move |approval| {
        Ok(match approval::admitted(approval, &action_id, now)? {
            Admitted::Run => (None, false),
            Admitted::Stage(next) => (next.map(|next| *next), true),
        })
    });
    Ok(admitted.await?.unwrap_or(false))
}

/// Applies `rule` to the approval of a plan: the rule returns the next approval, if it changes, and
/// a result. Returns `None` if the plan needs no approval.
pub(super) async fn update<T: Clone + Send + Sync + 'static>(
    app: &AppState,
    plan_id: &PlanId,
    rule: impl Fn(&Approval) -> RuleResult<(Option<Approval>, T)> + Send + Sync + 'static,
) -> Result<Option<T>> {
    // A document that cannot be read is an error here, and the rule changes nothing.
    if of_plan(app, plan_id).await?.is_none() {
        return Ok(None);
    }
    // A store may call the rule several times; the last call counts.
    let result = Arc::new(Mutex::new(None));
    let of_rule = Arc::clone(&result);
    let rule = move |json: Option<&str>| {
        let approval = json.and_then(|json| serde_json::from_str::<Approval>(json).ok());
        let Some(approval) = approval else { return Ok(DocumentChange::Keep) };
        let (next, value) = rule(&approval)?;
        *lock(&of_rule) = Some(value);
        Ok(next.map_or(DocumentChange::Keep, |next| DocumentChange::Put(to_json(&next))))
    };
    app.store.update_document(DocumentKind::Approval, plan_id.as_str(), Box::new(rule)).await??;
    let result = lock(&result).clone();
    Ok(result)
}
