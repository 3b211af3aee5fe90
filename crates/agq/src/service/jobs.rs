//! Operations on one job: report, cancel, retry, release, show.

use std::sync::Arc;

use agenix_protocol::{
    documents::{self, CapturedOutput, JobStatus, JobUpdate, MEMORY, Status, TaskResult, WorkerRegistration},
    ids::{JobId, WorkerId},
};
use agenix_rules::{
    action_bounds, blob,
    capability::Needs,
    job::{self, Job, RuleOutcome},
    memory_retry,
    rejection::Rejection,
};
use serde_json::value::RawValue;

use super::{
    approvals, identity,
    job_changes::{self, for_existing},
    job_ended::{on_job_ended, on_jobs_ended, on_report},
    lookup, workflow,
};
use crate::{
    app::{AppState, Caller},
    error::Result,
    store::{AckLevel, ReportedResults, RuleResult, StoreError, StoredJob},
};

/// `results` is a JSON array.
pub(crate) async fn report(
    app: &AppState,
    caller: &Caller,
    job_id: &JobId,
    update: JobUpdate,
    results: Option<String>,
) -> Result<()> {
    let reporter = identity::reporter(app, caller, update.worker_id.as_ref()).await?;
    let status = update.status;
    let of_failure = results.as_deref().filter(|_| status == Some(Status::Failed));
    let of_failure = of_failure.map_or_else(Vec::new, read_results);
    let exit_code = TaskResult::blamed(&of_failure).map(|result| result.exit_code);
    let lacks_memory = memory_retry::is_lack_of_memory(&of_failure);
    // Ends are on disk before the reply, starts are not: a crash may repeat the report of a start.
    let is_end = update.status.is_some_and(Status::is_ended);
    let level = if is_end { AckLevel::Durable } else { AckLevel::Applied };
    let (now, jitter, connection) = (app.clock.now(), app.clock.chance(), Arc::clone(&caller.connection));
    let rule = for_existing(job_id, move |job| {
        let reporter = job::reporter_of(job, &reporter, &connection);
        job::updated(job, &update, reporter, exit_code, now, jitter)
    });
    let mut results = results.map(|json| reported(json, is_end)).transpose()?;
    if let Some(results) = results.as_mut().filter(|_| lacks_memory) {
        results.next_needs = needs_with_more_memory(app, job_id).await?;
    }
    let change = app.store.decide(job_id, level, results, rule).await??;
    let Some(change) = change else { return Ok(()) };
    let is_failure = match status {
        Some(Status::Completed) => Some(false),
        Some(Status::Failed) if job::counts_against_worker(exit_code) => Some(true),
        _ => None,
    };
    on_report(app, &change, is_failure).await;
    Ok(())
}

/// Returns the needs of the next attempt of a job that lacked memory. Returns `None` if the needs
/// stay the same, or if the plan was deleted, so that there is no next attempt.
async fn needs_with_more_memory(app: &AppState, job_id: &JobId) -> Result<Option<Box<Needs>>> {
    let Some(StoredJob { job, needs, .. }) = app.store.job(job_id).await? else { return Ok(None) };
    let Some((action, _)) = app.store.action(&job.action_id).await? else { return Ok(None) };
    let Some(plan) = app.store.plan(&job.plan_id).await? else { return Ok(None) };
    let Ok(plan) = app.plans.read(&plan.json) else { return Ok(None) };
    let (factor, first) = (memory_retry::factor(&action, &plan), action_bounds::needs(&action, &plan));
    let offered = if app.settings.has_fixed_workers { Some(offered_memory(app).await?) } else { None };
    Ok(memory_retry::raised(factor, &first, &needs, offered).map(Box::new))
}

/// Returns the most memory that a registered worker offers.
async fn offered_memory(app: &AppState) -> Result<u64> {
    let mut most = 0;
    for worker in app.store.worker_records().await? {
        let text = app.store.registration(&worker.worker_id).await?;
        let registration = text.and_then(|text| documents::parse::<WorkerRegistration>(text.as_bytes()).ok());
        most = most.max(registration.map_or(0, |registration| registration.resources.get(MEMORY)));
    }
    Ok(most)
}

/// Returns the results of a report, with the blobs that they name.
fn reported(json: String, is_end: bool) -> Result<ReportedResults, Rejection> {
    let names_blobs = json.contains("_blob\"");
    let results = if names_blobs { read_results(&json) } else { Vec::new() };
    let blobs = blob::named_blobs(&results, is_end)?;
    Ok(ReportedResults { json, blobs, next_needs: None })
}

/// Cancelling an ended job again changes nothing.
pub(crate) async fn cancel(app: &AppState, job_id: &JobId) -> Result<()> {
    let change = job_changes::cancel(app, job_id, false).await?;
    on_job_ended(app, change.as_ref()).await;
    Ok(())
}

/// Rejects an ended job, as OJS requires.
pub(crate) async fn cancel_unended(app: &AppState, job_id: &JobId) -> Result<StoredJob> {
    let change = job_changes::cancel(app, job_id, true).await?;
    on_job_ended(app, change.as_ref()).await;
    lookup::job(app, job_id).await
}

/// Removes an ended job with its results, as retention does.
pub(crate) async fn forget(app: &AppState, job_id: &JobId) -> Result<()> {
    let job = lookup::job_record(app, job_id).await?;
    job::check_ended(&job)?;
    forget_ended(app, job_id, job.status()).await
}

/// Removes a job that has ended with `status`. The error is that of a missing job if retention or a
/// retry was faster.
pub(crate) async fn forget_ended(app: &AppState, job_id: &JobId, status: Status) -> Result<()> {
    let was_there = app.store.forget_job(job_id, status).await?;
    if was_there { Ok(()) } else { Err(Rejection::JobNotFound(job_id.clone()).into()) }
}

pub(crate) async fn requeue_lost(app: &AppState, holder: &str) -> Result<()> {
    on_jobs_ended(app, &job_changes::requeue_lost(app, holder).await?).await;
    Ok(())
}

/// Takes back the jobs that a newly registered worker no longer `has`.
pub(crate) async fn reclaim(app: &AppState, worker_id: &WorkerId, has: Option<Vec<JobId>>) -> Result<()> {
    on_jobs_ended(app, &job_changes::reclaim(app, worker_id, has).await?).await;
    Ok(())
}

/// Retries a failed job, and with `force` also a dead or cancelled one.
pub(crate) async fn retry(app: &AppState, job_id: &JobId, force: bool) -> Result<()> {
    let now = app.clock.now();
    retry_by(app, job_id, move |job| job::retried(job, force, now)).await
}

/// Retries a job by `rule`. Resumes the workflow of the job before and after the retry, because the
/// workflow may end meanwhile.
pub(super) async fn retry_by(
    app: &AppState,
    job_id: &JobId,
    rule: impl Fn(&Job) -> RuleResult<RuleOutcome> + Send + Sync + 'static,
) -> Result<()> {
    let stored = lookup::job(app, job_id).await?;
    rule(&stored.job).map(drop)?;
    check_plan(app, &stored).await?;
    let place = workflow::place_of(app, &stored.job).await?;
    workflow::resume(app, place.as_ref()).await?;
    app.store.decide(job_id, AckLevel::Durable, None, for_existing(job_id, rule)).await??;
    workflow::resume_after_retry(app, place.as_ref()).await
}

/// Checks that a retry of the job would run the plan that the job was submitted with: the plan does
/// not wait for approval, and has the needs by which the job is offered to workers.
async fn check_plan(app: &AppState, stored: &StoredJob) -> Result<()> {
    let Job { plan_id, action_id, .. } = &stored.job;
    approvals::check_open(app, plan_id, action_id).await?;
    let plan = lookup::plan(app, plan_id).await?;
    let (action, _) = lookup::action(app, action_id).await?;
    Ok(action_bounds::check_same_needs(&action, &plan, plan_id, &stored.needs)?)
}

pub(crate) async fn activate(app: &AppState, job_id: &JobId) -> Result<StoredJob> {
    let now = app.clock.now();
    let job = lookup::job_record(app, job_id).await?;
    job::activated(&job, now).map(drop)?;
    approvals::check_open(app, &job.plan_id, &job.action_id).await?;
    let rule = for_existing(job_id, move |job| job::activated(job, now));
    app.store.decide(job_id, AckLevel::Durable, None, rule).await??;
    lookup::job(app, job_id).await
}

pub(crate) async fn status(app: &AppState, job_id: &JobId) -> Result<Option<JobStatus>> {
    let Some(stored) = app.store.job(job_id).await? else { return Ok(None) };
    let broken = |error: serde_json::Error| StoreError(format!("job {job_id} cannot be read: {error}"));
    Ok(Some(job_document(stored).map_err(broken)?))
}

pub(crate) fn job_document(stored: StoredJob) -> Result<JobStatus, serde_json::Error> {
    let StoredJob { job, queue, needs, input, results, .. } = stored;
    let status = job.status();
    let results_of = results.as_deref().map_or_else(Vec::new, read_results);
    let last = TaskResult::blamed(&results_of).or(results_of.last());
    let text = |kept: &CapturedOutput| String::from_utf8_lossy(&kept.bytes).into_owned();
    Ok(JobStatus {
        status,
        state: job.state.as_str().into(),
        index: job.index,
        attempt: job.attempt,
        queue,
        priority: job.priority,
        resources: needs.resources.map(|resources| *resources).unwrap_or_default(),
        run_at: job.available_from(),
        created_at: job.created_at,
        started_at: job.started_at,
        completed_at: job.ended_at,
        queue_wait_ms: job.queue_wait_ms(),
        worker_id: job.holder,
        owner: job.owner.map(|owner| owner.to_string()),
        current_task: job.current_task,
        progress_percent: job.progress_percent,
        error: job.error,
        inputs: RawValue::from_string(input)?,
        exit_code: last.map(|result| result.exit_code),
        stdout: last.filter(|_| status == Status::Completed).map(|result| text(&result.stdout)),
        stderr: last.filter(|_| status != Status::Completed).map(|result| text(&result.stderr)),
        task_results: results.map(RawValue::from_string).transpose()?,
        job_id: job.job_id,
        action_id: job.action_id,
        plan_id: job.plan_id,
    })
}

/// Empty if the form of the results is not that of agw.
fn read_results(results: &str) -> Vec<TaskResult> {
    serde_json::from_str(results).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use agenix_protocol::{
        blob::OutputStream,
        documents::{JobUpdate, MEMORY, Status, parse},
        ids::JobId,
        request::UploadKey,
    };
    use bytes::Bytes;

    use crate::{
        app::{AppState, Caller, Submitter},
        error::Result,
        service::{action_submission, claims, lookup, plans, uploads, workers},
        startup::services::without_tasks,
    };

    const PLAN: &[u8] = br#"{"plan_id":"p","tasks":[{"task_number":1,"command":"sort"}]}"#;
    const ACTION: &[u8] = br#"{"action_id":"a","plan_id":"p","inputs":[{}]}"#;
    const WORKER: &[u8] = br#"{"worker_id":"w","capabilities":["sort"]}"#;
    const START: &[u8] = br#"{"status":"running","worker_id":"w","started_at":"2025-11-17T10:00:00Z"}"#;

    fn connection(number: u64) -> Caller {
        Caller::new(format!("connection:{number}").into(), number, "test", None)
    }

    /// Submits a job of `plan`, and claims it in the name of the caller.
    async fn claimed(app: &AppState, caller: &Caller, plan: &[u8]) -> JobId {
        plans::submit(app, Submitter::NOBODY, plan).await.unwrap();
        action_submission::submit(app, Submitter::NOBODY, parse(ACTION).unwrap()).await.unwrap();
        let claimed = claims::claim(app, caller, &["ready".parse().unwrap()], None, 1).await.unwrap();
        let [claim] = claimed.try_into().ok().unwrap();
        claim.take().job.job_id
    }

    async fn report(app: &AppState, caller: &Caller, job_id: &JobId, json: &[u8]) -> Result<()> {
        let update: JobUpdate = parse(json).unwrap();
        super::report(app, caller, job_id, update, None).await
    }

    #[tokio::test]
    async fn connection_reports_a_job_that_it_holds_also_as_a_worker() {
        let dir = tempfile::tempdir().unwrap();
        let app = without_tasks(dir.path(), |_| {});
        let (registering, claiming) = (connection(1), connection(2));
        workers::register(&app, &registering, parse(WORKER).unwrap()).await.unwrap();
        let job_id = claimed(&app, &claiming, PLAN).await;
        let refused = report(&app, &connection(3), &job_id, START).await.unwrap_err().line();
        assert_eq!(refused, "ERR Worker w cannot update job claimed by connection:2");
        report(&app, &claiming, &job_id, START).await.unwrap();
        assert!(lookup::job_record(&app, &job_id).await.unwrap().is_confirmed);

        let stats = serde_json::from_str(&format!(r#"{{"active_job_ids":["{job_id}"]}}"#)).unwrap();
        let directives =
            workers::heartbeat(&app, &registering, &"w".parse().unwrap(), Some(stats)).await.unwrap();
        assert!(directives.cancel.is_empty(), "the worker may be that of the connection");

        let later = Caller { registered: Some("w".parse().unwrap()), ..claiming };
        let key =
            UploadKey { job_id: job_id.clone(), attempt: 1, task_number: 1, stream: OutputStream::Stdout };
        assert_eq!(uploads::write(&app, &later, &key, 0, Bytes::from_static(b"out")).await.unwrap(), 3);
        for _repeated in 0..2 {
            report(&app, &later, &job_id, br#"{"status":"completed","attempt":1}"#).await.unwrap();
        }
        let job = lookup::job_record(&app, &job_id).await.unwrap();
        assert_eq!((job.status(), job.holder.as_deref()), (Status::Completed, Some("connection:2")));
    }

    /// Returns the memory of the second attempt, in mebibytes, if the only worker offers 1000M.
    async fn memory_of_retry(has_fixed_workers: bool) -> u64 {
        let dir = tempfile::tempdir().unwrap();
        let app = without_tasks(dir.path(), |settings| settings.has_fixed_workers = has_fixed_workers);
        let worker = Caller { registered: Some("w".parse().unwrap()), ..connection(1) };
        let registration = br#"{"worker_id":"w","capabilities":["sort"],"resources":{"memory":"1000M"}}"#;
        workers::register(&app, &worker, parse(registration).unwrap()).await.unwrap();
        let plan = br#"{"plan_id":"p","tasks":[{"task_number":1,"command":"sort"}],"max_retries":2,
            "requires":{"resources":{"memory":"600M"}},"retry_memory_factor":2}"#;
        let job_id = claimed(&app, &worker, plan).await;
        let update: JobUpdate = parse(br#"{"status":"failed","attempt":1}"#).unwrap();
        let results = r#"[{"task_number":1,"exit_code":137,"signal":9,"out_of_memory":true}]"#;
        super::report(&app, &worker, &job_id, update, Some(results.into())).await.unwrap();
        let job = lookup::job(&app, &job_id).await.unwrap();
        job.needs.resources.unwrap().get(MEMORY) >> 20
    }

    #[tokio::test]
    async fn retry_wants_no_more_memory_than_the_last_workers_offer() {
        assert_eq!(memory_of_retry(false).await, 1200, "a larger worker may come");
        assert_eq!(memory_of_retry(true).await, 1000);
    }
}
