//! Lifecycle of a job, the same for every protocol.
//!
//! ```text
//! staged → available ⇄ scheduled        available → active → completed
//!                                       active → retryable → available      (a task failed, retries remain)
//!                                       active → scheduled → available      (snoozed by a task)
//!                                       active → discarded                  (failed, or dead)
//!                                       active → available                  (worker lost, claim given back)
//! any that has not ended → cancelled     failed, dead, cancelled → available (asked for)
//! ```
//!
//! `lease`: claims and their ends. `report`: reports of an agw. `ojs_report`: reports of an OJS
//! worker. `user_request`: requests of people.

mod lease;
mod ojs;
mod ojs_report;
mod report;
mod state;
mod unique;
mod user_request;

use agenix_protocol::{
    documents::{Plan, Status},
    ids::{ActionId, JobId, PlanId},
    time::Timestamp,
};
use serde::{Deserialize, Serialize};

pub use lease::{
    LeaseOptions, abandoned, claimed, due, expired, extended_after_pause, given_back, is_reckoned_ahead,
    reclaimed, renewed, rescheduled,
};
pub use ojs::{JobFailure, MAX_FAILURES_KEPT, Ojs, Progress, ReportedFailure};
pub use ojs_report::{NOBODY, Reporter, acked, extended, nacked, progressed};
pub use report::{MAX_ERROR_BYTES, MAX_SNOOZES, Verdict, counts_against_worker, updated, verdict};
pub use state::JobState;
pub use unique::{OnConflict, Unique, UniqueOutcome};
pub use user_request::{activated, cancelled, cancelled_unclaimed, orphaned, retried};

use crate::{action::Action, capability::Needs, limit::LimitTerms};

/// How many workers a job may lose before it is dead: it may be what kills them.
pub const MAX_LOSSES: u32 = 3;

/// A job as a store keeps it; its input and its results are kept apart. Fields are durable and positional: append,
/// never reorder.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// The job.
    pub job_id: JobId,
    /// The action it belongs to.
    pub action_id: ActionId,
    /// The plan it runs.
    pub plan_id: PlanId,
    /// Its place among the action's inputs, from 0.
    pub index: u64,
    /// The lane it waits in: the store's number for its queue and needs.
    pub lane: u32,
    /// Its place in the order of all jobs: the store's number, kept when it has to wait again.
    pub seq: u64,
    /// Where it stands.
    pub state: JobState,
    /// Whether a discarded job is dead (retries or workers used up) rather than failed.
    pub is_dead: bool,
    /// How often it was claimed: the fence.
    pub attempt: u32,
    /// How often it failed.
    pub failures: u32,
    /// How many workers died with it.
    pub losses: u32,
    /// How often it may be tried again after a failure.
    pub max_retries: u32,
    /// How long one attempt may take, in milliseconds; 0 for no bound.
    pub timeout_ms: u64,
    /// When it was submitted.
    pub created_at: Timestamp,
    /// When it was last claimed.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// When something happens to it by itself: it becomes available, or its attempt is over.
    pub due_at: Option<Timestamp>,
    /// Who has it, or had it last: a worker's id or a connection's name.
    pub holder: Option<String>,
    /// Whether its holder has reported it since the claim.
    pub is_confirmed: bool,
    /// The task that runs now.
    pub current_task: Option<u32>,
    /// 0 to 100.
    pub progress_percent: Option<f32>,
    /// Why it failed.
    pub error: Option<String>,
    /// -100 to 100; jobs of a higher one are claimed first.
    pub priority: i32,
    /// How often a task of it asked for a later time.
    pub snoozes: u32,
    /// Whether `due_at` is the time by which its holder must have reported it.
    #[serde(default)]
    pub waits_to_start: bool,
    /// What it has beside that, where it came by the Open Job Spec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ojs: Option<Box<Ojs>>,
}

/// What an action and its plan say about each of its jobs.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct JobParams {
    /// How often it may be tried again after a failure.
    pub max_retries: u32,
    /// How long one attempt may take, in milliseconds; 0 for no bound.
    pub timeout_ms: u64,
    /// -100 to 100; jobs of a higher one are claimed first.
    pub priority: i32,
    /// When it may run at the earliest.
    pub run_at: Option<Timestamp>,
    /// Whether it waits to be released.
    pub is_staged: bool,
    /// What else it has, where it came by the Open Job Spec.
    pub ojs: Option<Box<Ojs>>,
}

impl JobParams {
    /// What an action and its plan say of jobs that are stored at `now`; `job_timeout_ms` is the bound of an attempt where the
    /// plan has none of its own. No job waits for longer than the action's delay: the clock may have been set back since the
    /// action was submitted.
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

/// A job that is about to be stored: what an action knows of it.
#[derive(Debug, Clone, PartialEq)]
pub struct NewJob {
    /// Its id.
    pub job_id: JobId,
    /// Its input, as JSON.
    pub input: Box<str>,
    /// What it has for itself, where that is not what its action says of all its jobs.
    pub own: Option<Box<JobOverrides>>,
}

/// What a job has for itself.
#[derive(Debug, Clone, PartialEq)]
pub struct JobOverrides {
    /// The plan it runs.
    pub plan_id: PlanId,
    /// The queue it waits in.
    pub queue: String,
    /// What a worker must have for it.
    pub needs: Needs,
    /// What is said about it.
    pub terms: JobParams,
    /// Whether whoever submitted it chose its id: it may be taken.
    pub is_named: bool,
    /// What makes it the only one of its kind.
    pub unique: Option<Unique>,
    /// What the limit allows that it stands under.
    pub limit: Option<LimitTerms>,
}

impl NewJob {
    /// The job as it is submitted at `now`, of an action whose jobs have these terms in common.
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

/// Where a job waits: the store's numbers for its lane and its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueuePosition {
    /// The lane: one for each queue and needs.
    pub lane: u32,
    /// The order of all jobs.
    pub seq: u64,
}

/// What a rule makes of a job.
#[derive(Debug, Clone, PartialEq)]
pub enum RuleOutcome {
    /// Nothing changes; the answer is still yes.
    Unchanged,
    /// The job as it is from now on.
    Changed(Box<Job>),
}

impl Job {
    /// A job of an action as it is submitted at `now`: never tried, available at once or when its time comes.
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
            due_at: if terms.is_staged { expires_at } else { run_at.or(expires_at) },
            holder: None,
            is_confirmed: false,
            current_task: None,
            progress_percent: None,
            error: None,
            priority: terms.priority,
            snoozes: 0,
            waits_to_start: false,
            ojs: terms.ojs.clone(),
        }
    }

    /// The status that RESP shows (AGQ API spec §3).
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

    /// Which attempt it is at as the Open Job Spec counts them: from the beginning again where somebody asked for that.
    pub fn shown_attempt(&self) -> u32 {
        self.attempt - self.ojs.as_ref().map_or(0, |ojs| ojs.attempts_before.min(self.attempt))
    }

    /// Returns the kind of work: the job type if a worker of the Open Job Spec runs the job, else
    /// the plan.
    pub fn kind(&self) -> &str {
        let own = self.ojs.as_ref().filter(|ojs| ojs.is_reserved());
        own.map_or_else(|| self.plan_id.as_str(), |ojs| &ojs.job_type)
    }

    /// Whether `who` has it now.
    pub fn is_held_by(&self, who: &str) -> bool {
        self.state == JobState::Active && self.holder.as_deref() == Some(who)
    }

    /// Tells whether an agw has claimed the job and has not reported its start yet.
    pub fn may_be_unstarted(&self) -> bool {
        self.state == JobState::Active && !self.is_confirmed && !self.is_reserved()
    }

    /// Tells whether a worker is known to run the job. An agw claims jobs ahead, and has started
    /// those that it reports.
    pub fn is_started(&self) -> bool {
        self.state == JobState::Active && !self.may_be_unstarted()
    }

    /// Returns the change of the number of started jobs if the job changes from `before` to `self`.
    pub fn starts_since(&self, before: Option<&Self>) -> i64 {
        i64::from(self.is_started()) - i64::from(before.is_some_and(Self::is_started))
    }

    /// Whether it will not run again by itself.
    pub fn is_ended(&self) -> bool {
        matches!(self.state, JobState::Completed | JobState::Cancelled | JobState::Discarded)
    }

    /// When its attempt has taken too long; `None` without a bound.
    fn attempt_over_at(&self) -> Option<Timestamp> {
        let started_at = self.started_at.filter(|_| self.timeout_ms > 0)?;
        Some(started_at.plus_ms(self.timeout_ms))
    }

    /// When the attempt of the moment ends by itself, whoever has it is at work.
    fn lease_over_at(&self) -> Option<Timestamp> {
        let leased_until = self.ojs.as_ref().and_then(|ojs| ojs.leased_until);
        self.attempt_over_at().into_iter().chain(leased_until).min()
    }

    /// When it is too late to begin with it.
    fn expires_at(&self) -> Option<Timestamp> {
        self.ojs.as_ref().and_then(|ojs| ojs.expires_at)
    }

    /// Whether a worker of the Open Job Spec runs it, rather than an agw.
    pub fn is_reserved(&self) -> bool {
        self.ojs.as_ref().is_some_and(|ojs| ojs.is_reserved())
    }

    fn end(&mut self, state: JobState, now: Timestamp) {
        self.state = state;
        self.ended_at = Some(now);
        self.due_at = None;
        self.current_task = None;
        self.progress_percent = (state == JobState::Completed).then_some(100.0);
    }

    /// Nobody has it any more.
    fn release(&mut self) {
        if let Some(ojs) = &mut self.ojs {
            ojs.leased_until = None;
        }
    }

    /// Its holder has reported it: only the attempt's own time counts from now on.
    fn confirm(&mut self) {
        (self.is_confirmed, self.waits_to_start) = (true, false);
        self.due_at = self.lease_over_at();
    }

    fn offer_again(&mut self) {
        self.state = JobState::Available;
        self.due_at = self.expires_at();
        self.release();
        self.is_confirmed = false;
        self.current_task = None;
        self.progress_percent = None;
    }
}

#[cfg(test)]
mod tests;
