//! From a job to what has to be run. Pure: it starts nothing and opens nothing.
//!
//! A stage is what runs at once: one task, or several that are joined by pipes. Stages run one after the other.

use std::time::Duration;

use agenix_protocol::{
    documents::{Plan, Task},
    limits::DEFAULT_TASK_TIMEOUT_SECS,
    template::{self, TemplateError},
};
use serde_json::Value;

/// By which processes hear of a trace (OpenTelemetry, environment variables as context carriers).
const TRACE_VARIABLE: &str = "TRACEPARENT";

/// Tasks that run at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stage {
    pub(crate) commands: Vec<Command>,
}

/// One process to run, placeholders filled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Command {
    pub(crate) task_number: u32,
    pub(crate) program: String,
    pub(crate) args: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) cwd: Option<String>,
    pub(crate) stdin: Stdin,
    pub(crate) stdout: Stdout,
    pub(crate) timeout: Duration,
}

/// Where a process reads from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stdin {
    /// Nothing: end of file at once.
    Empty,
    /// This text.
    Text(String),
    /// What an earlier task wrote.
    Task(u32),
    /// The command before it in its stage.
    Pipe,
}

/// Where a process writes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stdout {
    /// A spool file, for the result and for later tasks.
    Spool,
    /// A file of the user's.
    File(String),
    /// The command after it in its stage.
    Pipe,
}

/// How far a job is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Progress {
    /// The task that runs, the first of those that run at once.
    pub(crate) current_task: u32,
    /// Tasks that are done, of all: 0 to 100.
    pub(crate) percent: f32,
}

impl Progress {
    /// Where a job is when its stage number `at`, from 0, starts.
    #[expect(clippy::cast_precision_loss, reason = "a plan has few tasks")]
    pub(crate) fn at(stages: &[Stage], at: usize) -> Option<Self> {
        let tasks = |stages: &[Stage]| stages.iter().map(|stage| stage.commands.len()).sum::<usize>();
        let current_task = stages.get(at)?.commands.first()?.task_number;
        let percent = 100.0 * tasks(&stages[..at]) as f32 / tasks(stages) as f32;
        Some(Self { current_task, percent })
    }
}

/// What has to be run for a plan on an input. A placeholder without its field is an error: agq checked the action, so
/// this means that plan and input do not belong together.
pub(crate) fn stages(plan: &Plan, input: &Value) -> Result<Vec<Stage>, TemplateError> {
    let mut stages: Vec<Stage> = Vec::new();
    for task in &plan.tasks {
        let command = command(task, input)?;
        match stages.last_mut() {
            Some(stage) if task.stream => {
                if let Some(before) = stage.commands.last_mut() {
                    before.stdout = Stdout::Pipe;
                }
                stage.commands.push(command);
            }
            _ => stages.push(Stage { commands: vec![command] }),
        }
    }
    Ok(stages)
}

/// Every process hears of the trace that the job is a part of; a task that sets the variable itself wins.
pub(crate) fn tell_trace(stages: &mut [Stage], traceparent: &str) {
    for command in stages.iter_mut().flat_map(|stage| &mut stage.commands) {
        command.env.insert(0, (TRACE_VARIABLE.into(), traceparent.into()));
    }
}

fn command(task: &Task, input: &Value) -> Result<Command, TemplateError> {
    let fill = |text: &String| template::fill(text, input);
    let stdin = match (&task.stdin, task.input_from_task) {
        (_, Some(_)) if task.stream => Stdin::Pipe,
        (_, Some(from)) => Stdin::Task(from),
        (Some(text), None) => Stdin::Text(fill(text)?),
        (None, None) => Stdin::Empty,
    };
    let env = task.env.iter().map(|(name, value)| Ok((name.clone(), fill(value)?)));
    Ok(Command {
        task_number: task.task_number,
        program: task.command.clone(),
        args: task.args.iter().map(fill).collect::<Result<_, _>>()?,
        env: env.collect::<Result<_, _>>()?,
        cwd: task.cwd.as_ref().map(fill).transpose()?,
        stdin,
        stdout: task.stdout.as_ref().map(fill).transpose()?.map_or(Stdout::Spool, Stdout::File),
        timeout: Duration::from_secs(task.timeout_secs.unwrap_or(DEFAULT_TASK_TIMEOUT_SECS)),
    })
}

#[cfg(test)]
mod tests {
    use agenix_protocol::documents::{Plan, parse};
    use serde_json::json;

    use super::{Progress, Stdin, Stdout, stages, tell_trace};

    fn plan(tasks: &str) -> Plan {
        parse(format!(r#"{{"tasks":[{tasks}]}}"#).as_bytes()).unwrap()
    }

    #[test]
    fn streamed_tasks_share_a_stage() {
        let plan = plan(
            r#"{"task_number":1,"command":"cat","args":["{{input.f}}"]},
               {"task_number":2,"command":"tr","input_from_task":1,"stream":true},
               {"task_number":3,"command":"sort","input_from_task":2}"#,
        );
        let stages = stages(&plan, &json!({"f": "a b"})).unwrap();
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
    }

    #[test]
    fn progress_counts_tasks_and_names_the_first_that_runs() {
        let plan = plan(
            r#"{"task_number":1,"command":"cat"},
               {"task_number":2,"command":"tr","input_from_task":1},
               {"task_number":3,"command":"tr","input_from_task":2,"stream":true},
               {"task_number":4,"command":"sort","input_from_task":3}"#,
        );
        let stages = stages(&plan, &json!({})).unwrap();
        let at = |stage| Progress::at(&stages, stage).map(|now| (now.current_task, now.percent));
        assert_eq!([at(0), at(1), at(2)], [Some((1, 0.0)), Some((2, 25.0)), Some((4, 75.0))]);
        assert_eq!(at(3), None);
    }

    #[test]
    fn a_trace_is_told_to_every_process_and_a_task_that_sets_it_wins() {
        let plan = plan(
            r#"{"task_number":1,"command":"env"},
               {"task_number":2,"command":"env","env":{"TRACEPARENT":"own"}}"#,
        );
        let mut stages = stages(&plan, &json!({})).unwrap();
        tell_trace(&mut stages, "00-t-p-01");
        let trace = |at: usize| {
            stages[at].commands[0].env.iter().map(|(_, value)| value.as_str()).collect::<Vec<_>>()
        };
        assert_eq!(
            [trace(0), trace(1)],
            [vec!["00-t-p-01"], vec!["00-t-p-01", "own"]],
            "the last of a name is used"
        );
    }

    #[test]
    fn a_missing_field_is_an_error() {
        assert!(
            stages(&plan(r#"{"task_number":1,"command":"cat","stdin":"{{input.f}}"}"#), &json!({})).is_err()
        );
    }
}
