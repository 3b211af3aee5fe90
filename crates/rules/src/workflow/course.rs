//! Progress of a workflow: starts steps, ends the workflow, cancels and resumes it.

use agenix_protocol::time::Timestamp;

use super::{
    Callback, CallbackTrigger, Nested, StepObservation, StepState, Workflow, WorkflowKind, WorkflowStep,
};
use crate::rejection::Rejection;

impl WorkflowStep {
    /// Starts the step. In a nested workflow, starts the first steps.
    fn begin(&mut self) {
        self.stage = StepState::Running;
        if let Some(nested) = &mut self.nested {
            begin_steps(nested.kind, &mut nested.steps);
        }
    }

    /// Cancels everything that has not ended.
    fn cancel(&mut self) {
        if let Some(nested) = &mut self.nested {
            cancel_all(&mut nested.steps, &mut nested.callbacks);
        }
        if !self.stage.is_ended() {
            (self.stage, self.is_submitted) = (StepState::Cancelled, true);
        }
    }

    /// Marks a retried job and its nested workflows as running. Returns true if the job was marked.
    fn resume(&mut self, id: &str) -> bool {
        let is_resumed = match &mut self.nested {
            Some(nested) => resume(&mut nested.steps, &mut nested.callbacks, id),
            None => self.id == id && !self.is_stand_in && is_lost(self),
        };
        if is_resumed {
            (self.stage, self.is_submitted, self.error) = (StepState::Running, true, None);
        }
        is_resumed
    }
}

impl Nested {
    /// Advances the nested workflow. Once the workflow and its callbacks have ended, returns true
    /// if all steps and callbacks succeeded.
    fn advance(&mut self) -> Option<bool> {
        let is_well = advance(self.kind, &mut self.steps, &mut self.callbacks)?;
        let mut called = self.callbacks.iter().map(|callback| &callback.step);
        let is_over = called.clone().all(|step| step.stage != StepState::Running);
        is_over.then(|| is_well && !called.any(is_lost))
    }
}

/// Returns true if a step ended without success.
fn is_lost(step: &WorkflowStep) -> bool {
    matches!(step.stage, StepState::Failed | StepState::Cancelled)
}

/// Starts the next steps: one in a chain, otherwise all.
fn begin_steps(kind: WorkflowKind, steps: &mut [WorkflowStep]) {
    let is_held = steps.iter().any(|step| step.stage == StepState::Running || is_lost(step));
    let is_chain = kind == WorkflowKind::Chain;
    if is_chain && is_held {
        return;
    }
    let waiting = steps.iter_mut().filter(|step| step.stage == StepState::Waiting);
    waiting.take(if is_chain { 1 } else { usize::MAX }).for_each(WorkflowStep::begin);
}

/// Advances steps. Once all steps have ended, starts the callbacks, and returns whether all steps
/// succeeded.
fn advance(kind: WorkflowKind, steps: &mut [WorkflowStep], callbacks: &mut [Callback]) -> Option<bool> {
    for step in steps.iter_mut().filter(|step| step.stage == StepState::Running) {
        if let Some(is_well) = step.nested.as_mut().and_then(|nested| nested.advance()) {
            step.stage = if is_well { StepState::Completed } else { StepState::Failed };
        }
    }
    begin_steps(kind, steps);
    if steps.iter().any(|step| step.stage == StepState::Running) {
        return None;
    }
    let is_well = steps.iter().all(|step| step.stage == StepState::Completed);
    for callback in callbacks {
        let is_called = match callback.when {
            CallbackTrigger::Success => is_well,
            CallbackTrigger::Failure => !is_well,
            CallbackTrigger::Complete => true,
        };
        // A resumed workflow may have submitted some callbacks already.
        if is_called && callback.step.stage == StepState::Waiting {
            callback.step.stage = StepState::Running;
        }
    }
    Some(is_well)
}

fn cancel_all(steps: &mut [WorkflowStep], callbacks: &mut [Callback]) {
    steps.iter_mut().for_each(WorkflowStep::cancel);
    callbacks.iter_mut().for_each(|callback| callback.step.cancel());
}

fn resume(steps: &mut [WorkflowStep], callbacks: &mut [Callback], id: &str) -> bool {
    steps.iter_mut().chain(callbacks.iter_mut().map(|called| &mut called.step)).any(|step| step.resume(id))
}

impl Workflow {
    /// Returns the workflow after the observations `seen` by step id: steps end, others start.
    pub fn moved(&self, seen: &[(&str, StepObservation)], now: Timestamp) -> Self {
        let mut next = self.clone();
        next.each_mut(|step| {
            let Some((_, seen)) =
                seen.iter().find(|(id, _)| step.id == *id && step.stage == StepState::Running)
            else {
                return;
            };
            match seen {
                StepObservation::Ended(stage) => (step.stage, step.is_submitted) = (*stage, true),
                // The job ended and was removed before its end was observed.
                StepObservation::Nothing if step.is_submitted => {
                    let removed = Rejection::NotKept("the jobs of the step are".into());
                    (step.stage, step.error) = (StepState::Failed, Some(removed.to_string()));
                }
                StepObservation::Nothing => {}
                StepObservation::Underway => step.is_submitted = true,
            }
        });
        if !next.stage.is_ended()
            && let Some(is_well) = advance(next.kind, &mut next.steps, &mut next.callbacks)
        {
            next.stage = if is_well { StepState::Completed } else { StepState::Failed };
            next.ended_at = Some(now);
        }
        next
    }

    /// Cancels the workflow. No further step starts. An ended workflow is an error.
    pub fn cancelled(&self, now: Timestamp) -> Result<Self, Rejection> {
        if self.stage.is_ended() {
            return Err(Rejection::WorkflowEnded(self.id.clone()));
        }
        let mut next = self.clone();
        (next.stage, next.ended_at) = (StepState::Cancelled, Some(now));
        cancel_all(&mut next.steps, &mut next.callbacks);
        Ok(next)
    }

    /// Resumes the workflow at a job or an action that a user tries again. Returns `None` if the
    /// retry changes nothing. A submitted callback is not submitted again. A cancelled workflow is
    /// an error, because no step of it starts any more.
    pub fn resumed(&self, step_id: &str) -> Result<Option<Self>, Rejection> {
        let is_own = |step: &WorkflowStep| step.id == step_id && !step.is_stand_in;
        if self.stage == StepState::Cancelled && self.all().any(is_own) {
            return Err(Rejection::WorkflowEnded(self.id.clone()));
        }
        let mut next = self.clone();
        if resume(&mut next.steps, &mut [], step_id) {
            (next.stage, next.ended_at) = (StepState::Running, None);
            return Ok(Some(next));
        }
        // Callbacks do not change the state of the workflow, which has ended.
        let is_called = resume(&mut [], &mut next.callbacks, step_id);
        Ok(is_called.then_some(next))
    }

    /// Returns the workflow after a user has retried a job or an action: resumed if the workflow
    /// has ended meanwhile. The record differs in any case, so that a task that observed the step
    /// before the retry does not store its observation. Returns `None` if the workflow does not
    /// wait for the step.
    pub fn retried(&self, step_id: &str) -> Result<Option<Self>, Rejection> {
        let is_running = |step: &WorkflowStep| step.id == step_id && step.stage == StepState::Running;
        let next = match self.resumed(step_id)? {
            Some(resumed) => resumed,
            None if self.all().any(is_running) => self.clone(),
            None => return Ok(None),
        };
        Ok(Some(Self { retries: self.retries + 1, ..next }))
    }
}
