//! Check of claimed jobs: a job whose plan is not approved goes to nobody, however the job has
//! become available.
//!
//! While a job is claimed, its plan cannot be replaced, so the approval that the check reads is
//! that of the job's plan.

use agenix_rules::{
    approval::{self, Gate},
    job::{self, Job},
};

use super::{
    approvals::{name_staged, of_plan},
    job_changes::if_exists,
    jobs,
};
use crate::{
    app::AppState,
    error::Result,
    store::{AckLevel, Claim, Claimant},
    waiters::Handoff,
};

/// Returns the claims of jobs that may run. A job that waits for a decision is staged again, and a
/// job whose plan was not approved is cancelled.
pub(crate) async fn admit(app: &AppState, claims: Vec<Handoff<Claim>>) -> Result<Vec<Handoff<Claim>>> {
    if !app.plan_policy.is_on() || claims.is_empty() {
        return Ok(claims);
    }
    // Boxed, because every claim contains the future.
    Box::pin(admit_by_approvals(app, claims)).await
}

/// Returns the claims of jobs that may run, as [`admit`] does. Claims further jobs of `claimant`
/// that are ready now, at most `limit` at once, while none of the claimed jobs may run.
pub(crate) async fn admit_some(
    app: &AppState,
    mut claims: Vec<Handoff<Claim>>,
    (claimant, limit): (&Claimant, usize),
) -> Result<Vec<Handoff<Claim>>> {
    if !app.plan_policy.is_on() {
        return Ok(claims);
    }
    while !claims.is_empty() {
        let admitted = admit(app, claims).await?;
        if !admitted.is_empty() {
            return Ok(admitted);
        }
        claims = app.waiters.jobs_now(claimant, limit).await?;
    }
    Ok(claims)
}

async fn admit_by_approvals(app: &AppState, claims: Vec<Handoff<Claim>>) -> Result<Vec<Handoff<Claim>>> {
    let mut admitted = Vec::with_capacity(claims.len());
    for claim in claims {
        let job = &claim.get().job;
        let gate = match of_plan(app, &job.plan_id).await? {
            Some(approval) => approval::gate(&approval, &job.action_id, app.clock.now()),
            None => Gate::Open,
        };
        match gate {
            Gate::Open => {
                admitted.push(claim);
                continue;
            }
            Gate::Waiting => stage_again(app, job).await?,
            Gate::Closed => jobs::cancel(app, &job.job_id).await?,
        }
        drop(claim.take());
    }
    Ok(admitted)
}

/// Gives a claimed job back as staged.
async fn stage_again(app: &AppState, job: &Job) -> Result<()> {
    name_staged(app, &job.plan_id, &job.action_id, false).await?;
    let (holder, attempt, now) = (job.holder.clone().unwrap_or_default(), job.attempt, app.clock.now());
    let rule = if_exists(move |job: &Job| job::staged_again(job, (&holder, attempt), now));
    app.store.decide(&job.job_id, AckLevel::Durable, None, rule).await??;
    Ok(())
}
