//! Parts of a workflow: its steps with those of nested workflows, each with its place and with the steps before it.

use super::{Callback, Kind, Nested, Stage, Step, Workflow};

/// Steps whose results a job or an action of a workflow gets.
#[derive(Debug, Clone, Copy)]
pub enum Before<'w> {
    /// The step before it in a chain: its own, or the next outer one.
    Step(&'w Step),
    /// The steps of which it is a callback.
    Steps(&'w [Step]),
}

/// Job or action of a workflow, with its place.
#[derive(Debug, Clone)]
pub struct Placed<'w> {
    /// The job or the action.
    pub step: &'w Step,
    /// Where its document stands in the document of the workflow.
    pub place: String,
    /// The steps whose results it gets.
    pub before: Option<Before<'w>>,
}

impl Kind {
    /// The name of the list of steps in documents.
    pub fn list(self) -> &'static str {
        if self == Self::Chain { "steps" } else { "jobs" }
    }

    /// The place of a step of a workflow that stands at `place` itself.
    pub(super) fn place(self, place: &str, at: usize) -> String {
        let dot = if place.is_empty() { "" } else { "." };
        format!("{place}{dot}{}[{at}]", self.list())
    }
}

impl Placed<'_> {
    /// Tells whether it is a callback.
    pub fn is_callback(&self) -> bool {
        matches!(self.before, Some(Before::Steps(_)))
    }
}

impl Step {
    /// Returns the jobs and the actions whose results are the results of this step, in order: of a chain
    /// those of its last step, of a group or a batch those of all its steps.
    pub fn producers(&self) -> Vec<&Self> {
        match self.nested.as_deref() {
            None => vec![self],
            Some(Nested { kind: Kind::Chain, steps, .. }) => {
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
fn each_mut(steps: &mut [Step], callbacks: &mut [Callback], change: &mut impl FnMut(&mut Step)) {
    for step in steps.iter_mut().chain(callbacks.iter_mut().map(|callback| &mut callback.step)) {
        step.each_mut(change);
    }
}

/// Collects the jobs and the actions of a workflow that stands at `place`, after the step `outer` of an
/// outer chain.
fn place_all<'w>(
    (kind, steps, callbacks): (Kind, &'w [Step], &'w [Callback]),
    (place, outer): (&str, Option<Before<'w>>),
    placed: &mut Vec<Placed<'w>>,
) {
    for (at, step) in steps.iter().enumerate() {
        let previous = at.checked_sub(1).and_then(|at| steps.get(at)).filter(|_| kind == Kind::Chain);
        let before = previous.map(Before::Step).or(outer);
        let place = kind.place(place, at);
        match step.nested.as_deref() {
            None => placed.push(Placed { step, place, before }),
            Some(nested) => {
                place_all((nested.kind, &nested.steps, &nested.callbacks), (&place, before), placed);
            }
        }
    }
    let dot = if place.is_empty() { "" } else { "." };
    for Callback { step, .. } in callbacks {
        let before = Some(Before::Steps(steps));
        placed.push(Placed { step, place: format!("{place}{dot}callbacks"), before });
    }
}

/// Returns the number of running steps that do not wait for each other, or 0 where steps of several
/// workflows run.
fn together(kind: Kind, steps: &[Step]) -> usize {
    let mut running = steps.iter().filter(|step| step.stage == Stage::Running);
    let count = running.clone().count();
    match (running.next(), kind) {
        (Some(Step { nested: Some(nested), .. }), _) if count == 1 => together(nested.kind, &nested.steps),
        (_, Kind::Chain) => 0,
        _ if running.all(|step| step.nested.is_none()) => count,
        _ => 0,
    }
}

impl Workflow {
    /// Returns everything that may have to be submitted: steps, those of nested workflows included, each
    /// before the callbacks of its workflow.
    pub fn placed(&self) -> Vec<Placed<'_>> {
        let mut placed = Vec::new();
        place_all((self.kind, &self.steps, &self.callbacks), ("", None), &mut placed);
        placed
    }

    /// Returns the same without the places.
    pub fn all(&self) -> impl Iterator<Item = &Step> {
        self.placed().into_iter().map(|placed| placed.step)
    }

    /// Calls `change` for each of them.
    pub fn each_mut(&mut self, mut change: impl FnMut(&mut Step)) {
        each_mut(&mut self.steps, &mut self.callbacks, &mut change);
    }

    /// How many of its own steps ended well.
    pub fn completed(&self) -> usize {
        self.steps.iter().filter(|step| step.stage == Stage::Completed).count()
    }

    /// Returns the number of running steps that do not wait for each other. The workflow needs no
    /// look until the last of these steps has ended.
    pub fn steps_together(&self) -> usize {
        if self.stage.is_ended() { 0 } else { together(self.kind, &self.steps) }
    }

    /// Tells whether the workflow and its callbacks have ended.
    pub fn is_settled(&self) -> bool {
        self.stage.is_ended() && self.all().all(|step| step.stage != Stage::Running)
    }
}
