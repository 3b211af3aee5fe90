//! Arguments of the tools. The comments are the descriptions that the model reads.

use agenix_protocol::{
    documents::parse_object,
    ids::{ActionId, JobId, PlanId},
};
use schemars::JsonSchema;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value};

use crate::error::Result;

/// Longest wait of a call, in seconds. Clients give up after a minute or earlier.
pub(crate) const MAX_WAIT_SECS: u64 = 45;
/// Largest budget of a result, in bytes of JSON.
pub(crate) const MAX_RESULT_BYTES: usize = 256 * 1024;

/// Reads the arguments of a call. An error names the argument.
pub(crate) fn read<T: DeserializeOwned>(arguments: Option<Map<String, Value>>) -> Result<T> {
    let json = Value::Object(arguments.unwrap_or_default()).to_string();
    Ok(parse_object(json.as_bytes())?)
}

/// Arguments of `agx_tools`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ToolsArguments {
    /// Part of the name of a program. Default: all programs.
    pub(crate) query: Option<String>,
    /// Maximum number of programs, at most 1000.
    #[serde(default = "default_programs")]
    pub(crate) limit: usize,
}

fn default_programs() -> usize {
    100
}

/// Arguments of `agx_check`: exactly one of them.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CheckArguments {
    /// Pipeline of programs, as in `agx_run`.
    pub(crate) pipeline: Option<String>,
    /// Plan, as in `agx_run`.
    pub(crate) plan: Option<Map<String, Value>>,
}

/// Arguments of `agx_run`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunArguments {
    /// Pipeline of programs, such as `zcat {} | grep -c ERROR`. `{}` is the input of a job, quoted
    /// as one argument, and `{input.name}` a field of it. There is no shell: no variables, globs,
    /// loops, `&&` or files after `>`. Give a pipeline, a plan, or a plan_id.
    pub(crate) pipeline: Option<String>,
    /// Plan: `{"tasks": [{"task_number": 1, "command": "sort", "args": ["{{input.file}}"]}]}`. A
    /// later task reads the stdout of an earlier one with `"input_from_task": 1`.
    pub(crate) plan: Option<Map<String, Value>>,
    /// Id of a plan that agq has.
    pub(crate) plan_id: Option<PlanId>,
    /// One job for each line, which is `{}` in the pipeline. Not together with `inputs`.
    pub(crate) lines: Option<Vec<String>>,
    /// Action of yours whose jobs have completed: one job reads all their outputs as stdin, in the
    /// order of the inputs, as `sort | uniq -c` does to join counts. Not together with `lines` or
    /// `inputs`, and not with `plan_id`.
    pub(crate) stdin_of: Option<ActionId>,
    /// One job for each object, whose fields are `{input.name}`. Default: one job without an input.
    /// Write a number as a string if its digits matter, such as `"1.10"` or a long id.
    pub(crate) inputs: Option<Vec<Map<String, Value>>>,
    /// Name of this request, which you choose. A repeated call with the same name runs nothing
    /// again, and answers for the first call. Use one whenever a call may be repeated.
    pub(crate) request_id: Option<String>,
    /// Seconds to wait for the end of the jobs, at most 45. Then the answer is the state so far.
    pub(crate) wait_secs: Option<u64>,
    /// Maximum number of jobs that run at the same time. Default: as many as the workers can.
    pub(crate) max_running: Option<u64>,
    /// Number of retries of a failed job of a pipeline.
    #[serde(default)]
    pub(crate) retries: u32,
    /// Time limit of a task of a pipeline, in seconds. Default: 300.
    pub(crate) timeout_secs: Option<u64>,
    /// Maximum number of bytes of the results in the answer.
    #[serde(default = "default_result_bytes")]
    pub(crate) max_bytes: usize,
}

/// Event until which `agx_wait` waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum WaitUntil {
    /// All jobs have ended.
    #[default]
    Done,
    /// All jobs have ended, or one has failed.
    FirstFailure,
    /// A further job has ended.
    Progress,
}

/// Arguments of `agx_wait`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WaitArguments {
    /// Action that `agx_run` has returned.
    pub(crate) action_id: ActionId,
    /// Seconds to wait, at most 45.
    #[serde(default = "default_wait_secs")]
    pub(crate) secs: u64,
    /// Event to wait for.
    #[serde(default)]
    pub(crate) until: WaitUntil,
    /// Maximum number of bytes of the results in the answer.
    #[serde(default = "default_result_bytes")]
    pub(crate) max_bytes: usize,
}

/// Default of `secs` of `agx_wait`, and of `wait_secs` of `agx_run`.
pub(crate) fn default_wait_secs() -> u64 {
    30
}

fn default_result_bytes() -> usize {
    16 * 1024
}

/// Arguments of `agx_status`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct StatusArguments {
    /// Action that `agx_run` has returned.
    pub(crate) action_id: ActionId,
}

/// Jobs that `agx_results` returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ResultFilter {
    /// All jobs, in the order of the inputs.
    #[default]
    All,
    /// Failed jobs.
    Failed,
}

/// Arguments of `agx_results`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ResultsArguments {
    /// Action that `agx_run` has returned.
    pub(crate) action_id: ActionId,
    /// Jobs to return.
    #[serde(default)]
    pub(crate) only: ResultFilter,
    /// `cursor` of the page before. Default: the first page.
    pub(crate) cursor: Option<String>,
    /// Maximum number of bytes of the page.
    #[serde(default = "default_result_bytes")]
    pub(crate) max_bytes: usize,
    /// Maximum number of bytes of the output of a job.
    #[serde(default = "default_job_bytes")]
    pub(crate) job_bytes: usize,
}

/// Default of `job_bytes` of `agx_results`.
pub(crate) fn default_job_bytes() -> usize {
    2048
}

/// Stream of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum StreamName {
    /// Standard output.
    #[default]
    Stdout,
    /// Standard error.
    Stderr,
}

/// Arguments of `agx_logs`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LogsArguments {
    /// Job whose output is read, also while it runs.
    pub(crate) job_id: JobId,
    /// Number of the task. Default: the last task of the plan.
    pub(crate) task_number: Option<u32>,
    /// Stream of the task.
    #[serde(default)]
    pub(crate) stream: StreamName,
    /// Offset of the first byte.
    #[serde(default)]
    pub(crate) from: u64,
    /// Maximum number of bytes of the answer.
    #[serde(default = "default_result_bytes")]
    pub(crate) max_bytes: usize,
}

/// Arguments of `agx_cancel` and `agx_retry`: exactly one of them.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TargetArguments {
    /// Action with all its jobs.
    pub(crate) action_id: Option<ActionId>,
    /// Single job.
    pub(crate) job_id: Option<JobId>,
}

/// Arguments of `agx_budget`: none.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BudgetArguments {}
