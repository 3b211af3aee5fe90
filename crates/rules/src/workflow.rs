//! Workflows: steps that follow each other, or go together, and what is called when they have ended (ojs-workflows). A step is a job of
//! the Open Job Spec, an action of a plan, or a workflow of its own.

mod course;
mod parts;

use agenix_protocol::{documents::parse_object, time::Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};

pub use self::parts::{PlacedStep, StepInputs};
use crate::{cron::is_action, rejection::Rejection};

/// Maximum number of steps of a workflow, those of nested workflows included.
pub const MAX_STEPS: usize = 1000;
/// Maximum number of levels of workflows: 1 for a workflow of jobs and actions alone.
pub const MAX_LEVELS: usize = 5;

/// How steps go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkflowKind {
    /// One after the other: the results of one go to the next. After a failure no other begins.
    Chain,
    /// All at once.
    Group,
    /// All at once, with callbacks.
    Batch,
}

/// Where a workflow or a step stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepState {
    /// It has not begun.
    Waiting,
    /// It is under way.
    Running,
    /// It ended well.
    Completed,
    /// It failed for good.
    Failed,
    /// It was cancelled.
    Cancelled,
}

impl StepState {
    /// Whether it has ended.
    pub fn is_ended(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }
}

/// A step of a workflow.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WorkflowStep {
    /// The job's or the action's id, from the beginning on.
    pub id: String,
    /// What is submitted.
    pub document: Box<RawValue>,
    /// Where it stands.
    pub stage: StepState,
    /// Whether it is known to have been submitted: while it is not, it is submitted again.
    pub is_submitted: bool,
    /// True if another client submitted the job, and the job stands in for the job of the step.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_stand_in: bool,
    /// Why it could not be submitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Steps of the workflow that this step is. Such a step has no document, and nothing is submitted
    /// under its id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nested: Option<Box<Nested>>,
}

/// Workflow that is a step of another workflow. Its stage is that of the step.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Nested {
    /// How its steps go.
    pub kind: WorkflowKind,
    /// Its name, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// In their order.
    pub steps: Vec<WorkflowStep>,
    /// Each at most once.
    #[serde(default)]
    pub callbacks: Vec<Callback>,
}

impl WorkflowStep {
    fn new(id: String, document: Box<RawValue>) -> Self {
        let stage = StepState::Waiting;
        Self { id, document, stage, is_submitted: false, is_stand_in: false, error: None, nested: None }
    }

    /// Whether it is an action of a plan rather than a job.
    pub fn is_action(&self) -> bool {
        is_action(&self.document)
    }
}

/// When a callback is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallbackTrigger {
    /// Every step ended well.
    Success,
    /// A step did not.
    Failure,
    /// All steps have ended.
    Complete,
}

/// What is submitted when all steps have ended.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Callback {
    /// When.
    pub when: CallbackTrigger,
    /// What.
    pub step: WorkflowStep,
}

/// A workflow as it is kept, as JSON.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Workflow {
    /// Its id.
    pub id: String,
    /// How its steps go.
    pub kind: WorkflowKind,
    /// Its name, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Where it stands.
    pub stage: StepState,
    /// In their order.
    pub steps: Vec<WorkflowStep>,
    /// Each at most once.
    #[serde(default)]
    pub callbacks: Vec<Callback>,
    /// When it was submitted.
    pub created_at: Timestamp,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
}

/// A workflow as it is asked for.
#[derive(Debug, Clone, Deserialize)]
pub struct WorkflowRequest {
    /// `chain` where it is not said.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// For people.
    pub name: Option<String>,
    /// The steps, under either name.
    pub steps: Option<Vec<Box<RawValue>>>,
    /// The steps, under either name.
    pub jobs: Option<Vec<Box<RawValue>>>,
    /// What is called in the end.
    #[serde(default)]
    pub callbacks: Callbacks,
}

/// Callbacks as they are asked for.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Callbacks {
    /// See [`CallbackTrigger::Success`].
    pub on_success: Option<Box<RawValue>>,
    /// See [`CallbackTrigger::Failure`].
    pub on_failure: Option<Box<RawValue>>,
    /// See [`CallbackTrigger::Complete`].
    pub on_complete: Option<Box<RawValue>>,
}

/// What is seen of a step that is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepObservation {
    /// There is no such job or action.
    Nothing,
    /// It has jobs that have not ended.
    Underway,
    /// All of it ended, as this.
    Ended(StepState),
}

fn invalid(text: impl Into<String>) -> Rejection {
    Rejection::InvalidWorkflow(text.into())
}

/// Tells whether a step is a chain, a group or a batch instead of a job or an action.
fn is_workflow(step: &RawValue) -> bool {
    let Ok(step) = serde_json::from_str::<Value>(step.get()) else { return false };
    let has = |name: &str| step.get(name).is_some_and(Value::is_array);
    (has("steps") || has("jobs")) && !has("args") && step.get("plan_id").is_none()
}

/// Reader of a submitted workflow and of the workflows in it.
struct WorkflowReader<I> {
    new_id: I,
    /// Number of steps so far that are jobs or actions.
    steps: usize,
}

impl<I: FnMut() -> String> WorkflowReader<I> {
    /// Reads a workflow that stands at `place`, the empty text for the outermost one, on a level from 1
    /// on.
    fn read(&mut self, wanted: WorkflowRequest, place: &str, level: usize) -> Result<Nested, Rejection> {
        let here = if place.is_empty() { String::new() } else { format!("{place}: ") };
        if level > MAX_LEVELS {
            return Err(invalid(format!("{here}workflows are nested more than {MAX_LEVELS} levels deep")));
        }
        let kind = match wanted.kind.as_deref() {
            None | Some("chain") => WorkflowKind::Chain,
            Some("group") => WorkflowKind::Group,
            Some("batch") => WorkflowKind::Batch,
            Some(other) => {
                return Err(invalid(format!("{here}type is '{other}': use chain, group or batch")));
            }
        };
        let documents = match (wanted.steps, wanted.jobs) {
            (Some(steps), None) | (None, Some(steps)) => steps,
            (None, None) => {
                return Err(invalid(format!("{here}steps is missing: a workflow has at least one")));
            }
            (Some(_), Some(_)) => {
                return Err(invalid(format!("{here}steps and jobs are both given: use one of the names")));
            }
        };
        if documents.is_empty() || documents.len() > MAX_STEPS {
            return Err(invalid(format!("{here}it has {} steps: give 1 to {MAX_STEPS}", documents.len())));
        }
        let mut steps = Vec::with_capacity(documents.len());
        for (at, document) in documents.into_iter().enumerate() {
            steps.push(self.step(document, &kind.place(place, at), level)?);
        }
        let Callbacks { on_success, on_failure, on_complete } = wanted.callbacks;
        let callbacks = [
            (CallbackTrigger::Success, on_success),
            (CallbackTrigger::Failure, on_failure),
            (CallbackTrigger::Complete, on_complete),
        ];
        let callbacks = callbacks
            .into_iter()
            .filter_map(|(when, document)| Some(Callback { when, step: self.submittable(document?) }));
        let callbacks = callbacks.collect();
        Ok(Nested { kind, name: wanted.name, steps, callbacks })
    }

    fn submittable(&mut self, document: Box<RawValue>) -> WorkflowStep {
        WorkflowStep::new((self.new_id)(), document)
    }

    /// Reads the step at `place` of a workflow on a level.
    fn step(
        &mut self,
        document: Box<RawValue>,
        place: &str,
        level: usize,
    ) -> Result<WorkflowStep, Rejection> {
        if !is_workflow(&document) {
            self.steps += 1;
            if self.steps > MAX_STEPS {
                return Err(invalid(format!(
                    "it has more than {MAX_STEPS} steps, those of nested workflows included"
                )));
            }
            return Ok(self.submittable(document));
        }
        let wanted = parse_object(document.get().as_bytes());
        let wanted = wanted.map_err(|error| invalid(format!("{place}: {error}")))?;
        let mut step = self.submittable(RawValue::NULL.to_owned());
        step.nested = Some(Box::new(self.read(wanted, place, level + 1)?));
        Ok(step)
    }
}

impl Workflow {
    /// A workflow that is submitted at `now`; `new_id` makes an id each time.
    pub fn new(
        wanted: WorkflowRequest,
        mut new_id: impl FnMut() -> String,
        now: Timestamp,
    ) -> Result<Self, Rejection> {
        let id = new_id();
        let read = WorkflowReader { new_id, steps: 0 }.read(wanted, "", 1)?;
        let Nested { kind, name, steps, callbacks } = read;
        let (stage, ended_at) = (StepState::Running, None);
        Ok(Self { id, kind, name, stage, steps, callbacks, created_at: now, ended_at }.moved(&[], now))
    }
}

#[cfg(test)]
mod tests;
