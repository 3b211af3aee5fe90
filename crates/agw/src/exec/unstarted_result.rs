//! Results of tasks without a known end: most of them were not started.

use std::io;

use agenix_protocol::{
    byte_escape::decode,
    documents::{CapturedOutput, TaskResult},
};

use crate::exec::{resource_wait::Unstarted, stages::StageCommand};

/// Returns the result of a task that could not be started, with the exit code of a shell.
pub(super) fn not_started(command: &StageCommand, unstarted: &Unstarted) -> TaskResult {
    let number = command.task_number;
    let (text, exit_code, timed_out) = match unstarted {
        Unstarted::Failed(error) => {
            let exit_code = if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 };
            (format!("agw: task {number} could not be started: {error}\n"), exit_code, false)
        }
        Unstarted::Stopped => (format!("agw: task {number} was stopped before its start\n"), 126, false),
        Unstarted::TimedOut(error) => {
            (format!("agw: task {number} could not be started within its timeout: {error}\n"), 126, true)
        }
    };
    TaskResult { exit_code, timed_out, ..without_end(command, &text) }
}

/// Returns the result of a task that has started, and whose end the worker has not seen.
pub(super) fn end_unknown(command: &StageCommand, error: &io::Error) -> TaskResult {
    let text = format!("agw: the end of task {} is unknown: {error}\n", command.task_number);
    TaskResult { exit_code: 126, ..without_end(command, &text) }
}

/// Returns the result of a command that was not started because the output of the job exceeded the
/// quota.
pub(super) fn excessive(command: &StageCommand, task_number: u32, text: &str) -> TaskResult {
    TaskResult { exit_code: 1, ..without_end(command, &of_excess(task_number, text)) }
}

fn without_end(command: &StageCommand, text: &str) -> TaskResult {
    TaskResult {
        task_number: command.task_number,
        command: command.program.clone(),
        // The text may name a file of the job.
        stderr: CapturedOutput::whole(decode(text).into_owned()),
        ..TaskResult::default()
    }
}

/// Returns the line about a job whose processes were ended because of an excess.
pub(super) fn of_excess(task_number: u32, text: &str) -> String {
    format!("agw: task {task_number} was ended: {text}\n")
}
