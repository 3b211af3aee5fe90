//! Lifecycle of a job, the same for every protocol.
//!
//! ```text
//! staged → available ⇄ scheduled
//!        available → active → completed
//!                           active → retryable → available      (a task failed, retries remain)
//!                           active → scheduled → available      (snoozed by a task)
//!                           active → discarded                  (failed, or dead)
//!                           active → available                  (worker lost, claim given back)
//! any that has not ended → cancelled     failed, dead, cancelled → available (JOB.RETRY)
//! ```
//!
//! `lease`: claims and their ends. `report`: reports of an agw. `ojs_report`: reports of an OJS
//! worker. `user_request`: requests of users. `unique`: duplicates. Every rule takes a job and
//! returns the job after the event.

mod charge;
mod lease;
mod ojs;
mod ojs_report;
mod report;
mod state;
mod unique;
mod user_request;

use std::sync::Arc;

use agenix_protocol::{
    documents::{Plan, Status},
    ids::{ActionId, JobId, PlanId},
    time::Timestamp,
};
use serde::{Deserialize, Serialize};

pub use charge::{budget_of, charged, reserve, run_change, start_of};
pub use lease::{
    LeaseOptions, abandoned, claimed, due, due_while_waiting, expired, extended_after_pause, given_back,
    is_timed_ahead, reclaimed, renewed, rescheduled, staged_again,
};
pub use ojs::{JobFailure, MAX_FAILURES_KEPT, Ojs, Progress, ReportedFailure};
pub use ojs_report::{NOBODY, Reporter, acked, extended, nacked, progressed};
pub use report::{
    MAX_ERROR_BYTES, MAX_SNOOZES, Verdict, check_upload, counts_against_worker, reporter_of, updated, verdict,
};
pub use state::JobState;
pub use unique::{OnConflict, Unique, UniqueOutcome};
pub use user_request::{activated, cancelled, cancelled_unclaimed, check_ended, orphaned, released, retried};

use crate::{action::Action, capability::Needs, limit::LimitTerms, owner::Owner};

/// Number of workers that a job may lose before it is dead, as a poison job.
pub const MAX_LOSSES: u32 = 3;

/// Stored record of a job, without input and results. Durable and positional: append only.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[must_use]
pub struct Job {
    /// The job.
    pub job_id: JobId,
    /// Action of the job.
    pub action_id: ActionId,
    /// Plan that the job runs.
    pub plan_id: PlanId,
    /// Position of the input in the action, from 0.
    pub index: u64,
    /// Lane of the job: number that the store gives to its queue and needs.
    pub lane: u32,
    /// Position in the order of all jobs, from the store. A job that waits again keeps its
    /// position.
    pub seq: u64,
    /// State of the job.
    pub state: JobState,
    /// True if a discarded job is dead (its retries or workers are used up) instead of failed.
    pub is_dead: bool,
    /// Number of claims so far. `attempt` and `holder` are the fencing token of a report.
    pub attempt: u32,
    /// Number of failures.
    pub failures: u32,
    /// Number of workers that were lost while they ran the job.
    pub losses: u32,
    /// Maximum number of retries after failures.
    pub max_retries: u32,
    /// Timeout of one attempt, in milliseconds; 0 for no bound.
    pub timeout_ms: u64,
    /// Time of the submission.
    pub created_at: Timestamp,
    /// Time of the last claim.
    pub started_at: Option<Timestamp>,
    /// Time of the end.
    pub ended_at: Option<Timestamp>,
    /// Time of the next timer: the job becomes available, or its attempt ends.
    pub due_at: Option<Timestamp>,
    /// Current or last holder: id of a worker or name of a connection.
    pub holder: Option<String>,
    /// True if the holder has reported the job since the claim.
    pub is_confirmed: bool,
    /// Number of the running task.
    pub current_task: Option<u32>,
    /// Progress, 0 to 100.
    pub progress_percent: Option<f32>,
    /// Reason of the last failure.
    pub error: Option<String>,
    /// Priority, -100 to 100. Jobs of a higher priority are claimed first.
    pub priority: i32,
    /// Number of snoozes, in which a task asked for a later time.
    pub snoozes: u32,
    /// True if `due_at` is the time by which the holder has to report the job.
    #[serde(default)]
    pub waits_to_start: bool,
    /// Data that only jobs of the Open Job Spec have.
    #[serde(default)]
    pub ojs: Option<Box<Ojs>>,
    /// Time at which the job became available for its current or last claim. `None` before the
    /// first claim, and in records of earlier versions.
    #[serde(default)]
    pub available_at: Option<Timestamp>,
    /// Owner of the action. The last field alone may be left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Owner>,
}

/// Parameters that an action and its plan give to each of their jobs.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct JobParams {
    /// Maximum number of retries after failures.
    pub max_retries: u32,
    /// Timeout of one attempt, in milliseconds; 0 for no bound.
    pub timeout_ms: u64,
    /// Priority, -100 to 100. Jobs of a higher priority are claimed first.
    pub priority: i32,
    /// Earliest time of a run.
    pub run_at: Option<Timestamp>,
    /// True if the job is staged: it waits until it is released.
    pub is_staged: bool,
    /// Data that only jobs of the Open Job Spec have.
    pub ojs: Option<Box<Ojs>>,
}

impl JobParams {
    /// Returns the parameters of jobs that are stored at `now`.
    ///
    /// `job_timeout_ms` is the timeout of an attempt if the plan has none. No job waits longer than
    /// the delay of the action, because the clock may have been set back since the action was
    /// submitted.
    pub fn of(action: &Action, plan: &Plan, job_timeout_ms: u64, now: Timestamp) -> Self {
        let latest = action.wishes.delay_ms.map(|delay| now.plus_ms(delay));
        Self {
            max_retries: plan.max_retries,
            timeout_ms: plan.timeout_secs.map_or(job_timeout_ms, |seconds| seconds.saturating_mul(1000)),
            priority: action.priority,
            run_at: action.run_at.map(|at| latest.map_or(at, |latest| at.min(latest))),
            is_staged: false,
            ojs: None,
        }
    }
}

/// Job that is about to be stored.
#[derive(Debug, Clone, PartialEq)]
pub struct NewJob {
    /// The job.
    pub job_id: JobId,
    /// Input, as JSON.
    pub input: Box<str>,
    /// Parameters of the job that differ from those of its action. Jobs with equal parameters share
    /// one value.
    pub own: Option<Arc<JobOverrides>>,
}

/// Parameters of one job that replace those of its action.
#[derive(Debug, Clone, PartialEq)]
pub struct JobOverrides {
    /// Plan that the job runs.
    pub plan_id: PlanId,
    /// Queue in which the job waits.
    pub queue: String,
    /// Needs that a worker has to cover.
    pub needs: Needs,
    /// Parameters of the job.
    pub terms: JobParams,
    /// True if the submitter chose the id, so another job may have it.
    pub is_named: bool,
    /// Uniqueness constraint.
    pub unique: Option<Unique>,
    /// Terms of the limit that applies to the job.
    pub limit: Option<LimitTerms>,
}

impl NewJob {
    /// Returns the record of the job, submitted at `now` with the parameters `terms` of its action.
    pub fn job(
        &self,
        action: &Action,
        index: u64,
        place: QueuePosition,
        terms: &JobParams,
        now: Timestamp,
    ) -> Job {
        let job_id = self.job_id.clone();
        match &self.own {
            None => Job::new(job_id, action, index, place, terms, now),
            Some(own) => Job {
                plan_id: own.plan_id.clone(),
                ..Job::new(job_id, action, index, place, &own.terms, now)
            },
        }
    }
}

/// Position of a job in its queue, as the store numbers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueuePosition {
    /// Lane, one for each pair of queue and needs.
    pub lane: u32,
    /// Position in the order of all jobs.
    pub seq: u64,
}

/// Result of a rule that accepts an event.
#[derive(Debug, Clone, PartialEq)]
#[must_use]
pub enum RuleOutcome {
    /// The job stays as it is.
    Unchanged,
    /// The job after the event.
    Changed(Box<Job>),
}

impl Job {
    /// Returns a new job of `action`, submitted at `now`. The job is staged, scheduled or
    /// available.
    pub fn new(
        job_id: JobId,
        action: &Action,
        index: u64,
        place: QueuePosition,
        terms: &JobParams,
        now: Timestamp,
    ) -> Self {
        let run_at = terms.run_at.filter(|at| *at > now);
        let expires_at = terms.ojs.as_ref().and_then(|ojs| ojs.expires_at);
        let is_available = run_at.is_none() && !terms.is_staged;
        Self {
            job_id,
            action_id: action.action_id.clone(),
            plan_id: action.plan_id.clone(),
            index,
            lane: place.lane,
            seq: place.seq,
            state: match run_at {
                _ if terms.is_staged => JobState::Staged,
                Some(_) => JobState::Scheduled,
                None => JobState::Available,
            },
            is_dead: false,
            attempt: 0,
            failures: 0,
            losses: 0,
            max_retries: terms.max_retries,
            timeout_ms: terms.timeout_ms,
            created_at: now,
            started_at: None,
            ended_at: None,
            due_at: run_at.filter(|_| !terms.is_staged).into_iter().chain(expires_at).min(),
            holder: None,
            is_confirmed: false,
            current_task: None,
            progress_percent: None,
            error: None,
            priority: terms.priority,
            snoozes: 0,
            waits_to_start: false,
            ojs: terms.ojs.clone(),
            available_at: is_available.then_some(now),
            owner: action.owner.clone(),
        }
    }

    /// Returns the status that RESP shows (AGQ API spec §3).
    pub fn status(&self) -> Status {
        match self.state {
            JobState::Staged | JobState::Scheduled | JobState::Available | JobState::Retryable => {
                Status::Pending
            }
            JobState::Active => Status::Running,
            JobState::Completed => Status::Completed,
            JobState::Cancelled => Status::Cancelled,
            JobState::Discarded if self.is_dead => Status::Dead,
            JobState::Discarded => Status::Failed,
        }
    }

    /// Returns the attempt as the Open Job Spec counts: a retry by a user starts again.
    pub fn shown_attempt(&self) -> u32 {
        self.attempt - self.ojs.as_ref().map_or(0, |ojs| ojs.attempts_before.min(self.attempt))
    }

    /// Returns the kind of work: the job type of a job for OJS workers, otherwise the plan.
    pub fn kind(&self) -> &str {
        let own = self.ojs.as_ref().filter(|ojs| ojs.is_reserved());
        own.map_or_else(|| self.plan_id.as_str(), |ojs| &ojs.job_type)
    }

    /// Returns true if `holder` holds the job now.
    pub fn is_held_by(&self, holder: &str) -> bool {
        self.state == JobState::Active && self.holder.as_deref() == Some(holder)
    }

    /// Returns true if an agw has claimed the job and has not reported its start yet.
    pub fn may_be_unstarted(&self) -> bool {
        self.state == JobState::Active && !self.is_confirmed && !self.is_reserved()
    }

    /// Returns true if a worker runs the job: an agw claims ahead, and reports started jobs.
    pub fn is_started(&self) -> bool {
        self.state == JobState::Active && !self.may_be_unstarted()
    }

    /// Returns the change of the number of started jobs if the job changes from `before` to `self`.
    pub fn starts_since(&self, before: Option<&Self>) -> i64 {
        i64::from(self.is_started()) - i64::from(before.is_some_and(Self::is_started))
    }

    /// Returns the milliseconds from the time at which the job became available to its claim.
    /// `None` before the first claim, while the job waits again, and if the record has no such
    /// time.
    pub fn queue_wait_ms(&self) -> Option<u64> {
        let started_at = self.started_at.filter(|_| self.status() != Status::Pending)?;
        let available_at = self.available_at.filter(|at| *at <= started_at)?;
        Some(started_at.ms_since(available_at))
    }

    /// Returns true if the job will not run again by itself.
    pub fn is_ended(&self) -> bool {
        matches!(self.state, JobState::Completed | JobState::Cancelled | JobState::Discarded)
    }

    /// Returns the time at which a scheduled or retryable job becomes available, unless it expires
    /// earlier.
    pub fn available_from(&self) -> Option<Timestamp> {
        match self.state {
            JobState::Scheduled => self.due_at.max(self.ojs.as_ref().and_then(|ojs| ojs.scheduled_at)),
            JobState::Retryable => self.due_at,
            _ => None,
        }
    }

    fn expires_at(&self) -> Option<Timestamp> {
        self.ojs.as_ref().and_then(|ojs| ojs.expires_at)
    }

    /// Returns true if an OJS worker runs the job, instead of an agw.
    pub fn is_reserved(&self) -> bool {
        self.ojs.as_ref().is_some_and(|ojs| ojs.is_reserved())
    }

    /// Returns the outcome that the job has changed by `change`.
    fn changed(&self, change: impl FnOnce(&mut Self)) -> RuleOutcome {
        let mut next = self.clone();
        change(&mut next);
        RuleOutcome::Changed(Box::new(next))
    }

    fn end(&mut self, state: JobState, now: Timestamp) {
        charge::end_run(self, now);
        self.state = state;
        self.ended_at = Some(now);
        self.due_at = None;
        self.current_task = None;
        self.progress_percent = (state == JobState::Completed).then_some(100.0);
    }

    /// Removes the lease.
    fn release(&mut self) {
        if let Some(ojs) = &mut self.ojs {
            ojs.leased_until = None;
        }
    }

    /// Marks the job as reported, so that only the attempt timeout and the lease count.
    fn confirm(&mut self) {
        (self.is_confirmed, self.waits_to_start) = (true, false);
        self.due_at = self.lease_over_at();
    }

    fn offer_again(&mut self, now: Timestamp) {
        charge::end_run(self, now);
        self.state = JobState::Available;
        self.available_at = Some(now);
        self.due_at = self.expires_at();
        self.release();
        self.is_confirmed = false;
        self.current_task = None;
        self.progress_percent = None;
    }
}

#[cfg(test)]
mod tests;
