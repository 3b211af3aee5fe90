//! Check of claimed jobs: a job whose plan is not approved is given to no worker, regardless of how
//! the job has become available.
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
    error::{CommandError, Result},
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
        let gate = if gate == Gate::Waiting { named(app, job).await? } else { gate };
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

/// Names the action of a job in the approval that the job waits for. Returns the gate after that: a
/// decision may have been made meanwhile. A job whose action cannot be named would wait for ever,
/// so its gate is closed.
async fn named(app: &AppState, job: &Job) -> Result<Gate> {
    match name_staged(app, &job.plan_id, &job.action_id, None).await {
        Ok(true) => Ok(Gate::Waiting),
        Ok(false) => Ok(Gate::Open),
        Err(CommandError::Rejected(_)) => Ok(Gate::Closed),
        Err(failed) => Err(failed),
    }
}

/// Gives a claimed job back as staged.
async fn stage_again(app: &AppState, job: &Job) -> Result<()> {
    let (holder, attempt, now) = (job.holder.clone().unwrap_or_default(), job.attempt, app.clock.now());
    let rule = if_exists(move |job: &Job| job::staged_again(job, (&holder, attempt), now));
    app.store.decide(&job.job_id, AckLevel::Durable, None, rule).await??;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use agenix_protocol::{
        documents::{Approval, ApprovalScope, ApprovalState, Status, parse, to_json},
        ids::{JobId, PlanId},
        time::Timestamp,
    };
    use agenix_rules::{approval::MAX_ACTIONS, job::JobState};

    use crate::{
        app::{AppState, Caller, PlanPolicy, Submitter},
        service::{action_submission, approvals::of_plan, claims::claim, plans},
        startup::services::with_policy,
        store::{DocumentChange, DocumentKind},
    };

    const PLAN: &[u8] = br#"{"plan_id":"p","tasks":[{"task_number":1,"command":"true"}]}"#;

    fn plan_id() -> PlanId {
        "p".parse().unwrap()
    }

    /// Opens an agq whose policy allows the plan p, with an available job of it.
    async fn with_job() -> (tempfile::TempDir, Arc<AppState>, JobId) {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("policy.toml");
        std::fs::write(&file, "version = 1\nuse = ['true']").unwrap();
        let app = with_policy(dir.path(), PlanPolicy::read(Some(&file)).unwrap(), |_| {});
        plans::submit(&app, Submitter::NOBODY, PLAN).await.unwrap();
        let action = parse(br#"{"action_id":"a","plan_id":"p","inputs":[{}]}"#).unwrap();
        action_submission::submit(&app, Submitter::NOBODY, action).await.unwrap();
        let job_id = app.store.peek("ready", 1).await.unwrap().pop().unwrap();
        (dir, app, job_id)
    }

    /// Gives the plan an approval after its job has become available.
    async fn approve_as(app: &AppState, state: ApprovalState, actions: usize) {
        let approval = Approval {
            plan_id: plan_id(),
            digest: String::new(),
            policy: String::new(),
            submitted_by: None,
            reasons: Vec::new(),
            scope: ApprovalScope::Plan,
            state,
            requested_at: Timestamp(0),
            expires_at: None,
            decided_by: None,
            decided_at: None,
            actions: (0..actions).map(|n| format!("other{n}").parse().unwrap()).collect(),
            submitters: Vec::new(),
            settled: false,
        };
        let json = to_json(&approval);
        let rule = Box::new(move |_: Option<&str>| Ok(DocumentChange::Put(json.clone())));
        app.store.update_document(DocumentKind::Approval, "p", rule).await.unwrap().unwrap();
    }

    /// Claims, and returns the number of jobs that were given out.
    async fn claimed(app: &AppState) -> usize {
        let caller = Caller::new("connection:1".into(), 1, "test", None);
        let claims = claim(app, &caller, &["ready".parse().unwrap()], None, 4).await.unwrap();
        let count = claims.len();
        claims.into_iter().for_each(|claim| drop(claim.take()));
        count
    }

    #[tokio::test]
    async fn job_that_waits_is_staged_again_and_its_action_is_named() {
        let (_dir, app, job_id) = with_job().await;
        approve_as(&app, ApprovalState::Waiting, 0).await;
        assert_eq!(claimed(&app).await, 0);
        let job = app.store.job_record(&job_id).await.unwrap().unwrap();
        assert_eq!((job.state, job.is_held_by("connection:1")), (JobState::Staged, false));
        let approval = of_plan(&app, &plan_id()).await.unwrap().unwrap();
        assert_eq!(approval.actions, ["a".parse().unwrap()]);
    }

    #[tokio::test]
    async fn job_whose_plan_is_not_approved_is_cancelled() {
        for (state, actions) in
            [(ApprovalState::Rejected, 0), (ApprovalState::Expired, 0), (ApprovalState::Waiting, MAX_ACTIONS)]
        {
            let (_dir, app, job_id) = with_job().await;
            approve_as(&app, state, actions).await;
            assert_eq!(claimed(&app).await, 0);
            let job = app.store.job_record(&job_id).await.unwrap().unwrap();
            assert_eq!(job.status(), Status::Cancelled, "{state:?} {actions}");
        }
    }

    #[tokio::test]
    async fn approved_job_is_given_out() {
        let (_dir, app, _job_id) = with_job().await;
        approve_as(&app, ApprovalState::Approved, 0).await;
        assert_eq!(claimed(&app).await, 1);
    }
}
