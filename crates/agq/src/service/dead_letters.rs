//! Dead letters of the Open Job Spec: dead jobs, which are kept for analysis and retry.

use agenix_protocol::{documents::Status, ids::JobId, request::Search};
use agenix_rules::{
    job::{self, Job, JobState},
    rejection::Rejection,
};

use super::{jobs, lookup};
use crate::{app::AppState, error::Result, store::StoredJob};

/// Returns the total, and at most `limit` ids, the newest first.
pub(crate) async fn dead_letters(app: &AppState, limit: usize) -> Result<(u64, Vec<JobId>)> {
    let total = app.store.totals().await?.now[Status::Dead as usize];
    let search = Search { status: Some(Status::Dead), limit, ..Search::default() };
    Ok((total, app.store.search(search, None).await?))
}

/// Rejects a job that is not dead.
pub(crate) async fn dead_letter(app: &AppState, job_id: &JobId) -> Result<StoredJob> {
    let job = Some(lookup::job(app, job_id).await?).filter(|job| job.job.status() == Status::Dead);
    Ok(job.ok_or_else(|| Rejection::JobNotFound(job_id.clone()))?)
}

/// Queues a discarded job again with all its attempts, and returns the job.
pub(crate) async fn retry(app: &AppState, job_id: &JobId) -> Result<StoredJob> {
    let now = app.clock.now();
    let retried = move |job: &Job| match job.state {
        JobState::Discarded => job::retried(job, true, now),
        _ => Err(Rejection::JobNotFailed),
    };
    jobs::retry_by(app, job_id, retried).await?;
    lookup::job(app, job_id).await
}

pub(crate) async fn retry_dead(app: &AppState, job_id: &JobId) -> Result<StoredJob> {
    dead_letter(app, job_id).await?;
    retry(app, job_id).await
}

pub(crate) async fn forget_dead(app: &AppState, job_id: &JobId) -> Result<()> {
    dead_letter(app, job_id).await?;
    jobs::forget_ended(app, job_id, Status::Dead).await
}

#[cfg(test)]
mod tests {
    use agenix_protocol::{
        documents::{JobUpdate, OjsDocument, Status, parse},
        ids::{ActionId, JobId},
    };
    use agenix_rules::rejection::Rejection;
    use serde_json::json;

    use super::retry;
    use crate::{
        app::{AppState, Caller, Submitter},
        error::CommandError,
        service::{actions, claims, jobs, lookup, ojs_submission, plans},
        startup::services::without_tasks,
    };

    async fn submit_plan(app: &AppState, plan_id: &str, tags: &[&str]) {
        let tasks = json!([{"task_number": 1, "command": "sort"}]);
        let plan = json!({"plan_id": plan_id, "tasks": tasks, "requires": {"tags": tags}});
        plans::submit(app, Submitter::NOBODY, plan.to_string().as_bytes()).await.unwrap();
    }

    /// Submits one job for each plan as a batch over HTTP, and lets all jobs fail.
    async fn failed_batch(app: &AppState, plans: &[&str]) -> (ActionId, Vec<JobId>) {
        let document = |plan: &&str| -> OjsDocument {
            let job = json!({"type": format!("plan.{plan}"), "args": [{}], "options": {"queue": "ready"}});
            parse(job.to_string().as_bytes()).unwrap()
        };
        let enqueued = ojs_submission::enqueue_all(app, None, plans.iter().map(document).collect()).await;
        let enqueued = enqueued.unwrap();
        let caller = Caller::new("connection:1".into(), 1, "test", None);
        for _job in plans {
            let claimed = claims::claim(app, &caller, &["ready".parse().unwrap()], None, 1).await.unwrap();
            let [claim] = claimed.try_into().ok().unwrap();
            let job_id = claim.take().job.job_id;
            let update: JobUpdate = parse(br#"{"status":"failed"}"#).unwrap();
            jobs::report(app, &caller, &job_id, update, None).await.unwrap();
        }
        let action_id = enqueued[0].job.job.action_id.clone();
        (action_id, enqueued.into_iter().map(|one| one.job.job.job_id).collect())
    }

    async fn status(app: &AppState, job_id: &JobId) -> Status {
        lookup::job_record(app, job_id).await.unwrap().status()
    }

    #[tokio::test]
    async fn retry_of_a_job_whose_plan_was_replaced_is_rejected() {
        let dir = tempfile::tempdir().unwrap();
        let app = without_tasks(dir.path(), |_| {});
        submit_plan(&app, "p", &[]).await;
        let (_, jobs) = failed_batch(&app, &["p"]).await;
        assert!(plans::delete(&app, Submitter::NOBODY, &"p".parse().unwrap()).await.unwrap());
        let rejected = retry(&app, &jobs[0]).await.map(|job| job.job.status());
        assert!(matches!(rejected, Err(CommandError::Rejected(Rejection::PlanNotFound(_)))), "{rejected:?}");
        submit_plan(&app, "p", &["gpu"]).await;
        let rejected = retry(&app, &jobs[0]).await.map(|job| job.job.status());
        assert!(matches!(rejected, Err(CommandError::Rejected(Rejection::PlanReplaced(_)))), "{rejected:?}");
        assert_eq!(status(&app, &jobs[0]).await, Status::Failed);
    }

    #[tokio::test]
    async fn retry_of_a_batch_checks_each_of_its_plans() {
        let dir = tempfile::tempdir().unwrap();
        let app = without_tasks(dir.path(), |_| {});
        submit_plan(&app, "p", &[]).await;
        submit_plan(&app, "q", &[]).await;
        let (action_id, jobs) = failed_batch(&app, &["p", "q"]).await;
        assert!(plans::delete(&app, Submitter::NOBODY, &"q".parse().unwrap()).await.unwrap());
        submit_plan(&app, "q", &["gpu"]).await;
        let rejected = actions::retry(&app, &action_id).await;
        let replaced = Rejection::PlanReplaced("q".parse().unwrap());
        assert!(matches!(&rejected, Err(CommandError::Rejected(why)) if *why == replaced), "{rejected:?}");
        assert_eq!(status(&app, &jobs[1]).await, Status::Failed);
        assert!(plans::delete(&app, Submitter::NOBODY, &"q".parse().unwrap()).await.unwrap());
        submit_plan(&app, "q", &[]).await;
        assert_eq!(actions::retry(&app, &action_id).await.unwrap(), 2);
        for job in &jobs {
            assert_eq!(status(&app, job).await, Status::Pending);
        }
    }
}
