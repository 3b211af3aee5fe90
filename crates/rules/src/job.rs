//! A job's life: one lifecycle for every door (design, decisions 4 to 6).
//!
//! ```text
//! staged → available ⇄ scheduled        available → active → completed
//!                                       active → retryable → available      (a task failed, retries remain)
//!                                       active → discarded                  (failed, or dead)
//!                                       active → available                  (worker lost, claim given back)
//! ```

use agenix_protocol::{
    documents::{JobUpdate, Status},
    ids::{ActionId, JobId, PlanId},
    time::Timestamp,
};
use serde::{Deserialize, Serialize};

use crate::{action::Action, rejection::Rejection, retry};

/// How many workers a job may lose before it is dead: it may be what kills them.
pub const MAX_LOSSES: u32 = 3;
/// Most bytes of a worker's error text that a job keeps.
pub const MAX_ERROR_BYTES: usize = 4096;

/// The stored states; RESP and OJS show projections of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum State {
    /// Created, not yet released.
    Staged,
    /// Waits for its time.
    Scheduled,
    /// Waits for a worker.
    Available,
    /// A worker has it.
    Active,
    /// All tasks succeeded.
    Completed,
    /// Failed, waits to be tried again.
    Retryable,
    /// Cancelled.
    Cancelled,
    /// Failed for good.
    Discarded,
}

impl State {
    /// The state's name, as OJS writes it (`staged` is `pending` there).
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Staged => "staged",
            Self::Scheduled => "scheduled",
            Self::Available => "available",
            Self::Active => "active",
            Self::Completed => "completed",
            Self::Retryable => "retryable",
            Self::Cancelled => "cancelled",
            Self::Discarded => "discarded",
        }
    }
}

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
    pub state: State,
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
}

/// A job that is about to be stored: what an action knows of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewJob {
    /// Its id.
    pub job_id: JobId,
    /// Its input, as JSON.
    pub input: Box<str>,
}

/// What a rule makes of a job.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// Nothing changes; the answer is still yes.
    Unchanged,
    /// The job as it is from now on.
    Changed(Box<Job>),
}

impl Job {
    /// A job of an action as it is submitted: available at once, never tried, without retries and without a time limit.
    pub fn new(job_id: JobId, action: &Action, index: u64, lane: u32, seq: u64) -> Self {
        Self {
            job_id,
            action_id: action.action_id.clone(),
            plan_id: action.plan_id.clone(),
            index,
            lane,
            seq,
            state: State::Available,
            is_dead: false,
            attempt: 0,
            failures: 0,
            losses: 0,
            max_retries: 0,
            timeout_ms: 0,
            created_at: action.created_at,
            started_at: None,
            ended_at: None,
            due_at: None,
            holder: None,
            is_confirmed: false,
            current_task: None,
            progress_percent: None,
            error: None,
        }
    }

    /// The status that RESP shows (seed 001 §3).
    pub fn status(&self) -> Status {
        match self.state {
            State::Staged | State::Scheduled | State::Available | State::Retryable => Status::Pending,
            State::Active => Status::Running,
            State::Completed => Status::Completed,
            State::Cancelled => Status::Cancelled,
            State::Discarded if self.is_dead => Status::Dead,
            State::Discarded => Status::Failed,
        }
    }

    fn is_held_by(&self, who: &str) -> bool {
        self.holder.as_deref() == Some(who)
    }

    fn end(&mut self, state: State, now: Timestamp) {
        self.state = state;
        self.ended_at = Some(now);
        self.due_at = None;
        self.current_task = None;
        self.progress_percent = (state == State::Completed).then_some(100.0);
    }

    fn offer_again(&mut self) {
        self.state = State::Available;
        self.due_at = None;
        self.is_confirmed = false;
        self.current_task = None;
        self.progress_percent = None;
    }
}

/// `who` takes an available job.
#[must_use]
pub fn claimed(job: &Job, who: &str, now: Timestamp) -> Job {
    let due_at = (job.timeout_ms > 0).then(|| now.plus_ms(job.timeout_ms));
    Job {
        state: State::Active,
        attempt: job.attempt + 1,
        holder: Some(who.to_owned()),
        is_confirmed: false,
        started_at: Some(now),
        due_at,
        error: None,
        ..job.clone()
    }
}

/// `who` reports on a job: ownership, legal transition and retry, all here. `jitter` is a random number in 0..1.
pub fn advanced(
    job: &Job,
    update: &JobUpdate,
    who: &str,
    now: Timestamp,
    jitter: f64,
) -> Result<Outcome, Rejection> {
    if let Some(told) = update.attempt
        && told != job.attempt
    {
        return Err(Rejection::StaleAttempt { job_id: job.job_id.clone(), told, current: job.attempt });
    }
    if job.state != State::Active {
        return report_after_the_end(job, update, who);
    }
    if !job.is_held_by(who) {
        let holder = job.holder.clone().unwrap_or_default();
        return Err(Rejection::NotHolder { worker: who.to_owned(), holder });
    }
    let mut next = job.clone();
    next.is_confirmed = true;
    next.current_task = update.current_task.or(next.current_task);
    next.progress_percent = update.progress_percent.map(|p| p.clamp(0.0, 100.0)).or(next.progress_percent);
    match update.status {
        None | Some(Status::Running) => {}
        Some(Status::Completed) => next.end(State::Completed, now),
        Some(Status::Failed) => {
            let error = update.error.as_deref().unwrap_or("the worker gave no reason");
            next = failed(next, error, now, jitter);
        }
        Some(to) => return Err(Rejection::IllegalTransition { from: job.status(), to }),
    }
    Ok(Outcome::Changed(Box::new(next)))
}

/// A report on a job that is not active: fine when it repeats what its holder already said of this very attempt (the
/// answer was lost on the way), refused otherwise.
fn report_after_the_end(job: &Job, update: &JobUpdate, who: &str) -> Result<Outcome, Rejection> {
    let to = update.status.unwrap_or(Status::Running);
    let repeats = update.attempt == Some(job.attempt) && job.is_held_by(who);
    let same_end = match to {
        Status::Completed => job.state == State::Completed,
        Status::Failed => matches!(job.state, State::Discarded | State::Retryable),
        _ => false,
    };
    if repeats && same_end {
        Ok(Outcome::Unchanged)
    } else {
        Err(Rejection::IllegalTransition { from: job.status(), to })
    }
}

fn failed(mut job: Job, error: &str, now: Timestamp, jitter: f64) -> Job {
    job.error = Some(cut(error).to_owned());
    job.failures += 1;
    if job.failures <= job.max_retries {
        job.state = State::Retryable;
        job.due_at = Some(now.plus_ms(retry::delay_ms(job.failures, jitter)));
    } else {
        job.is_dead = job.max_retries > 0;
        job.end(State::Discarded, now);
    }
    job
}

fn cut(text: &str) -> &str {
    let mut end = text.len().min(MAX_ERROR_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// The holder of an active job is dead: back to available, until it has cost [`MAX_LOSSES`] workers (a poison job).
pub fn abandoned(job: &Job, holder: &str, now: Timestamp) -> Outcome {
    if job.state != State::Active || !job.is_held_by(holder) {
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
    if job.state != State::Active || !job.is_held_by(holder) || reported {
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
        (true, _) => Outcome::Unchanged,
        (false, true) => abandoned(job, holder, now),
        (false, false) => given_back(job, holder, None),
    }
}

/// The time of a job has come: it becomes available, or its attempt has taken too long.
pub fn due(job: &Job, now: Timestamp, jitter: f64) -> Outcome {
    if job.due_at.is_none_or(|due| due > now) {
        return Outcome::Unchanged;
    }
    let mut next = job.clone();
    match job.state {
        State::Scheduled | State::Retryable => next.offer_again(),
        State::Active => {
            let seconds = job.timeout_ms / 1000;
            next = failed(next, &format!("the job took longer than its {seconds} seconds"), now, jitter);
        }
        _ => return Outcome::Unchanged,
    }
    Outcome::Changed(Box::new(next))
}

#[cfg(test)]
mod tests;
