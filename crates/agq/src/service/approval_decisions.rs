//! Decisions about the approval of plans, and their effect on the actions that wait.
//!
//! A decision is durable before it is applied. The reaper applies it again, which changes nothing
//! that was applied before.

use agenix_protocol::{
    documents::{Approval, ApprovalState},
    ids::{ActionId, PlanId},
    time::Timestamp,
};
use agenix_rules::{
    approval::{self, SETTLE_MS},
    rejection::Rejection,
};

use super::{
    actions,
    approvals::{all, name_of, update},
    chunked_submission,
    staged_jobs::release,
};
use crate::{
    app::AppState,
    auth::keyring::Identity,
    error::{CommandError, Result},
    store::DocumentKind,
};

/// Decides about a plan, and applies the decision. Returns the number of jobs that it released or
/// cancelled.
pub(crate) async fn decide(
    app: &AppState,
    plan_id: &PlanId,
    state: ApprovalState,
    (digest, decider): (&str, Option<&Identity>),
) -> Result<usize> {
    let Some(decider) = decider else { return Err(Rejection::NamelessDecision.into()) };
    let found = app.store.plan(plan_id).await?;
    let stored = found.ok_or_else(|| Rejection::PlanNotFound(plan_id.clone()))?;
    let (now, by, digest) = (app.clock.now(), name_of(decider), digest.to_owned());
    let decided = update(app, plan_id, move |requested| {
        // The digest is that of the stored plan, whatever the request says.
        let digest_of_plan = approval::digest(&stored.json, &requested.policy);
        let requested = Approval { digest: digest_of_plan, ..requested.clone() };
        let next = approval::decided(&requested, state, (&digest, &by), now)?;
        Ok((next.clone(), next.unwrap_or(requested)))
    });
    let Some(approval) = decided.await? else {
        return Err(Rejection::ApprovalNotFound(plan_id.clone()).into());
    };
    apply_to_all(app, &approval).await
}

async fn apply_to_all(app: &AppState, approval: &Approval) -> Result<usize> {
    let mut changed = 0;
    for action_id in &approval.actions {
        changed += apply(app, approval.state, action_id).await?;
    }
    Ok(changed)
}

/// Applies a decision to the jobs of an action. Returns the number of jobs that it changed.
async fn apply(app: &AppState, state: ApprovalState, action_id: &ActionId) -> Result<usize> {
    chunked_submission::finish(app, action_id).await?;
    match state {
        ApprovalState::Waiting => Ok(0),
        ApprovalState::Approved => release(app, action_id).await,
        ApprovalState::Rejected | ApprovalState::Expired => match actions::cancel(app, action_id).await {
            // The action was not stored, or retention has removed it.
            Err(CommandError::Rejected(Rejection::ActionNotFound(_))) => Ok(0),
            cancelled => cancelled,
        },
    }
}

/// Ends requests whose time is over, and applies decisions that may not have been applied whole.
pub(crate) async fn advance_all(app: &AppState) -> Result<()> {
    if !app.store.has_documents(DocumentKind::Approval).await? {
        return Ok(());
    }
    let now = app.clock.now();
    for approval in all(app).await? {
        if approval::expired(&approval, now).is_some() {
            let end =
                update(app, &approval.plan_id, move |approval| Ok((approval::expired(approval, now), ())));
            end.await?;
        } else if needs_settling(&approval, now) {
            apply_to_all(app, &approval).await?;
            let settle = |approval: &Approval| Ok((Some(Approval { settled: true, ..approval.clone() }), ()));
            update(app, &approval.plan_id, settle).await?;
        }
    }
    Ok(())
}

fn needs_settling(approval: &Approval, now: Timestamp) -> bool {
    let age = approval.decided_at.map(|at| now.ms_since(at));
    !approval.settled && age.is_some_and(|age| age >= SETTLE_MS)
}
