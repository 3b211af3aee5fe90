//! Follow-up of the end of a job, whatever has ended the job.
//!
//! Counts, limits, and events change in the transaction that ends the job, inside the store. The
//! follow-up here needs further writes: the health of the worker and the workflow of the job. The
//! reaper repeats the follow-up of workflows that a crash has interrupted.

use tracing::error;

use super::{
    job_changes::{BulkChange, workflow_to_advance},
    worker_health::record_outcome,
    workflow,
};
use crate::{app::AppState, store::JobChange};

/// Returns no error, because the end is durable, and the reaper repeats the follow-up.
pub(crate) async fn on_job_ended(app: &AppState, change: Option<&JobChange>) {
    if let Some(workflow_id) = change.and_then(workflow_to_advance) {
        // Boxed, because the future contains submissions, and few jobs have a workflow.
        Box::pin(workflow::step_ended(app, workflow_id)).await;
    }
}

/// Returns no error, because the ends are durable, and the reaper repeats the follow-up.
pub(crate) async fn on_jobs_ended(app: &AppState, bulk: &BulkChange) {
    for workflow_id in &bulk.workflows {
        Box::pin(workflow::step_ended(app, workflow_id)).await;
    }
}

/// `is_failure` counts for the quarantine of the worker that held the job, unless it is `None`.
/// Returns no error, because the report is durable.
pub(crate) async fn on_report(app: &AppState, change: &JobChange, is_failure: Option<bool>) {
    app.job_times.reported(change, app.clock.now());
    if let Some((holder, is_failure)) = change.before.holder.as_deref().zip(is_failure)
        && let Err(error) = record_outcome(app, holder, &change.before, is_failure).await
    {
        error!(worker_id = holder, %error, "the outcome of a job could not be counted for its worker");
    }
    on_job_ended(app, Some(change)).await;
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use agenix_protocol::{
        documents::{JobUpdate, parse, parse_object},
        ids::{JobId, PlanId},
    };
    use agenix_rules::{
        capability::ClaimantCapabilities,
        workflow::{StepState, Workflow},
    };

    use crate::{
        app::{AppState, Caller, Submitter},
        service::{jobs, plans, workflow},
        startup::services::without_tasks,
        store::{Claimant, StoredPlan},
    };

    const PLANS: [&[u8]; 2] = [
        br#"{"plan_id":"p","tasks":[{"task_number":1,"command":"true"}]}"#,
        br#"{"plan_id":"q","tasks":[{"task_number":1,"command":"true"}]}"#,
    ];
    const CHAIN: &[u8] = br#"{"type":"chain","steps":[
        {"type":"plan.p","args":[{}],"options":{"queue":"q"}},
        {"type":"plan.q","args":[{}],"options":{"queue":"q"}}]}"#;

    /// Submits a chain of jobs of the plans `p` and `q`. Without the reaper, nothing but reports
    /// can advance the chain.
    async fn begun_chain() -> (tempfile::TempDir, Arc<AppState>, Caller, Workflow) {
        let dir = tempfile::tempdir().unwrap();
        let app = without_tasks(dir.path(), |_| {});
        for plan in PLANS {
            plans::submit(&app, Submitter::NOBODY, plan).await.unwrap();
        }
        let begun = workflow::submit(&app, None, parse_object(CHAIN).unwrap()).await.unwrap();
        (dir, app, Caller::new("connection:1".into(), 1, "test", None), begun)
    }

    async fn claim(app: &AppState, caller: &Caller) -> JobId {
        let claimant = Claimant {
            holder: Arc::clone(&caller.connection),
            capabilities: Arc::new(ClaimantCapabilities::Anything),
            queues: Arc::new(["q".to_owned()]),
            share_terms: Arc::default(),
            visibility_ms: None,
        };
        app.waiters.jobs_now(&claimant, 1).await.unwrap().pop().expect("a job is ready").take().job.job_id
    }

    #[tokio::test]
    async fn workflow_advances_at_once_after_a_report_over_resp() {
        let (_dir, app, caller, begun) = begun_chain().await;
        for _step in 0..2 {
            let job_id = claim(&app, &caller).await;
            let update: JobUpdate = parse(br#"{"status":"completed","attempt":1}"#).unwrap();
            jobs::report(&app, &caller, &job_id, update, None).await.unwrap();
        }
        assert_eq!(workflow::get(&app, &begun.id).await.unwrap().stage, StepState::Completed);
    }

    #[tokio::test]
    async fn report_is_accepted_although_the_next_step_cannot_be_submitted_at_the_moment() {
        let (_dir, app, caller, begun) = begun_chain().await;
        let job_id = claim(&app, &caller).await;
        let plan_id: PlanId = "q".parse().unwrap();
        assert!(app.store.delete_plan(&plan_id, None).await.unwrap().unwrap());
        let damaged = StoredPlan::unsigned(plan_id, "?".into(), app.clock.now());
        assert!(app.store.add_plan(damaged.into()).await.unwrap().unwrap());
        let update: JobUpdate = parse(br#"{"status":"completed","attempt":1}"#).unwrap();
        jobs::report(&app, &caller, &job_id, update, None).await.unwrap();
        let known = workflow::get(&app, &begun.id).await.unwrap();
        assert_eq!((known.stage, known.steps[0].stage), (StepState::Running, StepState::Completed));
    }

    #[tokio::test]
    async fn workflow_ends_at_once_after_a_job_is_cancelled() {
        let (_dir, app, caller, begun) = begun_chain().await;
        let job_id = claim(&app, &caller).await;
        jobs::cancel(&app, &job_id).await.unwrap();
        assert!(workflow::get(&app, &begun.id).await.unwrap().stage.is_ended());
    }
}
