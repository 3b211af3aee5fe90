//! Reports of the holder of a job, and the meaning of exit codes.

use agenix_protocol::{
    documents::{JobUpdate, Status},
    time::Timestamp,
};

use super::{
    Job,
    JobState::{self, Available, Discarded, Retryable, Scheduled},
    ReportedFailure, RuleOutcome, charge,
};
use crate::{budget::RunUse, rejection::Rejection, retry};

/// Maximum number of bytes of a worker's error text that a job stores.
pub const MAX_ERROR_BYTES: usize = 4096;
/// Maximum number of snoozes of a job. A further snooze counts as a failure.
pub const MAX_SNOOZES: u32 = 100;

const EX_USAGE: i32 = 64;
const EX_DATAERR: i32 = 65;
const EX_TEMPFAIL: i32 = 75;
const EX_CONFIG: i32 = 78;

/// Applies the report of `reporter` to a job. Checks ownership and transition, and decides about a
/// retry.
///
/// `exit_code` is that of the task that caused a failure. `jitter` is a random number in 0..1. The
/// error is [`Rejection::StaleAttempt`] for another attempt, [`Rejection::NotHolder`] for a worker
/// that does not hold the job, and [`Rejection::IllegalTransition`] for a status that the job
/// cannot take.
pub fn updated(
    job: &Job,
    update: &JobUpdate,
    reporter: &str,
    exit_code: Option<i32>,
    now: Timestamp,
    jitter: f64,
) -> Result<RuleOutcome, Rejection> {
    if let Some(reported) = update.attempt
        && reported != job.attempt
    {
        return Err(Rejection::StaleAttempt { job_id: job.job_id.clone(), reported, current: job.attempt });
    }
    if job.state != JobState::Active {
        return report_after_the_end(job, update, reporter);
    }
    check_holder(job, reporter)?;
    let mut next = job.clone();
    next.confirm();
    next.current_task = update.current_task.or(next.current_task);
    next.progress_percent = update.progress_percent.map(|p| p.clamp(0.0, 100.0)).or(next.progress_percent);
    match update.status {
        None | Some(Status::Running) => {}
        Some(Status::Completed) => next.end(JobState::Completed, now),
        Some(Status::Failed) => {
            let error = update.error.as_deref().unwrap_or("the worker gave no reason");
            let error = &ReportedFailure::noticed("handler_error", error);
            next = match verdict(exit_code, &next) {
                Verdict::Retry => failed(next, error, now, jitter),
                Verdict::Snooze => snoozed(next, error, now, jitter),
                Verdict::Discard => discarded(next, error, now),
            };
        }
        // A worker gives up an unstarted job after a request to do so.
        Some(Status::Cancelled) if !job.is_confirmed => {
            charge::set_use(&mut next, Some(RunUse::default()));
            next.end(JobState::Cancelled, now);
        }
        Some(to) => return Err(Rejection::IllegalTransition { from: job.status(), to }),
    }
    Ok(RuleOutcome::Changed(Box::new(next)))
}

/// Returns the name in which a client reports the job: `connection` if the connection of the client
/// is the holder itself, and otherwise `reporter`.
///
/// A connection claims in its own name until it has a worker. The connection may report such a job
/// after it has registered, and may name a worker in the report (worker spec §4.2, §4.3).
pub fn reporter_of<'n>(job: &Job, reporter: &'n str, connection: &'n str) -> &'n str {
    if job.holder.as_deref() == Some(connection) { connection } else { reporter }
}

fn check_holder(job: &Job, reporter: &str) -> Result<(), Rejection> {
    if !job.is_held_by(reporter) {
        let holder = job.holder.clone().unwrap_or_default();
        return Err(Rejection::NotHolder { worker: reporter.to_owned(), holder });
    }
    Ok(())
}

/// Checks that `reporter` may upload output of an attempt.
///
/// The error is [`Rejection::NotActive`] for a job that does not run, [`Rejection::NotHolder`] for
/// a worker that does not hold the job, and [`Rejection::StaleAttempt`] for another attempt.
pub fn check_upload(job: &Job, reporter: &str, attempt: u32) -> Result<(), Rejection> {
    if job.state != JobState::Active {
        return Err(Rejection::NotActive { job_id: job.job_id.clone(), state: job.state.as_str() });
    }
    check_holder(job, reporter)?;
    if attempt != job.attempt {
        let (job_id, current) = (job.job_id.clone(), job.attempt);
        return Err(Rejection::StaleAttempt { job_id, reported: attempt, current });
    }
    Ok(())
}

/// Handles a report on a job that is not active. A repeated report of the holder on the same
/// attempt is accepted, because its answer was lost. Any other report is refused.
fn report_after_the_end(job: &Job, update: &JobUpdate, reporter: &str) -> Result<RuleOutcome, Rejection> {
    let to = update.status.unwrap_or(Status::Running);
    let repeats = update.attempt == Some(job.attempt) && job.holder.as_deref() == Some(reporter);
    let same_end = match to {
        Status::Completed => job.state == JobState::Completed,
        Status::Cancelled => job.state == JobState::Cancelled,
        // The retry of the failed job may have become available since the report.
        Status::Failed => matches!(job.state, Discarded | Retryable | Scheduled | Available),
        _ => false,
    };
    if repeats && same_end {
        Ok(RuleOutcome::Unchanged)
    } else {
        Err(Rejection::IllegalTransition { from: job.status(), to })
    }
}

/// Consequence of the exit code of a failed task. The codes are those of sysexits.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Ordinary failure: retry as often as the plan allows.
    Retry,
    /// Temporary failure: try again later, without counting a failure.
    Snooze,
    /// Permanent failure: do not retry.
    Discard,
}

/// Returns the verdict on a failed job. `exit_code` is that of the task that caused the failure.
pub fn verdict(exit_code: Option<i32>, job: &Job) -> Verdict {
    match exit_code {
        Some(EX_TEMPFAIL) if job.snoozes < MAX_SNOOZES => Verdict::Snooze,
        Some(EX_USAGE | EX_DATAERR | EX_CONFIG) => Verdict::Discard,
        _ => Verdict::Retry,
    }
}

/// Returns true unless the exit code of the task means a temporary failure or a wrong input.
pub fn counts_against_worker(exit_code: Option<i32>) -> bool {
    !matches!(exit_code, Some(EX_TEMPFAIL | EX_USAGE | EX_DATAERR | EX_CONFIG))
}

fn snoozed(mut job: Job, failure: &ReportedFailure, now: Timestamp, jitter: f64) -> Job {
    job.error = Some(cut(&failure.message).to_owned());
    job.snoozes += 1;
    charge::end_run(&mut job, now);
    job.state = JobState::Scheduled;
    job.due_at = Some(now.plus_ms(retry::snooze_ms(jitter)));
    job.current_task = None;
    job.progress_percent = None;
    job
}

/// Counts and stores a failure. Returns true if another attempt is left.
pub(super) fn record_failure(
    job: &mut Job,
    failure: &ReportedFailure,
    is_final: bool,
    now: Timestamp,
) -> bool {
    job.error = Some(cut(&failure.message).to_owned());
    job.failures += 1;
    let may_retry = !is_final && job.failures <= job.max_retries;
    let attempt = job.attempt;
    if let Some(ojs) = &mut job.ojs {
        ojs.remember(failure.clone(), !is_final, attempt, now);
    }
    may_retry
}

/// Ends a job after its last failure. `is_final` means that further attempts could not succeed.
pub(super) fn discard(job: &mut Job, now: Timestamp, is_final: bool) {
    // The policy of an OJS job decides whether the job becomes a dead letter.
    job.is_dead = job.retry().map_or(job.max_retries > 0 && !is_final, |retry| retry.to_dead_letter);
    job.end(JobState::Discarded, now);
}

fn discarded(mut job: Job, failure: &ReportedFailure, now: Timestamp) -> Job {
    record_failure(&mut job, failure, true, now);
    discard(&mut job, now, true);
    job
}

pub(super) fn failed(mut job: Job, failure: &ReportedFailure, now: Timestamp, jitter: f64) -> Job {
    let is_final = job.retry().is_some_and(|retry| failure.is_final(retry));
    if record_failure(&mut job, failure, is_final, now) {
        charge::end_run(&mut job, now);
        job.release();
        job.state = JobState::Retryable;
        job.due_at = Some(now.plus_ms(job.delay_ms(jitter)));
    } else {
        discard(&mut job, now, is_final);
    }
    job
}

pub(crate) fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_ERROR_BYTES)]
}
