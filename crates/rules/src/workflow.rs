//! Workflows: chains, groups and batches of steps, with callbacks after the last step
//! (ojs-workflows). A step is a job of the Open Job Spec, an action of a plan, or a nested
//! workflow.

mod course;
mod parts;

use agenix_protocol::{documents::parse_object, time::Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};

pub use self::parts::{PlacedStep, StepInputs};
use crate::{cron::is_action, owner::Owner, rejection::Rejection};

/// Maximum number of steps of a workflow, those of nested workflows included.
pub const MAX_STEPS: usize = 1000;
/// Maximum number of levels of workflows: 1 for a workflow of jobs and actions alone.
pub const MAX_LEVELS: usize = 5;

/// Order in which the steps of a workflow run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkflowKind {
    /// One after the other, each with the results of the previous one, until a failure.
    Chain,
    /// All at once.
    Group,
    /// All at once, with callbacks.
    Batch,
}

/// State of a workflow or a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepState {
    /// Not started.
    Waiting,
    /// Started, and not ended.
    Running,
    /// Ended with success.
    Completed,
    /// Ended with a failure.
    Failed,
    /// Cancelled.
    Cancelled,
}

impl StepState {
    /// Returns true if the step has ended.
    pub fn is_ended(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }
}

/// Step of a workflow.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WorkflowStep {
    /// Id of the job or action, chosen when the workflow is created.
    pub id: String,
    /// Submitted document.
    pub document: Box<RawValue>,
    /// State of the step.
    pub stage: StepState,
    /// True if the step is known to have been submitted. Any other step is submitted again.
    pub is_submitted: bool,
    /// True if another client submitted the job, and the job stands in for the job of the step.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_stand_in: bool,
    /// Reason for which the document was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Nested workflow that is the step. Such a step has no document, and its id is not submitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nested: Option<Box<Nested>>,
}

/// Workflow that is a step of another workflow. The stage of the nested workflow is that of the
/// step.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Nested {
    /// Order of the steps.
    pub kind: WorkflowKind,
    /// Name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Steps, in order.
    pub steps: Vec<WorkflowStep>,
    /// Callbacks, at most one for each trigger.
    #[serde(default)]
    pub callbacks: Vec<Callback>,
}

impl WorkflowStep {
    fn new(id: String, document: Box<RawValue>) -> Self {
        let stage = StepState::Waiting;
        Self { id, document, stage, is_submitted: false, is_stand_in: false, error: None, nested: None }
    }

    /// Returns true if the step is an action of a plan instead of a job.
    pub fn is_action(&self) -> bool {
        is_action(&self.document)
    }
}

/// Condition under which a callback is submitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallbackTrigger {
    /// Every step succeeded.
    Success,
    /// A step failed or was cancelled.
    Failure,
    /// All steps have ended.
    Complete,
}

/// Document that is submitted after all steps have ended.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Callback {
    /// Condition of the callback.
    pub when: CallbackTrigger,
    /// Step of the callback.
    pub step: WorkflowStep,
}

/// Stored record of a workflow, as JSON.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[must_use]
pub struct Workflow {
    /// Id of the workflow.
    pub id: String,
    /// Order of the steps.
    pub kind: WorkflowKind,
    /// Name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// State of the workflow.
    pub stage: StepState,
    /// Steps, in order.
    pub steps: Vec<WorkflowStep>,
    /// Callbacks, at most one for each trigger.
    #[serde(default)]
    pub callbacks: Vec<Callback>,
    /// Time of the submission.
    pub created_at: Timestamp,
    /// Time of the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// Owner of the workflow and of what it submits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Owner>,
    /// Number of retries of the workflow's steps by users.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub retries: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Request to start a workflow.
#[derive(Debug, Clone, Deserialize)]
pub struct WorkflowRequest {
    /// `chain`, `group` or `batch`, by default `chain`.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// Name for people.
    pub name: Option<String>,
    /// Steps. `jobs` is another name of the field.
    pub steps: Option<Vec<Box<RawValue>>>,
    /// Steps. `steps` is another name of the field.
    pub jobs: Option<Vec<Box<RawValue>>>,
    /// Callbacks after the last step.
    #[serde(default)]
    pub callbacks: Callbacks,
}

/// Callbacks of a request.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Callbacks {
    /// See [`CallbackTrigger::Success`].
    pub on_success: Option<Box<RawValue>>,
    /// See [`CallbackTrigger::Failure`].
    pub on_failure: Option<Box<RawValue>>,
    /// See [`CallbackTrigger::Complete`].
    pub on_complete: Option<Box<RawValue>>,
}

/// Observed progress of a running step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepObservation {
    /// No job or action has the id of the step.
    Nothing,
    /// The step has jobs that have not ended.
    Underway,
    /// All jobs of the step have ended, with this state.
    Ended(StepState),
}

fn invalid(text: impl Into<String>) -> Rejection {
    Rejection::InvalidWorkflow(text.into())
}

/// Returns true if a step is a chain, a group or a batch instead of a job or an action.
fn is_workflow(step: &RawValue) -> bool {
    let Ok(step) = serde_json::from_str::<Value>(step.get()) else { return false };
    let has = |name: &str| step.get(name).is_some_and(Value::is_array);
    (has("steps") || has("jobs")) && !has("args") && step.get("plan_id").is_none()
}

/// Parser of a submitted workflow and of the workflows in it.
struct WorkflowReader<I> {
    new_id: I,
    /// Number of steps so far that are jobs or actions.
    steps: usize,
}

impl<I: FnMut() -> String> WorkflowReader<I> {
    /// Parses a workflow at `place`, which is empty for the outermost one, on `level` from 1 on.
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

    /// Parses the step at `place` of a workflow on `level`.
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
    /// Returns a workflow that is submitted at `now`. `new_id` generates an id for each step and
    /// each callback. The error names the invalid field.
    pub fn new(
        wanted: WorkflowRequest,
        mut new_id: impl FnMut() -> String,
        now: Timestamp,
    ) -> Result<Self, Rejection> {
        let id = new_id();
        let read = WorkflowReader { new_id, steps: 0 }.read(wanted, "", 1)?;
        let Nested { kind, name, steps, callbacks } = read;
        let (stage, ended_at) = (StepState::Running, None);
        let created_at = now;
        let (owner, retries) = (None, 0);
        let new = Self { id, kind, name, stage, steps, callbacks, created_at, ended_at, owner, retries };
        Ok(new.moved(&[], now))
    }
}

#[cfg(test)]
mod tests;
