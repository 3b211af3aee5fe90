//! Rules of actions: checks that inputs fit the plan, and counts the jobs by status.

use std::collections::BTreeMap;

use agenix_protocol::{
    documents::{ActionSubmission, Halt, Plan, Status},
    ids::{ActionId, PlanId},
    limits::Limits,
    reserved_keys::{READY, SCHEDULED},
    time::Timestamp,
};
use serde::{Deserialize, Serialize};

pub use self::{
    halt::Halted,
    inputs::{check_inputs, count_new, may_leave_out},
    labels::has_labels,
    outputs::{check_key_takes_outputs, check_takes_outputs},
    scheduling::SchedulingOptions,
    shown::status,
};
use crate::{
    budget::JobBudget,
    concurrency_key, memory_factor,
    owner::{Owner, may_be_repeated},
    rejection::Rejection,
    resources,
};

pub mod halt;
mod inputs;
mod labels;
mod outputs;
mod scheduling;
mod shown;

/// Bounds of a priority, both included.
pub const PRIORITIES: std::ops::RangeInclusive<i32> = -100..=100;
/// Longest delay, in seconds: a hundred years.
pub const MAX_DELAY_SECS: f64 = 100.0 * 365.25 * 86_400.0;

/// Checks that the action is legal: its options, and every input.
pub fn check(action: &ActionSubmission, plan: &Plan, limits: &Limits) -> Result<(), Rejection> {
    let invalid = |text: String| Err(Rejection::InvalidAction(text));
    if action.inputs.is_empty() && !action.open {
        return invalid("inputs is empty: an action has at least one input, or is open".into());
    }
    if !PRIORITIES.contains(&action.priority) {
        return invalid(format!("priority is {}: use -100 to 100", action.priority));
    }
    if action.queue.as_ref().is_some_and(|queue| queue.as_str() == SCHEDULED) {
        return invalid(
            "queue is scheduled, where no job is claimed: use another name, and run_at for a time".into(),
        );
    }
    if action.run_at.is_some() && action.delay_secs.is_some() {
        return invalid("run_at and delay_secs are both given: an action has one time".into());
    }
    if action.delay_secs.is_some_and(|delay| !(0.0..=MAX_DELAY_SECS).contains(&delay)) {
        return invalid("delay_secs is not a number of seconds between 0 and a hundred years".into());
    }
    if action.max_running == Some(0) {
        return invalid("max_running is 0: use 1 or more".into());
    }
    labels::check(&action.labels).map_err(Rejection::InvalidAction)?;
    concurrency_key::check(action, plan).map_err(Rejection::InvalidAction)?;
    memory_factor::check_action(action, plan).map_err(Rejection::InvalidAction)?;
    resources::check_action(action, plan).map_err(Rejection::InvalidAction)?;
    check_inputs(&action.inputs, plan, limits)?;
    let concurrency = action.concurrency.as_ref();
    concurrency.map_or(Ok(()), |key| concurrency_key::check_inputs(key, &action.inputs, limits))
}

/// Returns the options of a submission.
pub fn options(action: &ActionSubmission) -> ActionOptions {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`check` has bounded it")]
    let delay_ms = action.delay_secs.map(|delay| (delay * 1000.0).ceil() as u64);
    let scheduling = SchedulingOptions {
        rate: action.rate,
        resources: action.resources.clone(),
        retry_memory_factor: action.retry_memory_factor,
        concurrency: action.concurrency.clone(),
        unique: action.unique.clone(),
        share: action.share.clone(),
        inputs_hash: inputs::hash_of_inputs(action),
    };
    ActionOptions { run_at: action.run_at, delay_ms, open: action.open, scheduling }
}

/// Returns the earliest time of a run for jobs of an action that is submitted at `now`.
pub fn run_at(options: &ActionOptions, now: Timestamp) -> Option<Timestamp> {
    options.run_at.or(options.delay_ms.map(|delay| now.plus_ms(delay)))
}

/// Returns true if the options of both actions are equal, and one submitter can have sent both. The
/// inputs do not count.
pub fn is_same(known: &Action, new: &Action) -> bool {
    let asked = |action: &Action| {
        (action.plan_id.clone(), action.queue.clone(), action.priority, action.wishes.clone(), action.halt)
    };
    asked(known) == asked(new)
        && known.labels == new.labels
        && known.max_running == new.max_running
        && may_be_repeated(known.owner.as_ref(), new.owner.as_ref())
}

/// Stored record of an action. Fields are durable and positional: append, never reorder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[must_use]
pub struct Action {
    /// The action.
    pub action_id: ActionId,
    /// Plan of the action.
    pub plan_id: PlanId,
    /// Number of jobs.
    pub total_jobs: u64,
    /// Time of the submission.
    pub created_at: Timestamp,
    /// Queue in which the jobs wait.
    pub queue: String,
    /// Priority, -100 to 100. Jobs of a higher priority are claimed first.
    pub priority: i32,
    /// Earliest time of a run.
    pub run_at: Option<Timestamp>,
    /// True if inputs may be added.
    pub is_open: bool,
    /// Options of the submission.
    pub wishes: ActionOptions,
    /// Halt policy.
    #[serde(default)]
    pub halt: Option<Halt>,
    /// Halt of the action, once its policy was met.
    #[serde(default)]
    pub halted: Option<Halted>,
    /// Labels of the submitter, by their names.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Maximum number of running jobs; `None` for no bound.
    #[serde(default)]
    pub max_running: Option<u64>,
    /// Budget that the jobs are charged to.
    #[serde(default)]
    pub budget: Option<Box<JobBudget>>,
    /// Owner, if a named key submitted the action.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Owner>,
}

/// Submitted options. An equal submission repeats one with a lost answer. Durable, positional.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ActionOptions {
    /// Submitted time.
    pub run_at: Option<Timestamp>,
    /// Submitted delay, in milliseconds.
    pub delay_ms: Option<u64>,
    /// True if the action was submitted as open.
    pub open: bool,
    /// Bounds on when and where the jobs run.
    #[serde(default, skip_serializing_if = "SchedulingOptions::is_default", with = "scheduling::json_text")]
    pub scheduling: SchedulingOptions,
}

impl Action {
    /// Returns an action without jobs and options.
    pub fn new(action_id: ActionId, plan_id: PlanId, now: Timestamp) -> Self {
        let queue = READY.to_owned();
        Self {
            action_id,
            plan_id,
            total_jobs: 0,
            created_at: now,
            queue,
            priority: 0,
            run_at: None,
            is_open: false,
            wishes: ActionOptions::default(),
            halt: None,
            halted: None,
            labels: BTreeMap::new(),
            max_running: None,
            budget: None,
            owner: None,
        }
    }
}

/// Closes the action for further inputs. Returns `None` if the action is closed already.
pub fn closed(action: &Action) -> Option<Action> {
    action.is_open.then(|| Action { is_open: false, ..action.clone() })
}

/// Checks that inputs may be added.
pub fn check_open(action: &Action) -> Result<(), Rejection> {
    match (action.is_open, action.halt.filter(|_| action.halted.is_some())) {
        (true, _) => Ok(()),
        (false, Some(halt)) => Err(Rejection::ActionHalted { action_id: action.action_id.clone(), halt }),
        (false, None) => Err(Rejection::ActionNotOpen(action.action_id.clone())),
    }
}

/// Checks that inputs may be added from position `at` on, without a gap.
pub fn check_place(action: &Action, at: u64) -> Result<(), Rejection> {
    if at <= action.total_jobs {
        return Ok(());
    }
    let text = format!("AT is {at}, but the action has {} inputs: none may be left out", action.total_jobs);
    Err(Rejection::InvalidAction(text))
}

/// Checks that the input of a repeated position equals the stored one.
pub fn check_known(index: u64, is_same: bool) -> Result<(), Rejection> {
    if is_same {
        return Ok(());
    }
    Err(Rejection::InvalidAction(format!("input {index} already exists with other content")))
}

/// Numbers of the jobs of an action by status. A store updates the numbers with every job that it
/// writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[must_use]
pub struct JobCounts {
    /// Numbers of jobs, in the order of [`Status`].
    pub jobs: [u64; 6],
    /// Time of the latest end of a job.
    pub last_ended_at: Option<Timestamp>,
    /// Number of running jobs whose start their workers have reported.
    #[serde(default)]
    pub started: u64,
}

impl JobCounts {
    /// Returns the counts with `started` changed by `by`.
    pub fn with_started(mut self, by: i64) -> Self {
        self.started = self.started.saturating_add_signed(by);
        self
    }

    /// Returns the counts with `count` more pending jobs.
    pub fn with_new(mut self, count: u64) -> Self {
        self.jobs[Status::Pending as usize] += count;
        self
    }

    /// Returns the counts after one job changed from status `from` to status `to`.
    pub fn moved(mut self, from: Status, to: Status, ended_at: Option<Timestamp>) -> Self {
        self.jobs[from as usize] = self.jobs[from as usize].saturating_sub(1);
        self.jobs[to as usize] += 1;
        self.last_ended_at = self.last_ended_at.max(ended_at);
        self
    }
}

#[cfg(test)]
mod tests {
    use agenix_protocol::{
        documents::{ActionSubmission, Plan, Status, parse},
        limits::Limits,
        time::Timestamp,
    };

    use serde_json::value::RawValue;

    use super::{JobCounts, check, check_inputs, check_takes_outputs};

    fn checked(inputs: &str, max_inputs: usize) -> Result<(), String> {
        let plan = r#"{"tasks":[{"task_number":1,"command":"cat","args":["{{input.file}}"]}]}"#;
        let plan: Plan = parse(plan.as_bytes()).unwrap();
        let action: ActionSubmission =
            parse(format!(r#"{{"plan_id":"p","inputs":[{inputs}]}}"#).as_bytes()).unwrap();
        let limits = Limits { max_inputs, ..Limits::default() };
        check(&action, &plan, &limits).map_err(|rejection| rejection.to_string())
    }

    #[test]
    fn inputs_need_the_fields_that_the_plan_names() {
        assert_eq!(checked(r#"{"file":"a"}"#, 10), Ok(()));
        let missing =
            "Invalid action schema: inputs[1] has no field 'file', which task 1 args[0] of the plan uses";
        assert_eq!(checked(r#"{"file":"a"},{"fil":"b"}"#, 10).unwrap_err(), missing);
        assert_eq!(checked("7", 10).unwrap_err(), "Invalid action schema: inputs[0] is not an object");
        let empty = "Invalid action schema: inputs is empty: an action has at least one input, or is open";
        assert_eq!(checked("", 10).unwrap_err(), empty);
        let nul = "Invalid action schema: inputs[0].file contains a NUL byte, which no process can be given";
        assert_eq!(checked(r#"{"file":"a\u0000"}"#, 10).unwrap_err(), nul);
    }

    #[test]
    fn lists_of_arguments_need_arrays() {
        let plan =
            r#"{"tasks":[{"task_number":1,"command":"cat","args":["{{input.files[]}}","{{input.files}}"]}]}"#;
        let plan: Plan = parse(plan.as_bytes()).unwrap();
        let checked = |input: &str| {
            let inputs = [RawValue::from_string(input.to_owned()).unwrap()];
            check_inputs(&inputs, &plan, &Limits::default()).map_err(|rejection| rejection.to_string())
        };
        assert_eq!([checked(r#"{"files":["a","b"]}"#), checked(r#"{"files":[]}"#)], [Ok(()), Ok(())]);
        for (input, why) in [
            ("{}", " has no field 'files', which task 1 args[0] of the plan uses"),
            (
                r#"{"files":"a"}"#,
                ".files is not an array, and task 1 args[0] of the plan makes an argument of each element",
            ),
            (r#"{"files":["a","b\u0000"]}"#, ".files[1] contains a NUL byte, which no process can be given"),
        ] {
            assert_eq!(checked(input).unwrap_err(), format!("Invalid action schema: inputs[0]{why}"));
        }
        let refused = check_takes_outputs(&plan).unwrap_err().to_string();
        assert!(refused.contains("whose field 'files' is not an array"), "{refused}");
    }

    #[test]
    fn inputs_have_the_types_of_the_plan() {
        let plan = r#"{"tasks":[{"task_number":1,"command":"cat","args":["{{input.file}}","{{input.more[]}}"]}],
            "inputs":{"file":{"type":"path","under":"/data"},"more":{"type":"name"}}}"#;
        let plan: Plan = parse(plan.as_bytes()).unwrap();
        let checked = |input: &str| {
            let inputs = ["{\"file\":\"/data/a\",\"more\":[\"z\"]}", input]
                .map(|json| RawValue::from_string(json.into()).unwrap());
            check_inputs(&inputs, &plan, &Limits::default()).map_err(|rejection| rejection.to_string())
        };
        assert_eq!(checked(r#"{"file":"/data/b","more":["x","y"]}"#), Ok(()));
        let path = checked(r#"{"file":"/data/../etc/passwd","more":["z"]}"#).unwrap_err();
        assert!(path.contains("inputs[1].file is not a path below /data"), "{path}");
        let name = checked(r#"{"file":"/data/b","more":["x","-o"]}"#).unwrap_err();
        assert!(name.contains("inputs[1].more[1] is not a name"), "{name}");
        assert!(
            check_takes_outputs(&plan).unwrap_err().to_string().contains("gives the field 'file' a type")
        );
    }

    #[test]
    fn plan_on_outputs_names_only_fields_of_outputs() {
        let check = |field: &str| {
            let task = format!(r#"{{"task_number":1,"command":"cat","args":["{{{{input.{field}}}}}"]}}"#);
            let plan: Plan = parse(format!(r#"{{"tasks":[{task}]}}"#).as_bytes()).unwrap();
            check_takes_outputs(&plan).map_err(|rejection| rejection.to_string())
        };
        for field in ["output", "job_id", "input.file", "output.total"] {
            assert_eq!(check(field), Ok(()), "{field}");
        }
        let wrong = check("file").unwrap_err();
        assert!(wrong.contains("no field 'file', which task 1 args[0] of the plan uses"), "{wrong}");
        assert!(wrong.contains("name {{input.output}} there"), "{wrong}");
    }

    #[test]
    fn input_with_invalid_json_is_refused() {
        let plan: Plan = parse(br#"{"tasks":[{"task_number":1,"command":"true"}]}"#).unwrap();
        let checked = |value: &str| {
            let input = RawValue::from_string(format!(r#"{{"a":{value}}}"#)).unwrap();
            check_inputs(&[input], &plan, &Limits::default()).map_err(|rejection| rejection.to_string())
        };
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert_eq!((checked(&nested(126)), checked("1e308")), (Ok(()), Ok(())));
        for (value, words) in
            [(nested(127).as_str(), "recursion limit exceeded"), ("1e309", "number out of range")]
        {
            let refused = checked(value).unwrap_err();
            assert!(refused.starts_with(&format!("Invalid action schema: inputs[0]: {words}")), "{refused}");
        }
    }

    #[test]
    fn inputs_are_limited_in_number() {
        assert_eq!(checked(r#"{"file":1},{"file":2}"#, 2), Ok(()));
        assert_eq!(checked(r#"{"file":1},{"file":2},{"file":3}"#, 2).unwrap_err(), "Too many inputs: max 2");
    }

    #[test]
    fn job_counts_follow_the_changes_of_jobs() {
        let counts = JobCounts::default().with_new(2).moved(Status::Pending, Status::Running, None);
        let counts = counts.moved(Status::Running, Status::Completed, Some(Timestamp(7)));
        assert_eq!((counts.jobs, counts.last_ended_at), ([1, 0, 1, 0, 0, 0], Some(Timestamp(7))));
        assert_eq!(counts.with_started(1).with_started(1).with_started(-1).started, 1);
        assert_eq!(counts.with_started(-1).started, 0, "it began before it was counted");
    }

    #[test]
    fn options_are_refused_outside_their_bounds() {
        let refused = |wish: &str| {
            let json = format!(r#"{{"plan_id":"p","inputs":[{{}}],{wish}}}"#);
            let plan: Plan = parse(br#"{"tasks":[{"task_number":1,"command":"true"}]}"#).unwrap();
            check(&parse(json.as_bytes()).unwrap(), &plan, &Limits::default()).map_err(|no| no.to_string())
        };
        for fine in [r#""priority":100"#, r#""priority":-100"#, r#""delay_secs":0.5"#, r#""queue":"gpu""#] {
            assert_eq!(refused(fine), Ok(()), "{fine}");
        }
        let words = |wish| refused(wish).unwrap_err();
        assert_eq!(words(r#""priority":101"#), "Invalid action schema: priority is 101: use -100 to 100");
        assert_eq!(words(r#""max_running":0"#), "Invalid action schema: max_running is 0: use 1 or more");
        assert!(words(r#""queue":"scheduled""#).contains("where no job is claimed"));
        assert!(words(r#""delay_secs":-1"#).contains("delay_secs is not a number"));
        let both = words(r#""delay_secs":1,"run_at":"2026-01-01T00:00:00Z""#);
        assert!(both.contains("an action has one time"), "{both}");
    }
}
