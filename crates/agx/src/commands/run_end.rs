//! End of the job of `agx run`: the exit code of its command, and the reason of a failure.

use agenix_protocol::documents::{JobStatus, Status, TaskResult};

use crate::{
    error::{CliError, Result},
    output::OutputFormat,
    sandbox::denial,
};

/// Exit code of a command that has exceeded its time limit, as of timeout(1).
const TIMED_OUT: u8 = 124;
/// Exit code if agx itself fails, or cannot determine how the command ended, as of env(1).
pub(super) const UNKNOWN: u8 = 125;

/// Returns the error of a job that did not complete, with the exit code of its command.
pub(super) fn ended(job: &JobStatus, output: OutputFormat) -> Result<()> {
    if output.is_json {
        output.show("job.status", job, |_| String::new())?;
    }
    if job.status == Status::Completed {
        return Ok(());
    }
    Err(failure(job))
}

/// Returns the error of a job that did not complete, with an exit code other than 0.
fn failure(job: &JobStatus) -> CliError {
    let results = job.results();
    let unknown = || format!("job {} {}", job.job_id, job.status.as_str());
    let why = job.error.clone().unwrap_or_else(unknown);
    match decisive(&results) {
        Some(result) => {
            // The job names the task that caused the failure, which may be another one.
            let cause = TaskResult::blamed(&results).unwrap_or(result);
            CliError::Command { exit_code: exit_code(result), why: explained(cause, why) }
        }
        // For example, a limit of a signed order ended a task, which exited with 0.
        None => CliError::Command { exit_code: UNKNOWN, why: Some(why) },
    }
}

/// Returns the result whose exit code is that of a pipeline in a shell: the last failure. A timeout
/// comes first, because it also ends the other tasks.
fn decisive(results: &[TaskResult]) -> Option<&TaskResult> {
    let failures = || results.iter().filter(|result| result.is_failure());
    failures().find(|result| result.timed_out).or_else(|| failures().next_back())
}

fn exit_code(result: &TaskResult) -> u8 {
    if result.timed_out {
        return TIMED_OUT;
    }
    u8::try_from(result.exit_code).unwrap_or(UNKNOWN)
}

/// Returns the reason of a failure that the exit code does not show.
fn explained(result: &TaskResult, why: String) -> Option<String> {
    let ended = (result.timed_out || result.signal.is_some()).then_some(why);
    let denied = denial(result).map(|denied| format!("sandbox: {denied}"));
    let reasons: Vec<String> = ended.into_iter().chain(denied).collect();
    (!reasons.is_empty()).then(|| reasons.join("; "))
}

#[cfg(test)]
mod tests {
    use agenix_protocol::documents::{JobStatus, TaskResult, TaskSandbox, parse};

    use super::{decisive, exit_code, explained, failure};

    #[test]
    fn run_exits_with_the_code_of_the_command() {
        let ended = |exit_code, signal, timed_out| TaskResult {
            exit_code,
            signal,
            timed_out,
            ..TaskResult::default()
        };
        let code = |result: &TaskResult| (exit_code(result), explained(result, "why".into()).is_some());
        assert_eq!(code(&ended(3, None, false)), (3, false));
        assert_eq!(code(&ended(137, Some(9), false)), (137, true));
        assert_eq!(code(&ended(143, Some(15), true)), (124, true));
        assert_eq!(code(&ended(-1, None, false)), (125, false));
    }

    #[test]
    fn run_exits_with_the_code_of_the_last_command_that_failed() {
        let ended = |exit_code| TaskResult { exit_code, ..TaskResult::default() };
        let code = |results: &[TaskResult]| decisive(results).map(exit_code);
        assert_eq!(code(&[ended(3), ended(4), ended(0)]), Some(4));
        let closed = TaskResult { signal: Some(13), ..ended(141) };
        assert_eq!(code(&[ended(3), closed, ended(0)]), Some(141), "SIGPIPE counts as in a shell");
        let ignored = TaskResult { ignored: true, ..ended(5) };
        assert_eq!(code(&[ended(3), ignored.clone()]), Some(3));
        let late = TaskResult { timed_out: true, ..ended(143) };
        assert_eq!(code(&[late, ended(4)]), Some(124));
        assert_eq!(code(&[ended(0), ignored]), None);
    }

    #[test]
    fn run_of_a_failed_job_without_a_failed_task_exits_with_125() {
        let json = serde_json::json!({
            "job_id": "j", "action_id": "a", "plan_id": "p", "status": "failed", "state": "discarded", "index": 0,
            "attempt": 1, "queue": "ready", "priority": 0, "created_at": "2026-01-31T08:00:00.000Z",
            "started_at": null, "completed_at": null, "worker_id": "w", "error": "it took too long", "inputs": {},
            "task_results": [{"task_number": 1, "command": "sort", "exit_code": 0}],
        });
        let job: JobStatus = parse(json.to_string().as_bytes()).unwrap();
        let failure = failure(&job);
        assert_eq!((failure.exit_code(), failure.to_string().as_str()), (125, "it took too long"));
    }

    #[test]
    fn run_explains_what_the_sandbox_denied() {
        let sandbox = TaskSandbox { denied: vec!["it read /x".into()], ..TaskSandbox::default() };
        let denied = TaskResult { exit_code: 1, sandbox: Some(sandbox), ..TaskResult::default() };
        assert_eq!(explained(&denied, "why".into()).unwrap(), "sandbox: it read /x");
        let killed = TaskResult { signal: Some(31), ..denied };
        assert_eq!(explained(&killed, "why".into()).unwrap(), "why; sandbox: it read /x");
    }
}
