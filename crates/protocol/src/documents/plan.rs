//! A plan: tasks in order, reusable (AGQ API spec §2). An unknown field is an error: a misspelt `timeout_sec` must not
//! quietly mean "no timeout".

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ids::PlanId;

/// A plan document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Its id; agq gives one where it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan_id: Option<PlanId>,
    /// What it is for, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan_description: Option<String>,
    /// The tasks, numbered from 1 without gaps.
    pub tasks: Vec<Task>,
    /// How often a job is tried again after a task of it failed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub max_retries: u32,
    /// Seconds one attempt of a job may take (default 3600, a setting of agq); 0 for no bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_secs: Option<u64>,
    /// Whether a task that streams into the next one may fail the job; `false`: only the last one of a stream counts, as in a shell
    /// without `pipefail`.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub pipefail: bool,
    /// What a worker must have beside the commands of the tasks.
    #[serde(default, skip_serializing_if = "Requires::is_empty")]
    pub requires: Requires,
}

/// What a plan asks of a worker beside the commands of its tasks (worker spec §10, worker pools).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Requires {
    /// Programs that the tasks use without naming them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<String>,
    /// Pools: tags that the worker must have, with any value but false or null.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Tags that the worker must have with exactly this value.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

impl Requires {
    /// Whether nothing is asked for.
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty() && self.tags.is_empty() && self.labels.is_empty()
    }
}

/// What `stderr` is when it goes where `stdout` goes, in the words of a shell.
pub const STDERR_TO_STDOUT: &str = "&1";

/// One process of a plan. `{{input.field}}` may stand in `args`, `stdin`, `stdin_file`, `stdout`, `stderr`, `cwd` and the values of
/// `env`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Task {
    /// Its place in the plan, from 1.
    pub task_number: u32,
    /// The program: a name that is looked up on the worker's PATH, never a path, never a shell line.
    pub command: String,
    /// Its arguments, one process argument each.
    #[serde(default)]
    pub args: Vec<String>,
    /// The task whose stdout is this task's stdin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_from_task: Option<u32>,
    /// Run at once with the task before, joined by a pipe, instead of after it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stream: bool,
    /// Text for its stdin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin: Option<String>,
    /// A file on the worker that is its stdin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin_file: Option<String>,
    /// A file on the worker that takes its stdout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdout: Option<String>,
    /// A file on the worker that takes its stderr, or [`STDERR_TO_STDOUT`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr: Option<String>,
    /// The directory it runs in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Variables added to its environment.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Seconds it may run (default 300); its whole process group is killed after.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_secs: Option<u64>,
}

impl Task {
    /// Every text in which placeholders may stand, each with its place for an error message.
    pub fn templates(&self) -> impl Iterator<Item = (String, &str)> {
        let args = self.args.iter().enumerate().map(|(n, arg)| (format!("args[{n}]"), arg.as_str()));
        let named = [
            ("stdin", &self.stdin),
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

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use super::Plan;
    use crate::documents::parse;

    fn error(json: &str) -> String {
        parse::<Plan>(json.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn errors_name_the_field_and_the_place() {
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
}
