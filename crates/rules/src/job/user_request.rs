//! Requests of users and submitters: cancel a job, release it, try it again.

use agenix_protocol::time::Timestamp;

use super::{Job, JobState, RuleOutcome};
use crate::rejection::Rejection;

/// Cancels a job that has not ended. The worker of the job gets a directive with its next
/// heartbeat.
pub fn cancelled(job: &Job, now: Timestamp) -> Result<RuleOutcome, Rejection> {
    match job.state {
        JobState::Cancelled => Ok(RuleOutcome::Unchanged),
        JobState::Completed | JobState::Discarded => Err(Rejection::JobEnded(job.status())),
        _ => Ok(job.changed(|next| next.end(JobState::Cancelled, now))),
    }
}

/// Checks that a job has ended, because only such a job can be forgotten. The error is
/// [`Rejection::JobNotEnded`].
pub fn check_ended(job: &Job) -> Result<(), Rejection> {
    if job.is_ended() { Ok(()) } else { Err(Rejection::JobNotEnded(job.status())) }
}

/// Cancels an unclaimed job. Only the worker of a claimed job knows whether it started.
pub fn cancelled_unclaimed(job: &Job, now: Timestamp) -> RuleOutcome {
    match job.state {
        JobState::Staged | JobState::Scheduled | JobState::Available | JobState::Retryable => {
            job.changed(|next| next.end(JobState::Cancelled, now))
        }
        _ => RuleOutcome::Unchanged,
    }
}

/// Releases a staged job: it becomes available.
pub fn activated(job: &Job, now: Timestamp) -> Result<RuleOutcome, Rejection> {
    if job.state != JobState::Staged {
        return Err(Rejection::NotStaged(job.job_id.clone()));
    }
    Ok(job.changed(|next| next.offer_again(now)))
}

/// Releases a staged job whose plan was approved: it is available, or scheduled for its time, which
/// is `action_run_at` if the job was not submitted by itself. A job that was submitted as pending
/// still waits until it is activated.
pub fn released(job: &Job, action_run_at: Option<Timestamp>, now: Timestamp) -> RuleOutcome {
    // A job with an attempt was staged again after a claim, so it was activated before, and its
    // time has come.
    let is_new = job.attempt == 0;
    let waits = is_new && job.ojs.as_ref().is_some_and(|ojs| ojs.is_pending);
    if job.state != JobState::Staged || waits {
        return RuleOutcome::Unchanged;
    }
    let run_at = match &job.ojs {
        Some(ojs) if ojs.is_submitted_job() => ojs.scheduled_at,
        _ => action_run_at,
    };
    job.changed(|next| {
        next.offer_again(now);
        if let Some(run_at) = run_at.filter(|run_at| is_new && *run_at > now) {
            // The job still expires at the time that `offer_again` has set.
            let due_at = next.due_at.into_iter().chain([run_at]).min();
            (next.state, next.available_at, next.due_at) = (JobState::Scheduled, None, due_at);
        }
    })
}

/// Makes a failed job, with `force` a dead or cancelled one, available (AGQ API spec §3).
pub fn retried(job: &Job, force: bool, now: Timestamp) -> Result<RuleOutcome, Rejection> {
    match job.state {
        JobState::Discarded if job.is_dead && !force => return Err(Rejection::RetriesExceeded),
        JobState::Discarded => {}
        JobState::Cancelled if force => {}
        _ => return Err(Rejection::JobNotFailed),
    }
    let mut next = job.clone();
    (next.failures, next.losses, next.snoozes) = (0, 0, 0);
    (next.is_dead, next.ended_at, next.error) = (false, None, None);
    if let Some(ojs) = &mut next.ojs {
        // The job is wanted again, so an expiry that has passed no longer counts.
        let expires_at = ojs.expires_at.filter(|at| *at > now && !ojs.is_expired);
        (ojs.attempts_before, ojs.expires_at, ojs.is_expired) = (job.attempt, expires_at, false);
    }
    next.offer_again(now);
    Ok(RuleOutcome::Changed(Box::new(next)))
}

/// Discards a job whose plan was deleted, because no worker can run it.
pub fn orphaned(job: &Job, now: Timestamp) -> Job {
    let mut next = job.clone();
    next.error = Some(format!("plan {} was deleted", job.plan_id));
    next.end(JobState::Discarded, now);
    next
}
