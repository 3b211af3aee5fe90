//! JSON form of a job in the Open Job Spec, for jobs of HTTP and of RESP.

use agenix_protocol::documents::{OJS_VERSION, OjsDocument, OjsError, OjsJob};
use agenix_rules::{
    job::{Job, JobFailure, JobState, Ojs},
    ojs::PLAN_PREFIX,
};
use serde_json::value::RawValue;

use crate::store::{StoreError, StoredJob};

/// Options of a job that the JSON form repeats unchanged.
const SHOWN_OPTIONS: [&str; 4] = ["retry", "unique", "rate_limit", "metadata"];

struct OjsFields {
    args: Box<RawValue>,
    meta: Option<Box<RawValue>>,
    tags: Option<Box<RawValue>>,
    /// `expires_at` as submitted, unless it is relative.
    expires_at: Option<String>,
    /// All other fields of the JSON form.
    others: OjsDocument,
}

impl OjsFields {
    fn of(stored: &StoredJob) -> Result<Self, serde_json::Error> {
        let mut document: OjsDocument = match stored.job.ojs.as_deref() {
            Some(ojs) if ojs.is_reserved() => serde_json::from_str(&stored.input)?,
            Some(Ojs { document: Some(document), .. }) => serde_json::from_str(document)?,
            _ => OjsDocument::new(),
        };
        let input = || RawValue::from_string(format!("[{}]", stored.input));
        let args = document.remove("args").map_or_else(input, Ok)?;
        let mut options: OjsDocument = match document.remove("options") {
            Some(options) => serde_json::from_str(options.get()).unwrap_or_default(),
            None => OjsDocument::new(),
        };
        document.remove("type");
        // agq sets `specversion`; a job that an earlier version of agq stored may have the field.
        document.remove("specversion");
        let expires_at =
            options.get("expires_at").and_then(|raw| serde_json::from_str::<String>(raw.get()).ok());
        let shown =
            SHOWN_OPTIONS.iter().filter_map(|name| Some(((*name).to_owned(), options.remove(*name)?)));
        let shown: Vec<_> = shown.collect();
        let meta = document.remove("meta").filter(|meta| meta.get() != "null");
        let tags = options.remove("tags").filter(|tags| tags.get() != "null");
        document.extend(shown);
        let expires_at = expires_at.filter(|text| !text.starts_with('+'));
        Ok(Self { args, meta, tags, expires_at, others: document })
    }
}

pub(crate) fn job_view(stored: &StoredJob) -> Result<OjsJob, StoreError> {
    let StoredJob { job, queue, results, .. } = stored;
    let broken = |error: serde_json::Error| StoreError(format!("job {} cannot be read: {error}", job.job_id));
    let OjsFields { args, meta, tags, expires_at, others } = OjsFields::of(stored).map_err(broken)?;
    let ojs = job.ojs.as_deref();
    let expires_at =
        ojs.and_then(|ojs| ojs.expires_at).map(|at| expires_at.unwrap_or_else(|| at.to_string()));
    let is_retryable = job.state == JobState::Retryable;
    let last = ojs.and_then(|ojs| ojs.failures.last());
    Ok(OjsJob {
        specversion: OJS_VERSION,
        id: job.job_id.clone(),
        job_type: ojs.map_or_else(|| format!("{PLAN_PREFIX}{}", job.plan_id), |ojs| ojs.job_type.clone()),
        state: job.state.ojs_name(),
        queue: queue.clone(),
        args,
        meta,
        tags,
        priority: job.priority,
        attempt: job.shown_attempt(),
        max_attempts: ojs
            .and_then(|ojs| ojs.retry.as_ref())
            .map_or(job.max_retries.saturating_add(1), |retry| retry.max_attempts),
        timeout_ms: Some(job.timeout_ms).filter(|ms| *ms > 0),
        visibility_timeout_ms: ojs.filter(|ojs| ojs.is_reserved()).map(|ojs| ojs.visibility_ms),
        created_at: job.created_at,
        enqueued_at: job.created_at,
        scheduled_at: ojs
            .and_then(|ojs| ojs.scheduled_at)
            .or(job.available_from().filter(|_| job.state == JobState::Scheduled)),
        expires_at,
        started_at: job.started_at,
        completed_at: job.ended_at.filter(|_| is_complete(job)),
        cancelled_at: job.ended_at.filter(|_| job.state == JobState::Cancelled),
        discarded_at: job.ended_at.filter(|_| job.state == JobState::Discarded),
        next_attempt_at: job.due_at.filter(|_| is_retryable),
        retry_delay_ms: job.retry_delay_ms(),
        error: last.filter(|_| job.state != JobState::Completed).map(error_of).or_else(|| plain_error(job)),
        errors: ojs.map_or_else(Vec::new, |ojs| ojs.failures.iter().map(error_of).collect()),
        result: results.clone().map(RawValue::from_string).transpose().map_err(broken)?,
        progress: job.progress().filter(|_| job.state == JobState::Active),
        workflow_id: ojs.and_then(|ojs| ojs.workflow.clone()),
        worker_id: job.holder.clone(),
        action_id: job.action_id.to_string(),
        others,
    })
}

/// Returns true if a worker finished the job. An expired job never began.
fn is_complete(job: &Job) -> bool {
    let is_expired = job.ojs.as_ref().is_some_and(|ojs| ojs.is_expired);
    job.state == JobState::Completed || (job.state == JobState::Discarded && !is_expired)
}

fn error_of(failure: &JobFailure) -> OjsError {
    OjsError {
        code: failure.code.clone(),
        kind: failure.kind.clone(),
        message: failure.message.clone(),
        attempt: failure.attempt,
        occurred_at: failure.at,
        retryable: failure.retryable,
        details: failure.details.as_deref().and_then(|details| serde_json::from_str(details).ok()),
    }
}

/// Error of a job without recorded failures: a job of RESP, or one that no worker ran.
fn plain_error(job: &Job) -> Option<OjsError> {
    let message = job.error.clone().filter(|_| job.state != JobState::Completed)?;
    let code = if job.ojs.as_ref().is_some_and(|ojs| ojs.is_expired) { "expired" } else { "handler_error" };
    Some(OjsError {
        code: code.into(),
        kind: code.into(),
        message,
        attempt: job.shown_attempt(),
        occurred_at: job.ended_at.or(job.started_at).unwrap_or(job.created_at),
        retryable: !job.is_ended(),
        details: None,
    })
}
