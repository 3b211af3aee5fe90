//! Claims and leases of jobs: how a claim begins, how its lease is extended, and how a claim ends
//! without a report.

use std::collections::HashSet;

use agenix_protocol::{ids::JobId, time::Timestamp};

use super::{
    Job, JobState, MAX_LOSSES, ReportedFailure, RuleOutcome, charge,
    report::{discard, failed, record_failure},
};
use crate::{budget::RunUse, retry};

/// Duration of the lease of a claim, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LeaseOptions {
    /// Time within which the holder has to report the job for the first time; 0 for no bound.
    pub start_timeout_ms: u64,
    /// Visibility timeout that the worker of an OJS job requested.
    pub visibility_ms: Option<u64>,
}

impl Job {
    /// Returns the holder of the claim, if the job is claimed.
    pub fn active_holder(&self) -> Option<&str> {
        self.holder.as_deref().filter(|_| self.state == JobState::Active)
    }

    /// Returns the time at which the attempt times out, or `None` without a bound.
    fn attempt_over_at(&self) -> Option<Timestamp> {
        let started_at = self.started_at.filter(|_| self.timeout_ms > 0)?;
        Some(started_at.plus_ms(self.timeout_ms))
    }

    /// Returns the end of the claim: the earlier of attempt timeout and lease.
    pub(super) fn lease_over_at(&self) -> Option<Timestamp> {
        let leased_until = self.ojs.as_ref().and_then(|ojs| ojs.leased_until);
        self.attempt_over_at().into_iter().chain(leased_until).min()
    }
}

/// Claims an available job for `holder`.
///
/// The holder has to report the job within `start_timeout_ms`. A client may give up on the reply
/// and keep its connection open, and without the bound the job would never start.
pub fn claimed(job: &Job, holder: &str, now: Timestamp, options: LeaseOptions) -> Job {
    let mut next = Job {
        state: JobState::Active,
        attempt: job.attempt + 1,
        holder: Some(holder.to_owned()),
        is_confirmed: false,
        started_at: Some(now),
        error: None,
        progress_percent: None,
        ..job.clone()
    };
    charge::set_use(&mut next, None);
    let mut start_by = (options.start_timeout_ms > 0).then(|| now.plus_ms(options.start_timeout_ms));
    if let Some(ojs) = next.ojs.as_mut().filter(|ojs| ojs.is_reserved()) {
        // An OJS job counts as started once it is fetched.
        start_by = None;
        ojs.lease_ms = options.visibility_ms.unwrap_or(ojs.visibility_ms);
        ojs.leased_until = Some(now.plus_ms(ojs.lease_ms));
        ojs.progress = None;
    }
    // The start timeout replaces the attempt timeout until the first report.
    next.waits_to_start = start_by.is_some();
    next.due_at = start_by.or(next.lease_over_at());
    next
}

/// Discards a job that is past its expiry and is not active. Returns `None` otherwise.
pub fn expired(job: &Job, now: Timestamp) -> Option<Job> {
    let is_late = job.expires_at().is_some_and(|at| at <= now);
    if !is_late || job.state == JobState::Active || job.is_ended() {
        return None;
    }
    let mut next = job.clone();
    let text = match job.attempt {
        0 => "the job expired before it started",
        _ => "the job expired before its retry",
    };
    next.error = Some(text.into());
    next.end(JobState::Discarded, now);
    if let Some(ojs) = &mut next.ojs {
        ojs.is_expired = true;
    }
    Some(next)
}

/// Ends a claim without a report, as a failure. The job is available while attempts are left.
fn lapsed(job: &Job, failure: &ReportedFailure, now: Timestamp) -> Job {
    let mut next = job.clone();
    if record_failure(&mut next, failure, false, now) {
        next.offer_again(now);
    } else {
        discard(&mut next, now, false);
    }
    next
}

/// Charges nothing for a claim that ends before an agw has reported the start of the job: an agw
/// claims ahead.
fn charge_unstarted(job: &Job, next: &mut Job) {
    if job.may_be_unstarted() {
        charge::set_use(next, Some(RunUse::default()));
    }
}

/// Ends the claim of a dead holder, or the job once it has lost [`MAX_LOSSES`] workers.
///
/// An unreported job counts the loss, too, because a job may kill its worker before the report of
/// its start.
pub fn abandoned(job: &Job, holder: &str, now: Timestamp) -> RuleOutcome {
    if !job.is_held_by(holder) {
        return RuleOutcome::Unchanged;
    }
    let when = if job.may_be_unstarted() { "before it reported the job" } else { "while it ran the job" };
    let text = format!("worker {holder} was lost {when}");
    if job.is_reserved() {
        let lost = ReportedFailure::noticed("worker_death", text);
        return RuleOutcome::Changed(Box::new(lapsed(job, &lost, now)));
    }
    job.changed(|next| {
        charge_unstarted(job, next);
        next.losses += 1;
        next.error = Some(text);
        if next.losses >= MAX_LOSSES {
            next.is_dead = true;
            next.end(JobState::Discarded, now);
        } else {
            next.offer_again(now);
        }
    })
}

/// Gives an unfinished job back at no cost to the job.
///
/// The reason may be that the holder unregisters, that its connection closes, or that the claim
/// never reached the holder. With `attempt`, only that claim is given back, and only while nothing
/// was reported of it.
pub fn given_back(job: &Job, holder: &str, attempt: Option<u32>, now: Timestamp) -> RuleOutcome {
    let reported = attempt.is_some_and(|attempt| job.is_confirmed || attempt != job.attempt);
    if !job.is_held_by(holder) || reported {
        return RuleOutcome::Unchanged;
    }
    job.changed(|next| {
        if attempt.is_some() {
            charge::set_use(next, Some(RunUse::default()));
        }
        charge_unstarted(job, next);
        next.offer_again(now);
    })
}

/// Gives a claimed job back as staged, because its plan waits for approval. Costs the job nothing.
/// The claim is that of `holder` and `attempt`.
pub fn staged_again(job: &Job, (holder, attempt): (&str, u32), now: Timestamp) -> RuleOutcome {
    match given_back(job, holder, Some(attempt), now) {
        RuleOutcome::Changed(mut next) => {
            (next.state, next.available_at) = (JobState::Staged, None);
            RuleOutcome::Changed(next)
        }
        RuleOutcome::Unchanged => RuleOutcome::Unchanged,
    }
}

/// Reconciles a job with a holder that registers again and lists the jobs that it `has`.
///
/// Without a list, the holder counts as having the jobs that it has reported. Any other job goes to
/// other workers: a reported job was lost with an earlier run of the worker, and an unreported job
/// was never received.
pub fn reclaimed(job: &Job, holder: &str, has: Option<&HashSet<JobId>>, now: Timestamp) -> RuleOutcome {
    let has_it = has.map_or(job.is_confirmed, |has| has.contains(&job.job_id));
    match (has_it, job.is_confirmed) {
        (true, _) => renewed(job, holder),
        (false, true) => abandoned(job, holder, now),
        (false, false) => given_back(job, holder, None, now),
    }
}

/// Confirms a claim that the holder reports. From then on only the attempt timeout counts.
pub fn renewed(job: &Job, holder: &str) -> RuleOutcome {
    if !job.is_held_by(holder) || job.is_confirmed {
        return RuleOutcome::Unchanged;
    }
    job.changed(Job::confirm)
}

/// Fires the timer of a job whose `due_at` has passed: the job becomes available, expires, or its
/// attempt ends because of the start timeout, the lease or the attempt timeout. `jitter` is a
/// random number in 0..1.
pub fn due(job: &Job, now: Timestamp, jitter: f64) -> RuleOutcome {
    if job.due_at.is_none_or(|due| due > now) {
        return RuleOutcome::Unchanged;
    }
    if let Some(late) = expired(job, now) {
        return RuleOutcome::Changed(Box::new(late));
    }
    let mut next = job.clone();
    match job.state {
        JobState::Scheduled | JobState::Retryable => next.offer_again(now),
        JobState::Active if !job.is_confirmed && job.waits_to_start => {
            charge_unstarted(job, &mut next);
            next.offer_again(now);
        }
        JobState::Active if job.is_reserved() && job.attempt_over_at().is_none_or(|over| over > now) => {
            let text = "no report about the job came within its visibility timeout";
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

/// Fires the timer of a job that waits, as [`due`] does. An attempt stays as it is, because it may
/// have to get unobserved time back first.
pub fn due_while_waiting(job: &Job, now: Timestamp, jitter: f64) -> RuleOutcome {
    if job.state == JobState::Active { RuleOutcome::Unchanged } else { due(job, now, jitter) }
}

/// Extends an attempt by `unseen_ms` since its start in which agq slept, or the clock jumped.
pub fn extended_after_pause(job: &Job, unseen_ms: u64, now: Timestamp) -> RuleOutcome {
    let unseen_ms = unseen_ms.min(job.started_at.map_or(0, |started| now.ms_since(started)));
    if job.state != JobState::Active || job.due_at.is_none() || unseen_ms == 0 {
        return RuleOutcome::Unchanged;
    }
    job.changed(|next| {
        next.started_at = job.started_at.map(|started| started.plus_ms(unseen_ms));
        next.available_at = job.available_at.map(|available| available.plus_ms(unseen_ms));
        next.due_at = job.due_at.map(|due| due.plus_ms(unseen_ms));
        if let Some(ojs) = &mut next.ojs {
            ojs.leased_until = ojs.leased_until.map(|until| until.plus_ms(unseen_ms));
        }
    })
}

/// Returns true if the times of a job are from before the clock was set back.
pub fn is_timed_ahead(job: &Job, now: Timestamp) -> bool {
    match job.state {
        JobState::Active => job.started_at.is_some_and(|started| started > now),
        JobState::Scheduled if job.snoozes == 0 => job.created_at > now,
        JobState::Scheduled | JobState::Retryable => {
            job.due_at.is_some_and(|due| due.ms_since(now) > longest_wait_ms(job))
        }
        _ => false,
    }
}

/// Returns the longest possible wait of a retryable or snoozed job.
fn longest_wait_ms(job: &Job) -> u64 {
    if job.state == JobState::Retryable { job.delay_ms(1.0) } else { retry::snooze_ms(1.0) }
}

/// Recomputes the times of a job after the clock was set back. `delay_ms` is the delay with which
/// the action was submitted. A time that the submitter named stays.
pub fn rescheduled(job: &Job, delay_ms: Option<u64>, now: Timestamp) -> RuleOutcome {
    if !is_timed_ahead(job, now) {
        return RuleOutcome::Unchanged;
    }
    let mut next = job.clone();
    match job.state {
        JobState::Active => {
            let lease = job.due_at.zip(job.started_at).map(|(due, started)| due.ms_since(started));
            next.started_at = Some(now);
            next.available_at = job.queue_wait_ms().map(|wait| Timestamp(now.0.saturating_sub(wait)));
            next.due_at = lease.map(|lease| now.plus_ms(lease));
            if let Some(ojs) = &mut next.ojs {
                ojs.leased_until = ojs.leased_until.map(|_| now.plus_ms(ojs.lease_ms));
            }
        }
        JobState::Scheduled if job.snoozes == 0 => {
            // A delay that was recomputed before stays.
            let is_too_far = |delay: &u64| job.due_at.is_some_and(|due| due.ms_since(now) > *delay);
            let Some(delay) = delay_ms.filter(is_too_far) else { return RuleOutcome::Unchanged };
            next.due_at = Some(now.plus_ms(delay));
        }
        _ => next.due_at = Some(now.plus_ms(longest_wait_ms(job))),
    }
    RuleOutcome::Changed(Box::new(next))
}
