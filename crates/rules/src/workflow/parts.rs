//! Traversal of a workflow: its steps with those of nested workflows, each with its place in the
//! document and with the steps before it.

use agenix_protocol::time::Timestamp;

use super::{Callback, Nested, StepState, Workflow, WorkflowKind, WorkflowStep};

/// Steps whose results a job or an action of a workflow gets.
#[derive(Debug, Clone, Copy)]
pub enum StepInputs<'w> {
    /// Previous step of its chain, or of the nearest outer chain.
    Step(&'w WorkflowStep),
    /// Steps of the workflow whose callback gets the results.
    Steps(&'w [WorkflowStep]),
}

/// Job or action of a workflow, with its place.
#[derive(Debug, Clone)]
pub struct PlacedStep<'w> {
    /// The job or the action.
    pub step: &'w WorkflowStep,
    /// Place of the document in the document of the workflow.
    pub place: String,
    /// Steps whose results the job or action gets.
    pub before: Option<StepInputs<'w>>,
}

impl WorkflowKind {
    /// Returns the name of the list of steps in documents.
    pub fn list(self) -> &'static str {
        if self == Self::Chain { "steps" } else { "jobs" }
    }

    /// Returns the place of step `at` of a workflow at `place`.
    pub(super) fn place(self, place: &str, at: usize) -> String {
        let dot = if place.is_empty() { "" } else { "." };
        format!("{place}{dot}{}[{at}]", self.list())
    }
}

impl PlacedStep<'_> {
    /// Returns true if the step is a callback.
    pub fn is_callback(&self) -> bool {
        matches!(self.before, Some(StepInputs::Steps(_)))
    }
}

impl WorkflowStep {
    /// Returns whose results are those of the step: a chain's last step, otherwise all steps.
    pub fn producers(&self) -> Vec<&Self> {
        match self.nested.as_deref() {
            None => vec![self],
            Some(Nested { kind: WorkflowKind::Chain, steps, .. }) => {
                steps.last().map_or_else(Vec::new, Self::producers)
            }
            Some(nested) => nested.steps.iter().flat_map(Self::producers).collect(),
        }
    }

    /// Calls `change` for the step, or for each job and action of a nested workflow.
    fn each_mut(&mut self, change: &mut impl FnMut(&mut Self)) {
        match self.nested.as_deref_mut() {
            None => change(self),
            Some(nested) => each_mut(&mut nested.steps, &mut nested.callbacks, change),
        }
    }
}

/// Calls `change` for each job and action, those of nested workflows and callbacks included.
fn each_mut(
    steps: &mut [WorkflowStep],
    callbacks: &mut [Callback],
    change: &mut impl FnMut(&mut WorkflowStep),
) {
    for step in steps.iter_mut().chain(callbacks.iter_mut().map(|callback| &mut callback.step)) {
        step.each_mut(change);
    }
}

/// Collects the jobs and actions of a workflow at `place`, after the `outer` chain's step.
fn place_all<'w>(
    (kind, steps, callbacks): (WorkflowKind, &'w [WorkflowStep], &'w [Callback]),
    (place, outer): (&str, Option<StepInputs<'w>>),
    placed: &mut Vec<PlacedStep<'w>>,
) {
    for (at, step) in steps.iter().enumerate() {
        let previous = at.checked_sub(1).and_then(|at| steps.get(at)).filter(|_| kind == WorkflowKind::Chain);
        let before = previous.map(StepInputs::Step).or(outer);
        let place = kind.place(place, at);
        match step.nested.as_deref() {
            None => placed.push(PlacedStep { step, place, before }),
            Some(nested) => {
                place_all((nested.kind, &nested.steps, &nested.callbacks), (&place, before), placed);
            }
        }
    }
    let dot = if place.is_empty() { "" } else { "." };
    for Callback { step, .. } in callbacks {
        let before = Some(StepInputs::Steps(steps));
        placed.push(PlacedStep { step, place: format!("{place}{dot}callbacks"), before });
    }
}

/// Returns the number of independent running steps, or 0 if several workflows run.
fn together(kind: WorkflowKind, steps: &[WorkflowStep]) -> usize {
    let mut running = steps.iter().filter(|step| step.stage == StepState::Running);
    let count = running.clone().count();
    match (running.next(), kind) {
        (Some(WorkflowStep { nested: Some(nested), .. }), _) if count == 1 => {
            together(nested.kind, &nested.steps)
        }
        (_, WorkflowKind::Chain) => 0,
        _ if running.all(|step| step.nested.is_none()) => count,
        _ => 0,
    }
}

impl Workflow {
    /// Returns all jobs and actions, nested ones too, each before its workflow's callbacks.
    pub fn placed(&self) -> Vec<PlacedStep<'_>> {
        let mut placed = Vec::new();
        place_all((self.kind, &self.steps, &self.callbacks), ("", None), &mut placed);
        placed
    }

    /// Returns all jobs and actions without their places.
    pub fn all(&self) -> impl Iterator<Item = &WorkflowStep> {
        self.placed().into_iter().map(|placed| placed.step)
    }

    /// Calls `change` for each job and action.
    pub fn each_mut(&mut self, mut change: impl FnMut(&mut WorkflowStep)) {
        each_mut(&mut self.steps, &mut self.callbacks, &mut change);
    }

    /// Returns the number of steps of the workflow itself that succeeded.
    pub fn completed(&self) -> usize {
        self.steps.iter().filter(|step| step.stage == StepState::Completed).count()
    }

    /// Returns the number of running steps whose last end lets the workflow advance.
    pub fn steps_together(&self) -> usize {
        if self.stage.is_ended() { 0 } else { together(self.kind, &self.steps) }
    }

    /// Returns true if the workflow and its callbacks have ended.
    pub fn has_all_ended(&self) -> bool {
        self.stage.is_ended() && self.all().all(|step| step.stage != StepState::Running)
    }

    /// Returns true if the workflow ended before `ended_since`, and a failed one before
    /// `dead_since`, too, because a retry of its dead job resumes it.
    pub fn is_forgettable(&self, ended_since: Timestamp, dead_since: Timestamp) -> bool {
        let since = if self.stage == StepState::Failed { ended_since.min(dead_since) } else { ended_since };
        self.has_all_ended() && self.ended_at.is_some_and(|at| at < since)
    }
}
