//! An action: whether its inputs fit its plan, and how its jobs are counted.

use std::collections::BTreeSet;

use agenix_protocol::{
    documents::{ActionStatus, ActionSubmission, Plan, Status, is_object},
    ids::{ActionId, PlanId},
    limits::{Limits, exceeds},
    template,
    time::Timestamp,
};
use serde::{Deserialize, Serialize};

use crate::rejection::Rejection;

/// Whether every input of the action is an object and has the fields that the plan's placeholders name.
pub fn check(action: &ActionSubmission, plan: &Plan, limits: &Limits) -> Result<(), Rejection> {
    if action.inputs.is_empty() {
        return Err(Rejection::InvalidAction("inputs is empty: an action has at least one input".into()));
    }
    if exceeds(action.inputs.len(), limits.max_inputs) {
        return Err(Rejection::TooManyInputs(limits.max_inputs));
    }
    let fields = named_fields(plan);
    for (at, input) in action.inputs.iter().enumerate() {
        if !is_object(input.get()) {
            return Err(Rejection::InvalidAction(format!("inputs[{at}] is not an object")));
        }
        if !fields.is_empty() {
            check_fields(at, input.get(), &fields)?;
        }
    }
    Ok(())
}

/// The fields that the plan's placeholders name, each with the first place that names it.
fn named_fields(plan: &Plan) -> BTreeSet<(String, String)> {
    let mut seen = BTreeSet::new();
    let mut named = BTreeSet::new();
    for task in &plan.tasks {
        for (place, text) in task.templates() {
            for field in template::fields(text).unwrap_or_default() {
                if seen.insert(field.to_owned()) {
                    named.insert((field.to_owned(), format!("task {} {place}", task.task_number)));
                }
            }
        }
    }
    named
}

fn check_fields(at: usize, input: &str, fields: &BTreeSet<(String, String)>) -> Result<(), Rejection> {
    let invalid = |text: String| Rejection::InvalidAction(format!("inputs[{at}]{text}"));
    let input = serde_json::from_str(input).map_err(|error| invalid(format!(": {error}")))?;
    for (field, place) in fields {
        match template::lookup(&input, field) {
            None => return Err(invalid(format!(" has no field '{field}', which {place} of the plan uses"))),
            Some(serde_json::Value::String(text)) if text.contains('\0') => {
                return Err(invalid(format!(".{field} contains a NUL byte, which no process can be given")));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

/// An action as a store keeps it. Fields are durable and positional: append, never reorder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Action {
    /// The action.
    pub action_id: ActionId,
    /// Its plan.
    pub plan_id: PlanId,
    /// How many jobs it has.
    pub total_jobs: u64,
    /// When it was submitted.
    pub created_at: Timestamp,
}

/// How many jobs of an action are where. A store moves it along with every job it writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Tally {
    /// Jobs by status, in the order of [`Status`].
    pub jobs: [u64; 6],
    /// When the latest of the ended jobs ended.
    pub last_ended_at: Option<Timestamp>,
}

impl Tally {
    /// `count` new jobs that wait.
    pub fn of_new(count: u64) -> Self {
        let mut tally = Self::default();
        tally.jobs[Status::Pending as usize] = count;
        tally
    }

    /// The tally after one job went from one status to another.
    #[must_use]
    pub fn moved(mut self, from: Status, to: Status, ended_at: Option<Timestamp>) -> Self {
        self.jobs[from as usize] = self.jobs[from as usize].saturating_sub(1);
        self.jobs[to as usize] += 1;
        self.last_ended_at = self.last_ended_at.max(ended_at);
        self
    }
}

/// What `ACTION.STATUS` shows.
pub fn status(action: &Action, tally: &Tally) -> ActionStatus {
    let count = |status: Status| tally.jobs[status as usize];
    let mut shown = ActionStatus {
        action_id: action.action_id.clone(),
        plan_id: action.plan_id.clone(),
        total_jobs: action.total_jobs,
        pending: count(Status::Pending),
        running: count(Status::Running),
        completed: count(Status::Completed),
        failed: count(Status::Failed),
        dead: count(Status::Dead),
        cancelled: count(Status::Cancelled),
        created_at: action.created_at,
        completed_jobs_at: None,
    };
    if shown.ended() == shown.total_jobs {
        shown.completed_jobs_at = tally.last_ended_at;
    }
    shown
}

#[cfg(test)]
mod tests {
    use agenix_protocol::{
        documents::{ActionSubmission, Plan, Status, parse},
        limits::Limits,
        time::Timestamp,
    };

    use super::{Tally, check};

    fn checked(inputs: &str, max_inputs: usize) -> Result<(), String> {
        let plan = r#"{"tasks":[{"task_number":1,"command":"cat","args":["{{input.file}}"]}]}"#;
        let plan: Plan = parse(plan.as_bytes()).unwrap();
        let action: ActionSubmission =
            parse(format!(r#"{{"plan_id":"p","inputs":[{inputs}]}}"#).as_bytes()).unwrap();
        let limits = Limits { max_inputs, ..Limits::default() };
        check(&action, &plan, &limits).map_err(|rejection| rejection.to_string())
    }

    #[test]
    fn inputs_must_have_what_the_plan_names() {
        assert_eq!(checked(r#"{"file":"a"}"#, 10), Ok(()));
        let missing =
            "Invalid action schema: inputs[1] has no field 'file', which task 1 args[0] of the plan uses";
        assert_eq!(checked(r#"{"file":"a"},{"fil":"b"}"#, 10).unwrap_err(), missing);
        assert_eq!(checked("7", 10).unwrap_err(), "Invalid action schema: inputs[0] is not an object");
        let empty = "Invalid action schema: inputs is empty: an action has at least one input";
        assert_eq!(checked("", 10).unwrap_err(), empty);
        let nul = "Invalid action schema: inputs[0].file contains a NUL byte, which no process can be given";
        assert_eq!(checked(r#"{"file":"a\u0000"}"#, 10).unwrap_err(), nul);
    }

    #[test]
    fn inputs_are_bounded() {
        assert_eq!(checked(r#"{"file":1},{"file":2}"#, 2), Ok(()));
        assert_eq!(checked(r#"{"file":1},{"file":2},{"file":3}"#, 2).unwrap_err(), "Too many inputs: max 2");
    }

    #[test]
    fn a_tally_follows_its_jobs() {
        let tally = Tally::of_new(2).moved(Status::Pending, Status::Running, None);
        let tally = tally.moved(Status::Running, Status::Completed, Some(Timestamp(7)));
        assert_eq!((tally.jobs, tally.last_ended_at), ([1, 0, 1, 0, 0, 0], Some(Timestamp(7))));
    }
}
