//! The course of a workflow: which steps begin, when it ends, how it is cancelled and taken up again.

use agenix_protocol::time::Timestamp;

use super::{
    Callback, CallbackTrigger, Nested, StepObservation, StepState, Workflow, WorkflowKind, WorkflowStep,
};
use crate::rejection::Rejection;

impl WorkflowStep {
    /// Lets the step begin, and of a nested workflow the steps whose turn it is.
    fn begin(&mut self) {
        self.stage = StepState::Running;
        if let Some(nested) = &mut self.nested {
            begin_steps(nested.kind, &mut nested.steps);
        }
    }

    /// Cancels what has not ended.
    fn cancel(&mut self) {
        if let Some(nested) = &mut self.nested {
            cancel_all(&mut nested.steps, &mut nested.callbacks);
        }
        if !self.stage.is_ended() {
            (self.stage, self.is_submitted) = (StepState::Cancelled, true);
        }
    }

    /// Lets a job or an action that was tried again count as running, and the nested workflows around it.
    /// Tells whether that changed anything.
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
    /// Moves the nested workflow on. Once it has ended, its callbacks included, returns whether all of it
    /// ended well.
    fn advance(&mut self) -> Option<bool> {
        let is_well = advance(self.kind, &mut self.steps, &mut self.callbacks)?;
        let mut called = self.callbacks.iter().map(|callback| &callback.step);
        let is_over = called.clone().all(|step| step.stage != StepState::Running);
        is_over.then(|| is_well && !called.any(is_lost))
    }
}

/// Tells whether a step ended, but not well.
fn is_lost(step: &WorkflowStep) -> bool {
    matches!(step.stage, StepState::Failed | StepState::Cancelled)
}

/// Lets the steps begin whose turn it is.
fn begin_steps(kind: WorkflowKind, steps: &mut [WorkflowStep]) {
    let is_held = steps.iter().any(|step| step.stage == StepState::Running || is_lost(step));
    let is_chain = kind == WorkflowKind::Chain;
    if is_chain && is_held {
        return;
    }
    let waiting = steps.iter_mut().filter(|step| step.stage == StepState::Waiting);
    waiting.take(if is_chain { 1 } else { usize::MAX }).for_each(WorkflowStep::begin);
}

/// Moves the steps of a workflow on. Once all have ended, begins the callbacks, and returns whether all
/// steps ended well.
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
        // A workflow that was taken up again has called some of them already.
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
    steps
        .iter_mut()
        .chain(callbacks.iter_mut().map(|callback| &mut callback.step))
        .any(|step| step.resume(id))
}

impl Workflow {
    /// The workflow, given what was seen of its steps by their ids: what ended has ended, and what comes next begins.
    #[must_use]
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
                // It was forgotten before anybody saw what came of it.
                StepObservation::Nothing if step.is_submitted => step.stage = StepState::Failed,
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

    /// The workflow is cancelled: no step begins any more.
    pub fn cancelled(&self, now: Timestamp) -> Result<Self, Rejection> {
        if self.stage.is_ended() {
            return Err(Rejection::WorkflowEnded(self.id.clone()));
        }
        let mut next = self.clone();
        (next.stage, next.ended_at) = (StepState::Cancelled, Some(now));
        cancel_all(&mut next.steps, &mut next.callbacks);
        Ok(next)
    }

    /// Takes the workflow up again at a job or an action that is tried again by hand. Returns `None` where
    /// that makes no difference. A callback that was called is not called again. Refuses a workflow that
    /// was cancelled, because no step of it begins any more.
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
        // The steps of the workflow have ended, and so has the workflow, whatever comes of its callbacks.
        let is_called = resume(&mut [], &mut next.callbacks, step_id);
        Ok(is_called.then_some(next))
    }
}
