//! Autoscaler of `agx scale`: polls workers and waiting jobs, and runs the commands of the user
//! that start and end workers.

mod decision;
mod history;
mod hook;
mod shortage;
mod terms;
#[cfg(test)]
mod tests;
mod view;

use std::time::Duration;

use agenix_client::ClientError;
use agenix_protocol::{documents::WorkerStatus, errors::ErrorKind, ids::WorkerId};

pub(crate) use self::{decision::ScaleDecision, hook::Hook, terms::ScaleTerms, view::ScaleSelection};
use self::{
    decision::decide,
    history::ScaleHistory,
    hook::HookFailure,
    view::{DRAINER, View},
};
use crate::{
    documents::{ScaleDirection, ScaleOutcome, ScaleStep},
    error::Result,
    output::{OutputFormat, counted},
    remote::retrying_client::RetryingClient,
    util::{clock, printable::one_line},
};

/// Maximum wait after failures of a command, unless the interval is longer.
const MAX_WAIT: Duration = Duration::from_secs(600);

/// Autoscaler and its state.
pub(crate) struct Scaler {
    pub(crate) agq: RetryingClient,
    pub(crate) terms: ScaleTerms,
    pub(crate) selection: ScaleSelection,
    pub(crate) up: Option<Hook>,
    pub(crate) down: Option<Hook>,
    pub(crate) is_dry_run: bool,
    pub(crate) output: OutputFormat,
    history: ScaleHistory,
}

impl Scaler {
    /// Returns a scaler that has not polled agq yet.
    pub(crate) fn new(
        (agq, output): (RetryingClient, OutputFormat),
        (terms, selection): (ScaleTerms, ScaleSelection),
        (up, down): (Option<Hook>, Option<Hook>),
        is_dry_run: bool,
    ) -> Self {
        Self { agq, terms, selection, up, down, is_dry_run, output, history: ScaleHistory::default() }
    }

    /// Reads workers and queues of agq, and decides. The call changes nothing, so the caller may
    /// drop the future.
    pub(crate) async fn poll(&mut self) -> Result<(ScaleDecision, ScaleStep)> {
        let can_end = self.terms.can_end;
        let looked = self.agq.with_retry(async |agq| {
            let listed = (agq.workers().await?, agq.queue_stats().await?);
            // The time is for drained workers, and a key that may drain them may ask for it.
            let time = if can_end { agq.time().await? } else { None };
            Ok((listed, time))
        });
        let ((workers, queues), time) = looked.await?;
        let now = clock::now();
        let view = View::of(workers, &queues, &self.selection).at(time.unwrap_or(now));
        let (history, overdue) = std::mem::take(&mut self.history).observed(&view, &self.terms, now);
        self.history = history;
        if overdue > 0 {
            let workers = counted(overdue, "worker that --up started has", "workers that --up started have");
            self.output.note(&format!(
                "agx: {workers} not registered within --start-timeout; look at the log of agw there; agx no longer expects them"
            ));
        }
        let decision = decide(&self.terms, &self.history, &view, now);
        let step = described(&decision, &view, self.history.starting());
        Ok((decision, step))
    }

    /// Carries out the decision, and returns the step with its outcome.
    pub(crate) async fn act(&mut self, decision: ScaleDecision, step: ScaleStep) -> Result<ScaleStep> {
        if self.is_dry_run {
            return Ok(step);
        }
        let done = match decision {
            ScaleDecision::Nothing { .. } => return Ok(step),
            ScaleDecision::Up { count, .. } => self.start(count, &step).await,
            ScaleDecision::Down { worker, .. } => self.end(&worker, &step).await?,
            ScaleDecision::Resume { worker, .. } => Ok(self.resume(&worker.worker_id).await?),
        };
        Ok(match done {
            Ok(outcome) => ScaleStep { outcome, ..step },
            Err(failure) => {
                ScaleStep { outcome: ScaleOutcome::Failed, error: Some(failure.to_string()), ..step }
            }
        })
    }

    async fn start(&mut self, count: u64, step: &ScaleStep) -> Result<ScaleOutcome, HookFailure> {
        let Some(hook) = &self.up else { return Ok(ScaleOutcome::NotRun) };
        let mut variables = variables(step);
        variables.push(("AGX_SCALE_COUNT", count.to_string()));
        hook.run(&variables).await?;
        let history = std::mem::take(&mut self.history);
        self.history = history.after_start(count, clock::now());
        Ok(ScaleOutcome::Done)
    }

    /// Drains the worker, and ends it if it holds no job then. Otherwise the worker takes jobs
    /// again. A worker that an operator has drained stays drained.
    async fn end(
        &mut self,
        worker: &WorkerStatus,
        step: &ScaleStep,
    ) -> Result<Result<ScaleOutcome, HookFailure>> {
        let Some(hook) = self.down.clone() else { return Ok(Ok(ScaleOutcome::NotRun)) };
        let id = &worker.worker_id;
        if !self.drain(id).await? {
            return Ok(Ok(ScaleOutcome::Spared));
        }
        let workers = self.agq.with_retry(async |agq| agq.workers().await).await?;
        match workers.into_iter().find(|worker| worker.worker_id == *id && worker.state != "dead") {
            None => return Ok(Ok(ScaleOutcome::Spared)),
            Some(worker) if worker.drained.is_none() => return Ok(Ok(ScaleOutcome::Spared)),
            Some(worker) if worker.active_jobs > 0 => {
                self.resume(id).await?;
                return Ok(Ok(ScaleOutcome::Spared));
            }
            Some(_) => {}
        }
        let mut variables = variables(step);
        variables.push(("AGX_SCALE_WORKER_ID", id.to_string()));
        variables.push(("AGX_SCALE_WORKER_HOST", one_line(&worker.hostname)));
        let done = hook.run(&variables).await;
        if done.is_err() {
            self.resume(id).await?;
        }
        Ok(done.map(|()| ScaleOutcome::Done))
    }

    /// Drains a worker. Returns false if there is no such worker.
    async fn drain(&mut self, id: &WorkerId) -> Result<bool> {
        is_there(self.agq.with_retry(async |agq| agq.drain_worker(id, Some(DRAINER)).await).await)
    }

    /// Lets a worker take jobs again.
    async fn resume(&mut self, id: &WorkerId) -> Result<ScaleOutcome> {
        let is_there = is_there(self.agq.with_retry(async |agq| agq.resume_worker(id).await).await)?;
        Ok(if is_there { ScaleOutcome::Done } else { ScaleOutcome::Spared })
    }
}

/// Returns false if agq has refused a directive because there is no such worker.
fn is_there(answer: Result<(), ClientError>) -> Result<bool> {
    match answer {
        Ok(()) => Ok(true),
        Err(ClientError::Rejected(reason)) if ErrorKind::of(&reason) == ErrorKind::WorkerNotRegistered => {
            Ok(false)
        }
        Err(error) => Err(error.into()),
    }
}

/// Returns the wait before the next poll: `interval`, doubled for each failure in succession.
pub(crate) fn pause(interval: Duration, failures: u32) -> Duration {
    interval.saturating_mul(1 << failures.min(16)).min(MAX_WAIT.max(interval))
}

/// Returns the step of a decision that is not done yet.
fn described(decision: &ScaleDecision, view: &View, starting: u64) -> ScaleStep {
    let workers = view.active().count() as u64 + starting;
    let (direction, wanted, reason, worker) = match decision {
        ScaleDecision::Up { count, reason } => (ScaleDirection::Up, workers + count, reason, None),
        ScaleDecision::Down { worker, reason } => (
            ScaleDirection::Down,
            workers.saturating_sub(u64::from(worker.drained.is_none())),
            reason,
            Some(worker),
        ),
        ScaleDecision::Resume { worker, reason } => {
            (ScaleDirection::Resume, workers + 1, reason, Some(worker))
        }
        ScaleDecision::Nothing { reason } => (ScaleDirection::None, workers, reason, None),
    };
    ScaleStep {
        decision: direction,
        outcome: ScaleOutcome::NotRun,
        reason: reason.clone(),
        workers,
        starting,
        wanted,
        waiting_jobs: view.waiting_jobs(),
        worker_id: worker.map(|worker| worker.worker_id.clone()),
        hostname: worker.map(|worker| worker.hostname.clone()),
        error: None,
    }
}

/// Returns the environment variables of both commands.
fn variables(step: &ScaleStep) -> Vec<(&'static str, String)> {
    vec![
        ("AGX_SCALE_WORKERS", step.workers.to_string()),
        ("AGX_SCALE_WANTED", step.wanted.to_string()),
        ("AGX_SCALE_WAITING", step.waiting_jobs.to_string()),
        ("AGX_SCALE_REASON", step.reason.clone()),
    ]
}
