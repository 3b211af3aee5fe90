//! `agx policy`

use std::path::{Path, PathBuf};

use agenix_policy::{Access, Decision, FailedExample, Finding, Judgement, Policy, TaskJudgement};
use agenix_protocol::{documents::Task, printable::one_line};
use clap::Subcommand;

use super::read;
use crate::{
    docs_url::docs_url,
    documents::PolicyChecked,
    error::{CliError, Result},
    output::{OutputFormat, counted},
};

#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// Check a policy and its examples
    Check {
        /// Policy in TOML; - reads stdin
        file: PathBuf,
    },
    /// Judge one command, and list the files that it would read and write; nothing runs
    Test {
        /// Policy in TOML; - reads stdin
        file: PathBuf,
        /// Program and its arguments, which may have placeholders of plans
        #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
        command: Vec<String>,
    },
}

pub(crate) fn run(command: &PolicyCommand, output: OutputFormat) -> Result<()> {
    match command {
        PolicyCommand::Check { file } => check(file, output),
        PolicyCommand::Test { file, command } => test(file, command, output),
    }
}

/// Reads and parses the policy in `file`.
pub(super) fn read_policy(file: &Path) -> Result<Policy> {
    let wrong = |reason: String| {
        let problem = format!("{}: {}", file.display(), reason.trim_end());
        let help = concat!("fix the policy, whose form is described in ", docs_url!("policy.md"));
        CliError::Marked { problem, help: help.into() }
    };
    let text = String::from_utf8(read(file)?).map_err(|_bytes| wrong("the policy is not UTF-8".into()))?;
    Policy::parse(&text).map_err(|error| wrong(error.to_string()))
}

fn check(file: &Path, output: OutputFormat) -> Result<()> {
    let policy = read_policy(file)?;
    let failed = policy.failed_examples();
    if !failed.is_empty() {
        let lines: Vec<String> = failed.iter().map(failed_line).collect();
        return Err(CliError::Marked {
            problem: format!("{}: {}", file.display(), lines.join("\n")),
            help: "fix the grammar of the tool, or move the example to the other list".into(),
        });
    }
    let found = PolicyChecked {
        valid: true,
        tools: policy.tools().into_iter().map(String::from).collect(),
        examples: policy.examples().len(),
    };
    output.show("policy.check", &found, |found| {
        let tools = counted(found.tools.len() as u64, "tool", "tools");
        let examples = counted(found.examples as u64, "example", "examples");
        format!("the policy is valid: {tools}, {examples}")
    })
}

/// Returns the line of an example that the policy judges wrongly.
fn failed_line(example: &FailedExample) -> String {
    let command = shown(&example.tool, &example.args);
    let decision = example.decision.word();
    let reason = example.reason.iter().map(|reason| format!(": {reason}")).collect::<String>();
    format!("the example '{command}' of '{}' is {decision}{reason}", example.list)
}

fn test(file: &Path, command: &[String], output: OutputFormat) -> Result<()> {
    let policy = read_policy(file)?;
    let Some((program, args)) = command.split_first() else { return Ok(()) };
    let judged = policy.judge_argv(program, args);
    output.show("policy.test", &judged, |judged| task_text(judged, &shown(program, args)))?;
    allowed(judged.decision)
}

/// Returns an error, and with it exit code 1, unless `decision` allows the tasks.
pub(super) fn allowed(decision: Decision) -> Result<()> {
    match decision {
        Decision::Allow => Ok(()),
        Decision::Ask => Err(CliError::NotAllowed("the policy demands that a person approves")),
        Decision::Refuse => Err(CliError::NotAllowed("the policy refuses")),
    }
}

/// Returns the judgement of a plan as text for people.
pub(super) fn plan_text(judgement: &Judgement, tasks: &[Task]) -> String {
    let of_task = |(judged, task): (&TaskJudgement, &Task)| {
        format!("task {}: {}", judged.task_number, task_text(judged, &shown(&task.command, &task.args)))
    };
    let of_plan = judgement.findings.iter().map(finding_text);
    of_plan.chain(judgement.tasks.iter().zip(tasks).map(of_task)).collect::<Vec<_>>().join("\n")
}

/// Returns the judgement of one command as text for people.
fn task_text(judged: &TaskJudgement, command: &str) -> String {
    let rule = judged.rule.iter().map(|rule| format!(" by {rule}")).collect::<String>();
    let mut lines = vec![format!("{command}: {}{rule}", judged.decision.word())];
    lines.extend(judged.findings.iter().map(finding_text));
    lines.extend(judged.files.iter().map(|file| {
        let verb = match file.access {
            Access::Read => "reads",
            Access::Write => "writes",
            Access::WritePrefix => "writes files that begin with",
        };
        format!("  {verb} {} ({})", one_line(&file.path), file.place)
    }));
    lines.join("\n")
}

fn finding_text(finding: &Finding) -> String {
    let instead = finding.instead.iter().map(|instead| format!("\n    instead: {}", one_line(instead)));
    let instead = instead.collect::<String>();
    one_line(&format!("  {}: {}", finding.place, finding.reason)) + &instead
}

fn shown(command: &str, args: &[String]) -> String {
    agenix_shell::render(&[Task { command: command.to_owned(), args: args.to_vec(), ..Task::default() }])
}
