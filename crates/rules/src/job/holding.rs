//! Who has a job, for how long, and what becomes of it when that ends.

use agenix_protocol::{ids::JobId, time::Timestamp};

use super::{Job, MAX_LOSSES, Outcome, State, report::failed};
use crate::retry;

/// `who` takes an available job, and must report it within `start_timeout_ms` (0 for no bound): there are clients that give
/// up on the reply and keep the connection, and nobody would ever start it.
#[must_use]
pub fn claimed(job: &Job, who: &str, now: Timestamp, start_timeout_ms: u64) -> Job {
    let over_at = (job.timeout_ms > 0).then(|| now.plus_ms(job.timeout_ms));
    let start_by = (start_timeout_ms > 0).then(|| now.plus_ms(start_timeout_ms));
    Job {
        state: State::Active,
        attempt: job.attempt + 1,
        holder: Some(who.to_owned()),
        is_confirmed: false,
        waits_to_start: start_by.is_some(),
        started_at: Some(now),
        // Who has not reported is judged by the start alone.
        due_at: start_by.or(over_at),
        error: None,
        ..job.clone()
    }
}

/// The holder of an active job is dead: back to available, until it has cost [`MAX_LOSSES`] workers (a poison job).
pub fn abandoned(job: &Job, holder: &str, now: Timestamp) -> Outcome {
    if !job.is_held_by(holder) {
        return Outcome::Unchanged;
    }
    let mut next = job.clone();
    next.losses += 1;
    next.error = Some(format!("worker {holder} was lost while it ran the job"));
    if next.losses >= MAX_LOSSES {
        next.is_dead = true;
        next.end(State::Discarded, now);
    } else {
        next.offer_again();
    }
    Outcome::Changed(Box::new(next))
}

/// A holder gives a job back unfinished, at no cost to the job: it unregisters, its connection closes, or the claim
/// never reached it. With `attempt`, only that very claim is given back, and only while nothing was reported of it.
pub fn given_back(job: &Job, holder: &str, attempt: Option<u32>) -> Outcome {
    let reported = attempt.is_some_and(|attempt| job.is_confirmed || attempt != job.attempt);
    if !job.is_held_by(holder) || reported {
        return Outcome::Unchanged;
    }
    let mut next = job.clone();
    next.offer_again();
    Outcome::Changed(Box::new(next))
}

/// A holder comes back and says which jobs it has; without a list it is taken to have those that it has reported. Any
/// other job of its goes to others: lost with an earlier run of the worker where it was reported, else never received.
pub fn reclaimed(job: &Job, holder: &str, has: Option<&[JobId]>, now: Timestamp) -> Outcome {
    let has_it = has.map_or(job.is_confirmed, |has| has.contains(&job.job_id));
    match (has_it, job.is_confirmed) {
        (true, _) => renewed(job, holder),
        (false, true) => abandoned(job, holder, now),
        (false, false) => given_back(job, holder, None),
    }
}

/// A holder says that it still has the job: from now on only the attempt's own time counts.
pub fn renewed(job: &Job, holder: &str) -> Outcome {
    if !job.is_held_by(holder) || job.is_confirmed {
        return Outcome::Unchanged;
    }
    let mut next = job.clone();
    next.confirm();
    Outcome::Changed(Box::new(next))
}

/// The time of a job has come: it becomes available, its claimant never started it, or its attempt has taken too long.
pub fn due(job: &Job, now: Timestamp, jitter: f64) -> Outcome {
    if job.due_at.is_none_or(|due| due > now) {
        return Outcome::Unchanged;
    }
    let mut next = job.clone();
    match job.state {
        State::Scheduled | State::Retryable => next.offer_again(),
        State::Active if !job.is_confirmed && job.waits_to_start => next.offer_again(),
        State::Active => {
            let seconds = job.timeout_ms / 1000;
            next = failed(next, &format!("the job took longer than its {seconds} seconds"), now, jitter);
        }
        _ => return Outcome::Unchanged,
    }
    Outcome::Changed(Box::new(next))
}

/// Time has passed that nobody saw: the machine slept, or the clock was set forward. It does not count against an attempt, as far as
/// it belongs to it.
pub fn excused(job: &Job, unseen_ms: u64, now: Timestamp) -> Outcome {
    let unseen_ms = unseen_ms.min(job.started_at.map_or(0, |started| now.ms_since(started)));
    if job.state != State::Active || job.due_at.is_none() || unseen_ms == 0 {
        return Outcome::Unchanged;
    }
    let mut next = job.clone();
    next.started_at = job.started_at.map(|started| started.plus_ms(unseen_ms));
    next.due_at = job.due_at.map(|due| due.plus_ms(unseen_ms));
    Outcome::Changed(Box::new(next))
}

/// Whether a job waits for a time that was reckoned when the clock was far ahead: it was set back since.
pub fn is_reckoned_ahead(job: &Job, now: Timestamp) -> bool {
    match job.state {
        State::Active => job.started_at.is_some_and(|started| started > now),
        State::Scheduled if job.snoozes == 0 => job.created_at > now,
        State::Scheduled | State::Retryable => {
            job.due_at.is_some_and(|due| due.ms_since(now) > longest_wait_ms(job))
        }
        _ => false,
    }
}

/// The longest that a job may wait that was tried before.
fn longest_wait_ms(job: &Job) -> u64 {
    if job.state == State::Retryable { retry::delay_ms(job.failures, 1.0) } else { retry::snooze_ms(1.0) }
}

/// The clock was set back: what a job waits for is reckoned anew from now on. `delay_ms` is what its action was submitted with;
/// a time of day that somebody named stays.
pub fn reckoned_anew(job: &Job, delay_ms: Option<u64>, now: Timestamp) -> Outcome {
    if !is_reckoned_ahead(job, now) {
        return Outcome::Unchanged;
    }
    let mut next = job.clone();
    match job.state {
        State::Active => {
            let lease = job.due_at.zip(job.started_at).map(|(due, started)| due.ms_since(started));
            next.started_at = Some(now);
            next.due_at = lease.map(|lease| now.plus_ms(lease));
        }
        State::Scheduled if job.snoozes == 0 => {
            // One that was reckoned anew before goes on waiting.
            let is_too_far = |delay: &u64| job.due_at.is_some_and(|due| due.ms_since(now) > *delay);
            let Some(delay) = delay_ms.filter(is_too_far) else { return Outcome::Unchanged };
            next.due_at = Some(now.plus_ms(delay));
        }
        _ => next.due_at = Some(now.plus_ms(longest_wait_ms(job))),
    }
    Outcome::Changed(Box::new(next))
}
