//! Who has a job, for how long, and what becomes of it when that ends.

use agenix_protocol::{ids::JobId, time::Timestamp};

use super::{
    Job, JobState, MAX_LOSSES, ReportedFailure, RuleOutcome,
    report::{discard, failed, record_failure},
};
use crate::retry;

/// How long a claim holds before its job is reported, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LeaseOptions {
    /// The time to report it in at all; 0 for no bound.
    pub start_timeout_ms: u64,
    /// For how long a job of the Open Job Spec is reserved, where its worker said so.
    pub visibility_ms: Option<u64>,
}

/// `who` takes an available job, and must report it within a time: there are clients that give up on the reply and keep the
/// connection, and nobody would ever start it.
#[must_use]
pub fn claimed(job: &Job, who: &str, now: Timestamp, hold: LeaseOptions) -> Job {
    let mut next = Job {
        state: JobState::Active,
        attempt: job.attempt + 1,
        holder: Some(who.to_owned()),
        is_confirmed: false,
        started_at: Some(now),
        error: None,
        ..job.clone()
    };
    let mut start_by = (hold.start_timeout_ms > 0).then(|| now.plus_ms(hold.start_timeout_ms));
    if let Some(ojs) = next.ojs.as_mut().filter(|ojs| ojs.is_reserved()) {
        // It is under way from the moment it is fetched.
        start_by = None;
        ojs.lease_ms = hold.visibility_ms.unwrap_or(ojs.visibility_ms);
        ojs.leased_until = Some(now.plus_ms(ojs.lease_ms));
        ojs.progress = None;
    }
    // Who has not reported is judged by the start alone.
    next.waits_to_start = start_by.is_some();
    next.due_at = start_by.or(next.lease_over_at());
    next
}

/// A job that nobody began with in time; `None` where there is time yet.
pub fn expired(job: &Job, now: Timestamp) -> Option<Job> {
    let is_late = job.expires_at().is_some_and(|at| at <= now);
    if !is_late || job.state == JobState::Active || job.is_ended() {
        return None;
    }
    let mut next = job.clone();
    let text = match job.attempt {
        0 => "the job expired before anyone began with it",
        _ => "the job expired before it was tried again",
    };
    next.error = Some(text.into());
    next.end(JobState::Discarded, now);
    if let Some(ojs) = &mut next.ojs {
        ojs.is_expired = true;
    }
    Some(next)
}

/// A claim has ended without a word of its holder, and that counts as a failure: the job goes to others while attempts are left.
fn lapsed(job: &Job, fault: &ReportedFailure, now: Timestamp) -> Job {
    let mut next = job.clone();
    if record_failure(&mut next, fault, false, now) {
        next.offer_again();
    } else {
        discard(&mut next, now, false);
    }
    next
}

/// The holder of an active job is dead: back to available, until it has cost [`MAX_LOSSES`] workers (a poison job).
pub fn abandoned(job: &Job, holder: &str, now: Timestamp) -> RuleOutcome {
    if !job.is_held_by(holder) {
        return RuleOutcome::Unchanged;
    }
    if job.is_reserved() {
        let lost = ReportedFailure::noticed(
            "worker_death",
            format!("worker {holder} was lost while it ran the job"),
        );
        return RuleOutcome::Changed(Box::new(lapsed(job, &lost, now)));
    }
    let mut next = job.clone();
    next.losses += 1;
    next.error = Some(format!("worker {holder} was lost while it ran the job"));
    if next.losses >= MAX_LOSSES {
        next.is_dead = true;
        next.end(JobState::Discarded, now);
    } else {
        next.offer_again();
    }
    RuleOutcome::Changed(Box::new(next))
}

/// A holder gives a job back unfinished, at no cost to the job: it unregisters, its connection closes, or the claim
/// never reached it. With `attempt`, only that very claim is given back, and only while nothing was reported of it.
pub fn given_back(job: &Job, holder: &str, attempt: Option<u32>) -> RuleOutcome {
    let reported = attempt.is_some_and(|attempt| job.is_confirmed || attempt != job.attempt);
    if !job.is_held_by(holder) || reported {
        return RuleOutcome::Unchanged;
    }
    let mut next = job.clone();
    next.offer_again();
    RuleOutcome::Changed(Box::new(next))
}

/// A holder comes back and says which jobs it has; without a list it is taken to have those that it has reported. Any
/// other job of its goes to others: lost with an earlier run of the worker where it was reported, else never received.
pub fn reclaimed(job: &Job, holder: &str, has: Option<&[JobId]>, now: Timestamp) -> RuleOutcome {
    let has_it = has.map_or(job.is_confirmed, |has| has.contains(&job.job_id));
    match (has_it, job.is_confirmed) {
        (true, _) => renewed(job, holder),
        (false, true) => abandoned(job, holder, now),
        (false, false) => given_back(job, holder, None),
    }
}

/// A holder says that it still has the job: from now on only the attempt's own time counts.
pub fn renewed(job: &Job, holder: &str) -> RuleOutcome {
    if !job.is_held_by(holder) || job.is_confirmed {
        return RuleOutcome::Unchanged;
    }
    let mut next = job.clone();
    next.confirm();
    RuleOutcome::Changed(Box::new(next))
}

/// The time of a job has come: it becomes available, its claimant never started it, or its attempt has taken too long.
pub fn due(job: &Job, now: Timestamp, jitter: f64) -> RuleOutcome {
    if job.due_at.is_none_or(|due| due > now) {
        return RuleOutcome::Unchanged;
    }
    if let Some(late) = expired(job, now) {
        return RuleOutcome::Changed(Box::new(late));
    }
    let mut next = job.clone();
    match job.state {
        JobState::Scheduled | JobState::Retryable => next.offer_again(),
        JobState::Active if !job.is_confirmed && job.waits_to_start => next.offer_again(),
        JobState::Active if job.is_reserved() && job.attempt_over_at().is_none_or(|over| over > now) => {
            let text = "nothing was heard of the job for as long as it was reserved";
            next = lapsed(job, &ReportedFailure::noticed("visibility_timeout", text), now);
        }
        JobState::Active => {
            let text = match (job.timeout_ms / 1000, job.timeout_ms % 1000) {
                (seconds, 0) => format!("the job took longer than its {seconds} seconds"),
                _ => format!("the job took longer than its {} ms", job.timeout_ms),
            };
            next = failed(next, &ReportedFailure::noticed("timeout", text), now, jitter);
        }
        _ => return RuleOutcome::Unchanged,
    }
    RuleOutcome::Changed(Box::new(next))
}

/// Time has passed that nobody saw: the machine slept, or the clock was set forward. It does not count against an attempt, as far as
/// it belongs to it.
pub fn extended_after_pause(job: &Job, unseen_ms: u64, now: Timestamp) -> RuleOutcome {
    let unseen_ms = unseen_ms.min(job.started_at.map_or(0, |started| now.ms_since(started)));
    if job.state != JobState::Active || job.due_at.is_none() || unseen_ms == 0 {
        return RuleOutcome::Unchanged;
    }
    let mut next = job.clone();
    next.started_at = job.started_at.map(|started| started.plus_ms(unseen_ms));
    next.due_at = job.due_at.map(|due| due.plus_ms(unseen_ms));
    if let Some(ojs) = &mut next.ojs {
        ojs.leased_until = ojs.leased_until.map(|until| until.plus_ms(unseen_ms));
    }
    RuleOutcome::Changed(Box::new(next))
}

/// Whether a job waits for a time that was reckoned when the clock was far ahead: it was set back since.
pub fn is_reckoned_ahead(job: &Job, now: Timestamp) -> bool {
    match job.state {
        JobState::Active => job.started_at.is_some_and(|started| started > now),
        JobState::Scheduled if job.snoozes == 0 => job.created_at > now,
        JobState::Scheduled | JobState::Retryable => {
            job.due_at.is_some_and(|due| due.ms_since(now) > longest_wait_ms(job))
        }
        _ => false,
    }
}

/// The longest that a job may wait that was tried before.
fn longest_wait_ms(job: &Job) -> u64 {
    let own = job.ojs.as_ref().and_then(|ojs| ojs.retry.as_ref());
    match job.state {
        JobState::Retryable => {
            own.map_or_else(|| retry::delay_ms(job.failures, 1.0), |own| own.delay_ms(job.failures, 1.0))
        }
        _ => retry::snooze_ms(1.0),
    }
}

/// The clock was set back: what a job waits for is reckoned anew from now on. `delay_ms` is what its action was submitted with;
/// a time of day that somebody named stays.
pub fn rescheduled(job: &Job, delay_ms: Option<u64>, now: Timestamp) -> RuleOutcome {
    if !is_reckoned_ahead(job, now) {
        return RuleOutcome::Unchanged;
    }
    let mut next = job.clone();
    match job.state {
        JobState::Active => {
            let lease = job.due_at.zip(job.started_at).map(|(due, started)| due.ms_since(started));
            next.started_at = Some(now);
            next.due_at = lease.map(|lease| now.plus_ms(lease));
            if let Some(ojs) = &mut next.ojs {
                ojs.leased_until = ojs.leased_until.map(|_| now.plus_ms(ojs.lease_ms));
            }
        }
        JobState::Scheduled if job.snoozes == 0 => {
            // One that was reckoned anew before goes on waiting.
            let is_too_far = |delay: &u64| job.due_at.is_some_and(|due| due.ms_since(now) > *delay);
            let Some(delay) = delay_ms.filter(is_too_far) else { return RuleOutcome::Unchanged };
            next.due_at = Some(now.plus_ms(delay));
        }
        _ => next.due_at = Some(now.plus_ms(longest_wait_ms(job))),
    }
    RuleOutcome::Changed(Box::new(next))
}
