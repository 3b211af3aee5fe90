//! Reports of OJS workers on jobs: ACK, NACK and progress.

use agenix_protocol::{
    documents::{OjsAck, OjsFault, OjsNack, OjsProgress},
    ids::{JobId, WorkerId},
    limits::MAX_UPDATE_BYTES,
};
use agenix_rules::{
    job::{self, Job, Progress, ReportedFailure, Reporter},
    rejection::Rejection,
};
use serde_json::{Value, value::RawValue};

use super::{
    job_changes::for_existing,
    job_ended::on_report,
    lookup,
    ojs_workers::{record_activity, reporting_worker},
};
use crate::{
    app::AppState,
    error::Result,
    store::{AckLevel, JobChange, ReportedResults, StoredJob},
};

pub(crate) async fn ack(
    app: &AppState,
    own: Option<&WorkerId>,
    job_id: &JobId,
    request: OjsAck,
) -> Result<StoredJob> {
    let worker = reporting_worker(own, request.worker_id.as_deref())?;
    record_activity(app, worker.as_ref()).await?;
    let results = request.result.map(text_of);
    if results.as_ref().is_some_and(|results| results.len() > MAX_UPDATE_BYTES) {
        let text = format!(
            "result has more than {MAX_UPDATE_BYTES} bytes: store it elsewhere, and return its location"
        );
        return Err(Rejection::InvalidJob(text).into());
    }
    let (now, attempt) = (app.clock.now(), request.attempt);
    let rule = for_existing(job_id, move |job| {
        let reporter = Reporter { worker: worker.as_ref().map(WorkerId::as_str), attempt };
        job::acked(job, reporter, now)
    });
    let change = app
        .store
        .decide(job_id, AckLevel::Durable, results.map(ReportedResults::without_blobs), rule)
        .await??;
    follow_up(app, job_id, change, false).await
}

pub(crate) async fn nack(
    app: &AppState,
    own: Option<&WorkerId>,
    job_id: &JobId,
    request: OjsNack,
) -> Result<StoredJob> {
    let worker = reporting_worker(own, request.worker_id.as_deref())?;
    record_activity(app, worker.as_ref()).await?;
    let failure = failure_of(request.error.unwrap_or_default());
    let (now, jitter) = (app.clock.now(), app.clock.chance());
    let (requeue, attempt) = (request.requeue.unwrap_or_default(), request.attempt);
    let rule = for_existing(job_id, move |job| {
        let reporter = Reporter { worker: worker.as_ref().map(WorkerId::as_str), attempt };
        job::nacked(job, reporter, &failure, requeue, now, jitter)
    });
    let change = app.store.decide(job_id, AckLevel::Durable, None, rule).await??;
    follow_up(app, job_id, change, !requeue).await
}

/// Returns JSON as it was sent, so that its numbers keep their digits.
fn text_of(json: Box<RawValue>) -> String {
    Box::<str>::from(json).into()
}

/// Returns the class of an error, which some workers put into its details.
fn error_class(details: &RawValue) -> Option<String> {
    let details: Value = serde_json::from_str(details.get()).ok()?;
    details.get("error_class")?.as_str().map(str::to_owned)
}

/// Fills missing fields with defaults.
fn failure_of(fault: OjsFault) -> ReportedFailure {
    let class = fault.details.as_deref().and_then(error_class);
    let code = fault.code.clone().unwrap_or_else(|| "handler_error".into());
    ReportedFailure {
        kind: fault.kind.clone().or(class).unwrap_or_else(|| code.clone()),
        code,
        message: fault.message.unwrap_or_else(|| "the worker gave no reason".into()),
        retryable: fault.retryable,
        details: fault.details.map(text_of),
    }
}

async fn follow_up(
    app: &AppState,
    job_id: &JobId,
    change: Option<JobChange>,
    failed: bool,
) -> Result<StoredJob> {
    if let Some(change) = &change {
        on_report(app, change, change.released_holder().map(|_| failed)).await;
    }
    lookup::job(app, job_id).await
}

/// The report on a job without a holder changes nothing.
pub(crate) async fn report_progress(
    app: &AppState,
    own: Option<&WorkerId>,
    job_id: &JobId,
    request: OjsProgress,
) -> Result<Job> {
    let progress = request.progress.or(request.percentage.map(|percent| percent / 100.0));
    if progress.is_some_and(|progress| !progress.is_finite()) {
        return Err(Rejection::InvalidJob("progress has to be a number from 0 to 1".into()).into());
    }
    if progress.is_none() && request.data.is_none() {
        let text = "progress is missing: give it from 0 to 1, or give percentage or data";
        return Err(Rejection::InvalidJob(text.into()).into());
    }
    let now = app.clock.now();
    let report = Progress::new(request.message.as_deref(), request.data.map(text_of), now);
    let worker = reporting_worker(own, request.worker_id.as_deref())?;
    record_activity(app, worker.as_ref()).await?;
    let rule = for_existing(job_id, move |job| {
        job::progressed(job, worker.as_ref().map(WorkerId::as_str), progress, &report, now)
    });
    app.store.decide(job_id, AckLevel::Applied, None, rule).await??;
    lookup::job_record(app, job_id).await
}
