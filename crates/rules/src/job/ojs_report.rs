//! Reports of OJS workers on fetched jobs (the OJS worker spec): success, failure, heartbeat and
//! progress.

use agenix_protocol::time::Timestamp;

use super::{
    Job, JobState, Progress, ReportedFailure, RuleOutcome,
    report::{cut, failed},
};
use crate::rejection::Rejection;

/// Holder of jobs that are fetched without a worker id.
pub const NOBODY: &str = "ojs:nobody";

/// Identity and attempt that a report names, for a comparison with the claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reporter<'s> {
    /// Worker of the report.
    pub worker: Option<&'s str>,
    /// Attempt of the report, as the Open Job Spec counts attempts.
    pub attempt: Option<u32>,
}

/// Checks that the report is about the current attempt, and comes from the holder.
fn check(job: &Job, reporter: Reporter<'_>) -> Result<(), Rejection> {
    if job.state != JobState::Active {
        return Err(Rejection::NotActive { job_id: job.job_id.clone(), state: job.state.ojs_name() });
    }
    let holder = || job.holder.clone().unwrap_or_default();
    match reporter.worker {
        Some(worker) if !job.is_held_by(worker) && !job.is_held_by(NOBODY) => {
            return Err(Rejection::NotHolder { worker: worker.to_owned(), holder: holder() });
        }
        // Only an agw may report a job of an agw, and an agw always names itself.
        None if !job.is_reserved() => {
            return Err(Rejection::NotHolder { worker: NOBODY.to_owned(), holder: holder() });
        }
        _ => {}
    }
    let current = job.shown_attempt();
    match reporter.attempt.filter(|reported| *reported != current) {
        Some(reported) => Err(Rejection::StaleAttempt { job_id: job.job_id.clone(), reported, current }),
        None => Ok(()),
    }
}

/// Returns true if the report repeats an earlier report on the same attempt, whose answer was lost.
fn is_repeated(job: &Job, reporter: Reporter<'_>) -> bool {
    reporter.worker.is_some()
        && reporter.worker == job.holder.as_deref()
        && reporter.attempt == Some(job.shown_attempt())
}

/// Returns true if a nack with `failure` has left the job as it is: given back, or failed.
fn is_nacked_by(job: &Job, failure: &ReportedFailure, requeue: bool) -> bool {
    let last = job.ojs.as_ref().and_then(|ojs| ojs.failures.last());
    let of_attempt = last.filter(|last| last.attempt == job.shown_attempt());
    match job.state {
        JobState::Active | JobState::Completed | JobState::Cancelled => false,
        JobState::Available if requeue => of_attempt.is_none(),
        _ => of_attempt.is_some_and(|last| {
            !requeue
                && last.code == cut(&failure.code)
                && last.kind == cut(&failure.kind)
                && last.message == cut(&failure.message)
        }),
    }
}

/// Completes a job. The error is [`Rejection::NotActive`], [`Rejection::NotHolder`] or
/// [`Rejection::StaleAttempt`] for a report that does not match the claim.
pub fn acked(job: &Job, reporter: Reporter<'_>, now: Timestamp) -> Result<RuleOutcome, Rejection> {
    if job.state == JobState::Completed && is_repeated(job, reporter) {
        return Ok(RuleOutcome::Unchanged);
    }
    check(job, reporter)?;
    let mut next = job.clone();
    next.error = None;
    next.release();
    next.end(JobState::Completed, now);
    Ok(RuleOutcome::Changed(Box::new(next)))
}

/// Applies a failure to a job. With `requeue` the job is given back without counting a failure.
/// `jitter` is a random number in 0..1. Errors are those of [`acked`].
pub fn nacked(
    job: &Job,
    reporter: Reporter<'_>,
    failure: &ReportedFailure,
    requeue: bool,
    now: Timestamp,
    jitter: f64,
) -> Result<RuleOutcome, Rejection> {
    if is_repeated(job, reporter) && is_nacked_by(job, failure, requeue) {
        return Ok(RuleOutcome::Unchanged);
    }
    check(job, reporter)?;
    let mut next = job.clone();
    if requeue {
        next.offer_again(now);
    } else {
        next = failed(next, failure, now, jitter);
    }
    Ok(RuleOutcome::Changed(Box::new(next)))
}

/// Extends the lease. `visibility_ms` replaces the duration of the lease from now on.
pub fn extended(job: &Job, worker: &str, visibility_ms: Option<u64>, now: Timestamp) -> RuleOutcome {
    // A job that was fetched without a worker id may be extended by any worker that lists it.
    if !(job.is_held_by(worker) || job.is_held_by(NOBODY)) || !job.is_reserved() {
        return RuleOutcome::Unchanged;
    }
    let mut next = job.clone();
    if let Some(ojs) = &mut next.ojs {
        ojs.lease_ms = visibility_ms.unwrap_or(ojs.lease_ms);
        ojs.leased_until = Some(now.plus_ms(ojs.lease_ms));
    }
    next.due_at = next.lease_over_at();
    RuleOutcome::Changed(Box::new(next))
}

/// Stores the progress of a job, from 0 to 1, and extends the lease. The progress of an attempt
/// never decreases. A job that is not active stays unchanged. The error is
/// [`Rejection::NotHolder`] if `worker` does not hold the job.
pub fn progressed(
    job: &Job,
    worker: Option<&str>,
    progress: Option<f64>,
    report: &Progress,
    now: Timestamp,
) -> Result<RuleOutcome, Rejection> {
    if job.state != JobState::Active {
        return Ok(RuleOutcome::Unchanged);
    }
    check(job, Reporter { worker, attempt: None })?;
    let holder = job.holder.clone().unwrap_or_default();
    let mut next = match extended(job, &holder, None, now) {
        RuleOutcome::Changed(next) => *next,
        RuleOutcome::Unchanged => job.clone(),
    };
    #[expect(clippy::cast_possible_truncation, reason = "between 0 and 100")]
    let percent = progress.map(|progress| (progress.clamp(0.0, 1.0) * 100.0) as f32);
    next.progress_percent = match (job.progress_percent, percent) {
        (Some(known), Some(percent)) => Some(known.max(percent)),
        (known, percent) => percent.or(known),
    };
    if let Some(ojs) = &mut next.ojs {
        ojs.progress = Some(report.clone());
    }
    Ok(RuleOutcome::Changed(Box::new(next)))
}

#[cfg(test)]
mod tests;
