//! Decisions about the approval of plans, and their effect on the actions that wait.
//!
//! A decision is durable before it is applied. The reaper applies the decision again, which changes
//! nothing that was applied before.

use agenix_protocol::{
    documents::{Approval, ApprovalState},
    ids::{ActionId, PlanId},
    time::Timestamp,
};
use agenix_rules::{
    approval::{self, REAPPLY_AFTER_MS},
    rejection::Rejection,
};
use tracing::warn;

use super::{
    approvals::{name_of, update},
    chunked_submission,
    job_ended::on_jobs_ended,
    lookup,
    staged_jobs::{cancel, release},
};
use crate::{app::AppState, auth::keyring::Identity, error::Result, store::DocumentKind};

/// Decides about a plan, and applies the decision. Returns the number of jobs that it released or
/// cancelled.
pub(crate) async fn decide(
    app: &AppState,
    plan_id: &PlanId,
    state: ApprovalState,
    (digest, decider): (&str, Option<&Identity>),
) -> Result<usize> {
    let Some(decider) = decider else { return Err(Rejection::NamelessDecision.into()) };
    let (now, by, digest) = (app.clock.now(), name_of(decider), digest.to_owned());
    let decided = update(app, plan_id, move |requested| {
        let next = approval::decided(requested, state, (&digest, &by), now)?;
        Ok((next.clone(), next.unwrap_or_else(|| requested.clone())))
    });
    let Some(approval) = decided.await? else {
        let is_known = app.store.plan(plan_id).await?.is_some();
        let id = plan_id.clone();
        let missing = if is_known { Rejection::ApprovalNotFound(id) } else { Rejection::PlanNotFound(id) };
        return Err(missing.into());
    };
    apply_to_all(app, &approval).await
}

async fn apply_to_all(app: &AppState, approval: &Approval) -> Result<usize> {
    let mut changed = 0;
    for action_id in &approval.actions {
        changed += apply(app, approval, action_id).await?;
    }
    Ok(changed)
}

/// Applies a decision to the jobs of an action. Returns the number of jobs that it changed.
async fn apply(app: &AppState, approval: &Approval, action_id: &ActionId) -> Result<usize> {
    chunked_submission::finish(app, action_id).await?;
    match approval.state {
        ApprovalState::Waiting => Ok(0),
        ApprovalState::Approved => release(app, &approval.plan_id, action_id).await,
        ApprovalState::Rejected | ApprovalState::Expired => {
            let cancelled = cancel(app, &approval.plan_id, action_id).await?;
            on_jobs_ended(app, &cancelled).await;
            Ok(cancelled.changed)
        }
    }
}

/// Rounds in which requests end whose time is over, and in which decisions are applied that may not
/// have been applied whole. Other decisions take effect without a round.
#[derive(Debug, Default)]
pub(crate) struct ApprovalRounds {
    latest: Timestamp,
}

impl ApprovalRounds {
    /// Makes a round if the latest round was [`REAPPLY_AFTER_MS`] ago. An approval that cannot be
    /// read or applied does not stop the others.
    pub(crate) async fn advance_due(&mut self, app: &AppState) -> Result<()> {
        let now = app.clock.now();
        // The clock may have been set back.
        let is_due = now.ms_since(self.latest) >= REAPPLY_AFTER_MS || now < self.latest;
        if !is_due || !app.store.has_documents(DocumentKind::Approval).await? {
            return Ok(());
        }
        self.latest = now;
        for (plan_id, json) in app.store.documents(DocumentKind::Approval).await? {
            if let Err(error) = advance(app, &plan_id, &json).await {
                warn!(plan_id, "the approval could not be advanced: {error}");
            }
        }
        Ok(())
    }
}

async fn advance(app: &AppState, plan_id: &str, json: &str) -> Result<()> {
    let (now, approval): (_, Approval) = (app.clock.now(), lookup::parse("approval of plan", plan_id, json)?);
    if approval::expired(&approval, now).is_some() {
        let end = update(app, &approval.plan_id, move |approval| Ok((approval::expired(approval, now), ())));
        end.await?;
    } else if needs_reapplication(&approval, now) && apply_to_all(app, &approval).await? == 0 {
        // Nothing was left to apply, so no submission of that time is under way any more.
        let confirm = |approval: &Approval| Ok((Some(Approval { settled: true, ..approval.clone() }), ()));
        update(app, &approval.plan_id, confirm).await?;
    }
    Ok(())
}

fn needs_reapplication(approval: &Approval, now: Timestamp) -> bool {
    let age = approval.decided_at.map(|at| now.ms_since(at));
    !approval.settled && age.is_some_and(|age| age >= REAPPLY_AFTER_MS)
}
