//! Workflows: steps that follow each other, or go together, and what is called when they have ended (ojs-workflows). A step is a job of
//! the Open Job Spec, or an action of a plan.

use agenix_protocol::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};

use crate::{cron::is_action, rejection::Rejection};

/// Most steps of a workflow.
pub const MAX_STEPS: usize = 1000;

/// How steps go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
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
pub enum Stage {
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

impl Stage {
    /// Whether it has ended.
    pub fn is_ended(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }
}

/// A step of a workflow.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Step {
    /// The job's or the action's id, from the beginning on.
    pub id: String,
    /// What is submitted.
    pub document: Box<RawValue>,
    /// Where it stands.
    pub stage: Stage,
    /// Whether it is known to have been submitted: while it is not, it is submitted again.
    pub is_submitted: bool,
    /// True if another client submitted the job, and the job stands in for the job of the step.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_stand_in: bool,
    /// Why it could not be submitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Step {
    fn new(id: String, document: Box<RawValue>) -> Self {
        Self { id, document, stage: Stage::Waiting, is_submitted: false, is_stand_in: false, error: None }
    }

    /// Whether it is an action of a plan rather than a job.
    pub fn is_action(&self) -> bool {
        is_action(&self.document)
    }
}

/// When a callback is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum When {
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
    pub when: When,
    /// What.
    pub step: Step,
}

/// A workflow as it is kept, as JSON.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Workflow {
    /// Its id.
    pub id: String,
    /// How its steps go.
    pub kind: Kind,
    /// Its name, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Where it stands.
    pub stage: Stage,
    /// In their order.
    pub steps: Vec<Step>,
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
pub struct Wanted {
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
    /// See [`When::Success`].
    pub on_success: Option<Box<RawValue>>,
    /// See [`When::Failure`].
    pub on_failure: Option<Box<RawValue>>,
    /// See [`When::Complete`].
    pub on_complete: Option<Box<RawValue>>,
}

/// What is seen of a step that is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// There is no such job or action.
    Nothing,
    /// It has jobs that have not ended.
    Underway,
    /// All of it ended, as this.
    Ended(Stage),
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

impl Workflow {
    /// A workflow that is submitted at `now`; `new_id` makes an id each time.
    pub fn new(
        wanted: Wanted,
        mut new_id: impl FnMut() -> String,
        now: Timestamp,
    ) -> Result<Self, Rejection> {
        let kind = match wanted.kind.as_deref() {
            None | Some("chain") => Kind::Chain,
            Some("group") => Kind::Group,
            Some("batch") => Kind::Batch,
            Some(other) => return Err(invalid(format!("type is '{other}': use chain, group or batch"))),
        };
        let steps = match (wanted.steps, wanted.jobs) {
            (Some(steps), None) | (None, Some(steps)) => steps,
            (None, None) => return Err(invalid("steps is missing: a workflow has at least one")),
            (Some(_), Some(_)) => return Err(invalid("steps and jobs are both given: use one of the names")),
        };
        if steps.is_empty() || steps.len() > MAX_STEPS {
            return Err(invalid(format!("it has {} steps: give 1 to {MAX_STEPS}", steps.len())));
        }
        if let Some(at) = steps.iter().position(|step| is_workflow(step)) {
            return Err(invalid(format!(
                "steps[{at}] is a workflow of its own, which agq does not run within another: submit it apart"
            )));
        }
        let Callbacks { on_success, on_failure, on_complete } = wanted.callbacks;
        let callbacks =
            [(When::Success, on_success), (When::Failure, on_failure), (When::Complete, on_complete)];
        let id = new_id();
        let steps = steps.into_iter().map(|document| Step::new(new_id(), document)).collect();
        let callbacks = callbacks
            .into_iter()
            .filter_map(|(when, document)| Some(Callback { when, step: Step::new(new_id(), document?) }));
        let callbacks = callbacks.collect();
        let (stage, ended_at) = (Stage::Running, None);
        let made = Self { id, kind, name: wanted.name, stage, steps, callbacks, created_at: now, ended_at };
        Ok(made.moved(&[], now))
    }

    /// How many steps ended well.
    pub fn completed(&self) -> usize {
        self.steps.iter().filter(|step| step.stage == Stage::Completed).count()
    }

    /// Returns the number of running steps that do not wait for each other. The workflow needs no
    /// look until the last of these steps has ended.
    pub fn steps_together(&self) -> usize {
        if self.kind == Kind::Chain || self.stage.is_ended() {
            return 0;
        }
        self.steps.iter().filter(|step| step.stage == Stage::Running).count()
    }

    /// Everything that may have to be submitted: steps, then callbacks.
    pub fn all(&self) -> impl Iterator<Item = &Step> {
        self.steps.iter().chain(self.callbacks.iter().map(|callback| &callback.step))
    }

    /// The same, to be changed.
    pub fn all_mut(&mut self) -> impl Iterator<Item = &mut Step> {
        self.steps.iter_mut().chain(self.callbacks.iter_mut().map(|callback| &mut callback.step))
    }

    /// Tells whether the workflow and its callbacks have ended.
    pub fn is_settled(&self) -> bool {
        self.stage.is_ended() && self.all().all(|step| step.stage != Stage::Running)
    }

    /// The workflow, given what was seen of its steps by their ids: what ended has ended, and what comes next begins.
    #[must_use]
    pub fn moved(&self, seen: &[(&str, Seen)], now: Timestamp) -> Self {
        let mut next = self.clone();
        for (id, seen) in seen {
            let Some(step) = next.all_mut().find(|step| step.id == *id && step.stage == Stage::Running)
            else {
                continue;
            };
            match seen {
                Seen::Ended(stage) => (step.stage, step.is_submitted) = (*stage, true),
                // It was forgotten before anybody saw what came of it.
                Seen::Nothing if step.is_submitted => step.stage = Stage::Failed,
                Seen::Nothing => {}
                Seen::Underway => step.is_submitted = true,
            }
        }
        if !next.stage.is_ended() {
            next.begin_steps();
            next.end_if_done(now);
        }
        next
    }

    /// Lets the steps begin whose turn it is.
    fn begin_steps(&mut self) {
        let has_failed = self.steps.iter().any(|step| matches!(step.stage, Stage::Failed | Stage::Cancelled));
        let is_busy = self.steps.iter().any(|step| step.stage == Stage::Running);
        let is_chain = self.kind == Kind::Chain;
        if is_chain && (has_failed || is_busy) {
            return;
        }
        let waiting = self.steps.iter_mut().filter(|step| step.stage == Stage::Waiting);
        waiting.take(if is_chain { 1 } else { MAX_STEPS }).for_each(|step| step.stage = Stage::Running);
    }

    fn end_if_done(&mut self, now: Timestamp) {
        if self.steps.iter().any(|step| step.stage == Stage::Running) {
            return;
        }
        let is_well = self.steps.iter().all(|step| step.stage == Stage::Completed);
        self.stage = if is_well { Stage::Completed } else { Stage::Failed };
        self.ended_at = Some(now);
        for callback in &mut self.callbacks {
            let is_called = match callback.when {
                When::Success => is_well,
                When::Failure => !is_well,
                When::Complete => true,
            };
            if is_called {
                callback.step.stage = Stage::Running;
            }
        }
    }

    /// The workflow is cancelled: no step begins any more.
    pub fn cancelled(&self, now: Timestamp) -> Result<Self, Rejection> {
        if self.stage.is_ended() {
            return Err(Rejection::WorkflowEnded(self.id.clone()));
        }
        let mut next = self.clone();
        (next.stage, next.ended_at) = (Stage::Cancelled, Some(now));
        for step in next.all_mut().filter(|step| !step.stage.is_ended()) {
            (step.stage, step.is_submitted) = (Stage::Cancelled, true);
        }
        Ok(next)
    }
}

#[cfg(test)]
mod tests;
