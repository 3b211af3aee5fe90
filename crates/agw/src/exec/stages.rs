//! Execution plan of a job: turns a plan and an input into stages of commands. No I/O.
//!
//! A stage has the tasks that run at the same time: one task, or several tasks connected by pipes.
//! Stages run one after the other.

use std::{collections::BTreeSet, time::Duration};

use agenix_protocol::{
    blob::{BadBlobHash, BlobHash},
    documents::{Plan, STDERR_TO_STDOUT, Task},
    limits::DEFAULT_TASK_TIMEOUT_SECS,
    template::{self, TemplateError, Values},
};

use crate::exec::secrets::{SecretError, SecretValue};

/// Environment variable for the trace context (OpenTelemetry, variables as context carriers).
pub(crate) const TRACE_VARIABLE: &str = "TRACEPARENT";

/// Tasks that run at the same time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stage {
    pub(crate) commands: Vec<StageCommand>,
    /// True if the failure of any command fails the stage. Otherwise only the last command counts.
    pub(crate) pipefail: bool,
}

/// One process to start, with all placeholders filled in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StageCommand {
    pub(crate) task_number: u32,
    pub(crate) program: String,
    pub(crate) args: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    /// Variables whose values are secrets.
    pub(crate) secret_env: Vec<(String, SecretValue)>,
    pub(crate) cwd: Option<String>,
    pub(crate) stdin: Stdin,
    pub(crate) stdout: Stdout,
    pub(crate) stderr: Stderr,
    pub(crate) timeout: Duration,
    /// Maximum time without output of the stage.
    pub(crate) idle_timeout: Option<Duration>,
    /// True for the last command of the last stage.
    pub(crate) is_last: bool,
}

impl StageCommand {
    /// Returns the names and values of all variables that the plan sets.
    pub(crate) fn environment(&self) -> impl Iterator<Item = (&str, &str)> {
        let plain = self.env.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        plain.chain(self.secret_env.iter().map(|(name, value)| (name.as_str(), value.expose())))
    }
}

/// Source of a process's stdin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stdin {
    /// Empty: end of file at once.
    Empty,
    /// The given text.
    Text(String),
    /// Blob that the worker fetches from agq.
    Blob(BlobHash),
    /// A file of the user.
    File(String),
    /// Stdout of the earlier task with this number.
    Task(u32),
    /// Pipe from the previous command of the stage.
    Pipe,
}

/// Destination of a process's stdout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stdout {
    /// A spool file, for the result and for later tasks.
    Spool,
    /// A file of the user.
    File(String),
    /// Pipe to the next command of the stage.
    Pipe,
}

/// Destination of a process's stderr.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stderr {
    /// A spool file, for the result.
    Spool,
    /// A file of the user.
    File(String),
    /// Same destination as stdout.
    Stdout,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct JobProgress {
    /// Number of the running task, the first one of its stage.
    pub(crate) current_task: u32,
    /// Percentage of the tasks that have ended: 0 to 100.
    pub(crate) percent: f32,
}

impl JobProgress {
    /// Returns the progress at the start of stage `at`, from 0, or `None` without such a stage.
    #[expect(clippy::cast_precision_loss, reason = "a plan has few tasks")]
    pub(crate) fn at(stages: &[Stage], at: usize) -> Option<Self> {
        let tasks = |stages: &[Stage]| stages.iter().map(|stage| stage.commands.len()).sum::<usize>();
        let current_task = stages.get(at)?.commands.first()?.task_number;
        let percent = 100.0 * tasks(&stages[..at]) as f32 / tasks(stages) as f32;
        Some(Self { current_task, percent })
    }
}

/// Error for a plan and an input that do not belong together, or for a secret. agq checks each
/// action.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum StagesError {
    /// A placeholder does not have its field.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// The name of the blob for stdin is invalid.
    #[error("stdin_blob: {0}")]
    Blob(#[from] BadBlobHash),
    /// A task does not get its secret.
    #[error(transparent)]
    Secret(#[from] SecretError),
}

/// Returns the stages of `plan` with `values`. `secret` returns the value of a secret for a tool.
pub(crate) fn stages(
    plan: &Plan,
    values: Values<'_>,
    mut secret: impl FnMut(&str, &str) -> Result<SecretValue, SecretError>,
) -> Result<Vec<Stage>, StagesError> {
    let mut stages: Vec<Stage> = Vec::new();
    for task in &plan.tasks {
        let command = command(task, values, &mut secret)?;
        match stages.last_mut() {
            Some(stage) if task.stream => {
                if let Some(before) = stage.commands.last_mut() {
                    before.stdout = Stdout::Pipe;
                }
                stage.commands.push(command);
            }
            _ => stages.push(Stage { commands: vec![command], pipefail: plan.pipefail }),
        }
    }
    if let Some(last) = stages.last_mut().and_then(|stage| stage.commands.last_mut()) {
        last.is_last = true;
    }
    Ok(stages)
}

/// Number of open files of a task that has ended: its stdout and stderr.
const FILES_OF_ENDED: u32 = 2;
/// Open files of a running task: its process, its counters of bytes, its output, and both ends of
/// the pipe after it.
const FILES_OF_RUNNING: u32 = 5;
/// Number of further files that the start of a process opens.
const FILES_OF_START: u32 = 5;

/// Returns the maximum number of files that the job with these `stages` has open in the worker.
pub(crate) fn open_files(stages: &[Stage]) -> u32 {
    let (mut ended, mut most) = (0, 0);
    for stage in stages {
        let tasks = u32::try_from(stage.commands.len()).unwrap_or(u32::MAX);
        most = most.max(tasks.saturating_mul(FILES_OF_RUNNING).saturating_add(ended));
        ended = ended.saturating_add(tasks.saturating_mul(FILES_OF_ENDED));
    }
    let inputs = u32::try_from(input_blobs(stages).len()).unwrap_or(u32::MAX);
    most.saturating_add(FILES_OF_START).saturating_add(inputs)
}

/// Number of further files of a running task whose output is masked: the pipe and the file of the
/// relay, for stdout and stderr.
const FILES_OF_MASKED: u32 = 4;

/// Returns the maximum number of further files if the output of the job is masked.
pub(crate) fn open_files_of_masks(stages: &[Stage]) -> u32 {
    let most = stages.iter().map(|stage| stage.commands.len()).max().unwrap_or_default();
    u32::try_from(most).unwrap_or(u32::MAX).saturating_mul(FILES_OF_MASKED)
}

/// Adds the trace context to every command, except where the task sets the variable itself.
pub(crate) fn set_trace_variable(stages: &mut [Stage], traceparent: &str) {
    for command in stages.iter_mut().flat_map(|stage| &mut stage.commands) {
        command.env.insert(0, (TRACE_VARIABLE.into(), traceparent.into()));
    }
}

/// Returns the blobs that the commands of all stages read.
pub(crate) fn input_blobs(stages: &[Stage]) -> BTreeSet<BlobHash> {
    let commands = stages.iter().flat_map(|stage| &stage.commands);
    let blob = |command: &StageCommand| match command.stdin {
        Stdin::Blob(hash) => Some(hash),
        _ => None,
    };
    commands.filter_map(blob).collect()
}

fn command(
    task: &Task,
    values: Values<'_>,
    secret: &mut impl FnMut(&str, &str) -> Result<SecretValue, SecretError>,
) -> Result<StageCommand, StagesError> {
    let fill = |text: &String| template::fill(text, values);
    let stdin = match (task, task.input_from_task) {
        (_, Some(_)) if task.stream => Stdin::Pipe,
        (_, Some(from)) => Stdin::Task(from),
        (Task { stdin: Some(text), .. }, _) => Stdin::Text(fill(text)?),
        (Task { stdin_blob: Some(hash), .. }, _) => Stdin::Blob(fill(hash)?.parse()?),
        (Task { stdin_file: Some(path), .. }, _) => Stdin::File(fill(path)?),
        _ => Stdin::Empty,
    };
    let stderr = match task.stderr.as_deref() {
        None => Stderr::Spool,
        Some(STDERR_TO_STDOUT) => Stderr::Stdout,
        Some(path) => Stderr::File(template::fill(path, values)?),
    };
    let (mut env, mut secret_env) = (Vec::with_capacity(task.env.len()), Vec::new());
    for (name, value) in &task.env {
        // A value that an input fills in is text, even if the value has the form of a secret.
        match template::secret(value) {
            Some(wanted) => secret_env.push((name.clone(), secret(wanted, &task.command)?)),
            None => env.push((name.clone(), fill(value)?)),
        }
    }
    Ok(StageCommand {
        task_number: task.task_number,
        program: task.command.clone(),
        args: template::fill_args(&task.args, values)?,
        env,
        secret_env,
        cwd: task.cwd.as_ref().map(fill).transpose()?,
        stdin,
        stdout: task.stdout.as_ref().map(fill).transpose()?.map_or(Stdout::Spool, Stdout::File),
        stderr,
        timeout: Duration::from_secs(task.timeout_secs.unwrap_or(DEFAULT_TASK_TIMEOUT_SECS)),
        idle_timeout: task.idle_timeout_secs.map(Duration::from_secs),
        is_last: false,
    })
}

#[cfg(test)]
mod tests {
    use agenix_protocol::{
        documents::{Plan, parse},
        template::Values,
    };
    use serde_json::value::RawValue;

    use super::{
        JobProgress, SecretError, Stage, StagesError, Stderr, Stdin, Stdout, TemplateError, input_blobs,
        open_files, set_trace_variable,
    };

    fn stages(plan: &Plan, input: &str) -> Result<Vec<Stage>, StagesError> {
        let values = Values { input: serde_json::from_str::<&RawValue>(input).unwrap(), slot: "1" };
        super::stages(plan, values, |name, tool| Err(SecretError::NotForTool(name.into(), tool.into())))
    }

    fn plan(tasks: &str) -> Plan {
        parse(format!(r#"{{"tasks":[{tasks}]}}"#).as_bytes()).unwrap()
    }

    #[test]
    fn stages_join_streamed_tasks() {
        let plan = plan(
            r#"{"task_number":1,"command":"cat","args":["{{input.f}}"]},
               {"task_number":2,"command":"tr","input_from_task":1,"stream":true},
               {"task_number":3,"command":"sort","input_from_task":2}"#,
        );
        let stages = stages(&plan, r#"{"f": "a b"}"#).unwrap();
        let shape: Vec<Vec<_>> =
            stages.iter().map(|s| s.commands.iter().map(|c| (&c.stdin, &c.stdout)).collect()).collect();
        assert_eq!(
            shape,
            [
                vec![(&Stdin::Empty, &Stdout::Pipe), (&Stdin::Pipe, &Stdout::Spool)],
                vec![(&Stdin::Task(2), &Stdout::Spool)],
            ]
        );
        assert_eq!(stages[0].commands[0].args, ["a b"]);
        let last: Vec<bool> = stages.iter().flat_map(|s| &s.commands).map(|c| c.is_last).collect();
        assert_eq!(last, [false, false, true]);
    }

    #[test]
    fn progress_counts_tasks_and_names_the_first_that_runs() {
        let plan = plan(
            r#"{"task_number":1,"command":"cat"},
               {"task_number":2,"command":"tr","input_from_task":1},
               {"task_number":3,"command":"tr","input_from_task":2,"stream":true},
               {"task_number":4,"command":"sort","input_from_task":3}"#,
        );
        let stages = stages(&plan, "{}").unwrap();
        let at = |stage| JobProgress::at(&stages, stage).map(|now| (now.current_task, now.percent));
        assert_eq!([at(0), at(1), at(2)], [Some((1, 0.0)), Some((2, 25.0)), Some((4, 75.0))]);
        assert_eq!(at(3), None);
    }

    #[test]
    fn open_files_count_fetched_inputs() {
        let task = r#"{"task_number":1,"command":"wc","stdin_blob":"{{input.stdin}}"}"#;
        let hash = "d74981efa70a0c880b8d8c1985d075dbcbf679b99a5f9914e5aaf96b831a9e24";
        let stages = stages(&plan(task), &format!(r#"{{"stdin":"{hash}"}}"#)).unwrap();
        assert_eq!(open_files(&stages), 11);
    }

    #[test]
    fn open_files_count_output_of_ended_tasks() {
        let one = r#"{"task_number":1,"command":"cat"}"#;
        let joined = r#"{"task_number":2,"command":"tr","input_from_task":1,"stream":true}"#;
        let after = r#"{"task_number":2,"command":"tr","input_from_task":1}"#;
        let of = |tasks: &str| open_files(&stages(&plan(tasks), "{}").unwrap());
        assert_eq!(of(one), 10);
        assert_eq!([of(&format!("{one},{joined}")), of(&format!("{one},{after}"))], [15, 12]);
    }

    #[test]
    fn stages_keep_user_files_and_pipefail() {
        let tasks = r#""tasks":[{"task_number":1,"command":"sort","stdin_file":"{{input.f}}","stderr":"&1"},
            {"task_number":2,"command":"wc","stderr":"{{input.f}}.err"}]"#;
        let plan = parse::<Plan>(format!(r#"{{"pipefail":false,{tasks}}}"#).as_bytes()).unwrap();
        let stages = stages(&plan, r#"{"f": "a b"}"#).unwrap();
        let of =
            |at: usize| (&stages[at].commands[0].stdin, &stages[at].commands[0].stderr, stages[at].pipefail);
        assert_eq!(of(0), (&Stdin::File("a b".into()), &Stderr::Stdout, false));
        assert_eq!(of(1), (&Stdin::Empty, &Stderr::File("a b.err".into()), false));
    }

    #[test]
    fn trace_variable_reaches_every_process_unless_a_task_sets_it() {
        let plan = plan(
            r#"{"task_number":1,"command":"env"},
               {"task_number":2,"command":"env","env":{"TRACEPARENT":"own"}}"#,
        );
        let mut stages = stages(&plan, "{}").unwrap();
        set_trace_variable(&mut stages, "00-t-p-01");
        let trace = |at: usize| {
            stages[at].commands[0].env.iter().map(|(_, value)| value.as_str()).collect::<Vec<_>>()
        };
        assert_eq!([trace(0), trace(1)], [vec!["00-t-p-01"], vec!["00-t-p-01", "own"]], "the last counts");
    }

    #[test]
    fn stages_reject_a_placeholder_without_its_field() {
        assert!(stages(&plan(r#"{"task_number":1,"command":"cat","stdin":"{{input.f}}"}"#), "{}").is_err());
    }

    #[test]
    fn stages_ask_for_the_secrets_of_the_plan_and_not_for_those_of_an_input() {
        let plan =
            plan(r#"{"task_number":1,"command":"curl","env":{"A":"{{input.x}}","TOKEN":"{{input.y}}"}}"#);
        let input = r#"{"x":"{{secret.TOKEN}}","y":"{{secret.{{input.x}}}}"}"#;
        let command = stages(&plan, input).unwrap().remove(0).commands.remove(0);
        assert_eq!(command.env[0].1, "{{secret.TOKEN}}");
        assert_eq!(command.env[1].1, "{{secret.{{input.x}}}}");
        assert!(command.secret_env.is_empty());
        let plan =
            super::tests::plan(r#"{"task_number":1,"command":"curl","env":{"A":"{{ secret.TOKEN }}"}}"#);
        let wanted = SecretError::NotForTool("TOKEN".into(), "curl".into());
        assert_eq!(stages(&plan, "{}"), Err(wanted.into()));
    }

    #[test]
    fn stages_name_the_blobs_that_they_read() {
        let plan = plan(r#"{"task_number":1,"command":"wc","stdin_blob":"{{input.stdin}}"}"#);
        let hash = "d74981efa70a0c880b8d8c1985d075dbcbf679b99a5f9914e5aaf96b831a9e24";
        let found = stages(&plan, &format!(r#"{{"stdin":"{hash}"}}"#)).unwrap();
        assert_eq!(input_blobs(&found).into_iter().collect::<Vec<_>>(), [hash.parse().unwrap()]);
        let wrong = stages(&plan, r#"{"stdin":"x"}"#).unwrap_err().to_string();
        assert_eq!(wrong, "stdin_blob: blake3 'x' is not valid: use 64 hexadecimal digits");
    }

    #[test]
    fn stages_expand_lists_of_arguments() {
        let plan = plan(r#"{"task_number":1,"command":"wc","args":["-l","{{input.files[]}}","--"]}"#);
        let args = |input: &str| stages(&plan, input).map(|stages| stages[0].commands[0].args.clone());
        assert_eq!(args(r#"{"files":["a b","-x"]}"#).unwrap(), ["-l", "a b", "-x", "--"]);
        assert_eq!(args(r#"{"files":[]}"#).unwrap(), ["-l", "--"]);
        assert_eq!(args(r#"{"files":"a"}"#), Err(TemplateError::NotAList("files".into()).into()));
    }

    #[test]
    fn stages_keep_the_spelling_of_numbers() {
        let plan = plan(
            r#"{"task_number":1,"command":"echo","args":["{{input.n}}"],"env":{"N":"{{input.n}}"},
                "cwd":"/{{input.n}}","stdin":"{{input.n}}"}"#,
        );
        let big = "123456789012345678901234567890";
        let stages = stages(&plan, &format!(r#"{{"n":{big}}}"#)).unwrap();
        let command = &stages[0].commands[0];
        assert_eq!((&*command.args[0], &*command.env[0].1), (big, big));
        assert_eq!(command.cwd.as_deref(), Some(&*format!("/{big}")));
        assert_eq!(command.stdin, Stdin::Text(big.into()));
    }
}
