//! Plans: reusable lists of tasks (AGQ API spec §2). Unknown fields are errors, because a misspelt
//! `timeout_sec` must not mean that there is no timeout.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{InputType, MemoryFactor, PlanSandbox, Quantities, StartRate, is_default};
use crate::{ids::PlanId, template, time::Timestamp};

/// Plan document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Id of the plan. Default: agq generates one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan_id: Option<PlanId>,
    /// Description for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan_description: Option<String>,
    /// Tasks, numbered from 1 without gaps.
    pub tasks: Vec<Task>,
    /// Maximum number of retries of a job after a task failed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub max_retries: u32,
    /// Timeout of one attempt of a job, in seconds; 0 for no bound. Default: a setting of agq,
    /// 3600.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_secs: Option<u64>,
    /// False to ignore failures of tasks that stream into the next one, as a shell without
    /// `pipefail`.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub pipefail: bool,
    /// Needs of the plan, apart from the commands of its tasks.
    #[serde(default, skip_serializing_if = "is_default")]
    pub requires: Requires,
    /// Sandbox of all tasks. Default: the worker decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<PlanSandbox>,
    /// Types of the fields of inputs, by the field that placeholders name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub inputs: BTreeMap<String, InputType>,
    /// Maximum number of running jobs of all actions of the plan. Default: no bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_running: Option<u64>,
    /// Maximum rate at which the jobs of all actions of the plan start. Default: no bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<StartRate>,
    /// Factor by which a retry wants more memory if the kernel has killed a task for lack of it.
    /// Default: the retry wants the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_memory_factor: Option<MemoryFactor>,
}

/// Value that stands for a hidden value of an environment variable.
const HIDDEN: &str = "***";

impl Plan {
    /// Replaces the values of environment variables that have no placeholder by `***`, and a
    /// description with an assignment to such a variable. Returns true if a value was replaced.
    pub fn hide_literal_env(&mut self) -> bool {
        let mut has_hidden = false;
        for (name, value) in self.tasks.iter_mut().flat_map(|task| &mut task.env) {
            if value.contains("{{") {
                continue;
            }
            HIDDEN.clone_into(value);
            has_hidden = true;
            let assignment = format!("{name}=");
            // agx describes a plan by its pipeline.
            if self.plan_description.as_ref().is_some_and(|text| text.contains(&assignment)) {
                self.plan_description = Some(HIDDEN.into());
            }
        }
        has_hidden
    }

    /// Returns the names of environment variables whose values are hidden.
    pub fn hidden_env(&self) -> BTreeSet<&str> {
        let env = self.tasks.iter().flat_map(|task| &task.env);
        env.filter(|(_, value)| value.as_str() == HIDDEN).map(|(name, _)| name.as_str()).collect()
    }
}

/// Needs of a plan, apart from the commands of its tasks (worker spec §10, worker pools).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Requires {
    /// Programs that the tasks use without naming them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<String>,
    /// Pools: tags that the worker has to have, with any value but false or null.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Labels: tags that the worker has to have with exactly this value.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Quantities that one job uses while it runs, as `{"cpus": 2, "memory": "4G"}`.
    #[serde(skip_serializing_if = "Quantities::is_empty")]
    pub resources: Quantities,
}

/// Answer of `PLAN.STATUS`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlanStatus {
    /// The plan.
    pub plan_id: PlanId,
    /// Time of the submission.
    pub created_at: Timestamp,
    /// Role and name of the key that submitted the plan, as `client:alice`. Left out for the
    /// session key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
}

impl Requires {
    /// Returns true if nothing is required.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Tag of workers that run programs by path. A plan that has a path as a `command` requires the
/// tag.
pub const PROGRAM_PATHS: &str = "program-paths";

/// Value of `stderr` that redirects it to `stdout`, as in a shell.
pub const STDERR_TO_STDOUT: &str = "&1";

/// One process of a plan. Placeholders like `{{input.field}}` and `{{slot}}` may be in `args`,
/// `stdin`, `stdin_blob`, `stdin_file`, `stdout`, `stderr`, `cwd` and the values of `env`. A value
/// of `env` may also be exactly `{{secret.NAME}}`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Task {
    /// Position in the plan, from 1.
    pub task_number: u32,
    /// Name of a program on the PATH of the worker, or its path if the plan requires the tag
    /// [`PROGRAM_PATHS`]. It is never a shell line.
    pub command: String,
    /// Arguments of the process, one each.
    #[serde(default)]
    pub args: Vec<String>,
    /// Number of the task whose stdout is the stdin of this task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_from_task: Option<u32>,
    /// True to run at the same time as the previous task, joined by a pipe, instead of after it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stream: bool,
    /// Text for stdin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin: Option<String>,
    /// BLAKE3 hash of the blob for stdin, usually a placeholder; INPUT.COMMIT stores the blob.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin_blob: Option<String>,
    /// File on the worker for stdin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin_file: Option<String>,
    /// File on the worker for stdout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdout: Option<String>,
    /// File on the worker for stderr, or [`STDERR_TO_STDOUT`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr: Option<String>,
    /// Working directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Additional environment variables.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Timeout in seconds, after which the process group of the task is killed. Default: 300.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_secs: Option<u64>,
    /// Maximum time in seconds in which neither the task nor a task that streams with it writes to
    /// stdout or stderr. Then the task is killed as after a timeout. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_timeout_secs: Option<u64>,
}

impl Task {
    /// Returns true if the command is a path, which is relative to `cwd`.
    pub fn is_program_path(&self) -> bool {
        self.command.contains('/')
    }

    /// Returns the secrets that the variables of the task have.
    pub fn secrets(&self) -> impl Iterator<Item = &str> {
        self.env.values().filter_map(|value| template::secret(value))
    }

    /// Returns every text that may have placeholders, each with its place for an error message.
    pub fn templates(&self) -> impl Iterator<Item = (String, &str)> {
        let args = self.args.iter().enumerate().map(|(n, arg)| (format!("args[{n}]"), arg.as_str()));
        let named = [
            ("stdin", &self.stdin),
            ("stdin_blob", &self.stdin_blob),
            ("stdin_file", &self.stdin_file),
            ("stdout", &self.stdout),
            ("stderr", &self.stderr),
            ("cwd", &self.cwd),
        ];
        let named = named.into_iter().filter_map(|(name, text)| Some((name.to_owned(), text.as_deref()?)));
        let env = self.env.iter().map(|(name, value)| (format!("env.{name}"), value.as_str()));
        args.chain(named).chain(env)
    }
}

fn yes() -> bool {
    true
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
fn is_yes(flag: &bool) -> bool {
    *flag
}

#[cfg(test)]
mod tests {
    use super::Plan;
    use crate::documents::parse;

    fn error(json: &str) -> String {
        parse::<Plan>(json.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn plan_errors_name_the_field_and_the_place() {
        let unknown =
            error(r#"{"tasks":[{"task_number":1,"command":"sort"},{"task_number":2,"comand":"uniq"}]}"#);
        assert!(unknown.starts_with("tasks[1].comand: unknown field `comand`"), "{unknown}");
        let typed = error(r#"{"tasks":[{"task_number":1,"command":"sort","args":["-k",2]}]}"#);
        assert!(
            typed.starts_with("tasks[0].args[1]: invalid type: integer `2`, expected a string"),
            "{typed}"
        );
        assert!(error(r#"{"plan_id":"a b","tasks":[]}"#).starts_with("plan_id: plan_id 'a b' is not valid"));
        assert!(error("{").starts_with("EOF while parsing"), "{}", error("{"));
        assert!(error(r#"{"tasks":[]} x"#).starts_with("trailing characters"));
    }

    #[test]
    fn description_with_the_assignment_of_a_hidden_value_is_hidden() {
        let plan = |description: &str, env: &str| -> Plan {
            let task = format!(r#"{{"task_number":1,"command":"fetch","env":{{"TOKEN":"{env}"}}}}"#);
            let json = format!(r#"{{"plan_description":"{description}","tasks":[{task}]}}"#);
            let mut plan: Plan = parse(json.as_bytes()).unwrap();
            assert!(plan.hidden_env().is_empty());
            assert_eq!(plan.hide_literal_env(), !env.contains("{{"));
            assert_eq!(plan.hidden_env().contains("TOKEN"), !env.contains("{{"));
            plan
        };
        let shown = plan("TOKEN='a b' fetch", "a b");
        assert_eq!((shown.plan_description.as_deref(), &*shown.tasks[0].env["TOKEN"]), (Some("***"), "***"));
        assert_eq!(plan("fetch all", "a b").plan_description.as_deref(), Some("fetch all"));
        let text = "TOKEN={{input.t}} fetch";
        assert_eq!(plan(text, "{{input.t}}").plan_description.as_deref(), Some(text));
    }
}
