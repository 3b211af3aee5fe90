//! What becomes of a job that has ended: its output, its line in the joblog, its files.

use std::{io::Write, path::PathBuf};

use agenix_protocol::{
    documents::{JobStatus, Status, Task, TaskResult},
    template,
};
use serde_json::value::RawValue;

use super::{
    feed::Input,
    joblog::{Entry, JobLog},
    results_dir,
};
use crate::{failure::Failure, output::Output, progress::Line, setbacks::MOST_TOLD};

/// Programs whose exit code 1 says that nothing was found (POSIX, grep).
const SEARCHERS: [&str; 7] = ["grep", "egrep", "fgrep", "zgrep", "bzgrep", "xzgrep", "rg"];

/// Where results go.
pub(crate) struct Delivery {
    pub(crate) output: Output,
    /// Lines begin with their input.
    pub(crate) tags: bool,
    pub(crate) joblog: Option<JobLog>,
    pub(crate) results: Option<PathBuf>,
    /// What each job runs.
    pub(crate) tasks: Vec<Task>,
    /// Whether the workers are on this machine.
    pub(crate) is_local: bool,
    /// How many failures were told.
    pub(crate) told: u64,
}

impl Delivery {
    /// Delivers a job. Whether it went well.
    pub(crate) fn deliver(&mut self, job: &JobStatus, input: &Input, line: &Line) -> Result<bool, Failure> {
        let results = job.results();
        // A job that failed half-way has written nothing yet.
        let last = results.last().filter(|last| last.task_number as usize == self.tasks.len());
        let stdout = last.map_or(&[][..], |last| &last.stdout.bytes);
        let stderr: Vec<u8> = results.iter().flat_map(|result| &result.stderr.bytes).copied().collect();
        line.aside(|| self.print(job, input, stdout, &stderr))?;
        if let Some(dir) = &self.results {
            let args = if input.block.is_some() { vec![input.seq.to_string()] } else { input.args.clone() };
            results_dir::write(dir, &args, input.seq, stdout, &stderr)?;
        }
        self.log(job, input, &results)?;
        let trouble = trouble(job, &results, self.tasks.last());
        if let Some(what) = &trouble
            && job.status != Status::Cancelled
        {
            line.aside(|| self.tell(input, what));
        }
        Ok(trouble.is_none())
    }

    fn print(&self, job: &JobStatus, input: &Input, stdout: &[u8], stderr: &[u8]) -> Result<(), Failure> {
        if self.output.is_json {
            return self.output.show("action.result", job, |_| String::new());
        }
        let tag = self.tags.then(|| input.args.join(" ") + "\t");
        self.output.raw(&tagged(stdout, tag.as_deref()))?;
        self.output.flush()?;
        // Whether anyone reads stderr is not ours to judge.
        let _unread = std::io::stderr().lock().write_all(&tagged(stderr, tag.as_deref()));
        Ok(())
    }

    fn tell(&mut self, input: &Input, what: &str) {
        self.told += 1;
        let named =
            if input.block.is_some() { String::new() } else { format!(" ({})", input.args.join(" ")) };
        if self.told <= MOST_TOLD as u64 {
            self.output.note(&format!("agx: job {}{named}: {what}", input.seq));
        }
        if self.told == MOST_TOLD as u64 {
            self.output.note("agx: further failures are counted, and not told one by one");
        }
    }

    fn log(&mut self, job: &JobStatus, input: &Input, results: &[TaskResult]) -> Result<(), Failure> {
        let Some(log) = &mut self.joblog else { return Ok(()) };
        let blamed = TaskResult::blamed(results).or(results.last());
        let (exit_code, signal) = match blamed {
            Some(result) if result.timed_out => (-1, result.signal.unwrap_or(15)),
            Some(TaskResult { signal: Some(signal), .. }) => (0, *signal),
            Some(result) => (result.exit_code, 0),
            None => (if job.status == Status::Completed { 0 } else { -1 }, 0),
        };
        let millis = results.iter().map(|result| result.duration_ms).max().unwrap_or_default();
        #[expect(clippy::cast_precision_loss, reason = "seconds for people")]
        let (started, runtime) =
            (job.started_at.map_or(0.0, |at| at.0 as f64 / 1000.0), millis as f64 / 1000.0);
        log.add(&Entry {
            seq: input.seq,
            host: if self.is_local { ":" } else { job.worker_id.as_deref().unwrap_or("-") },
            started,
            runtime,
            receive: results.last().map_or(0, |last| last.stdout.total),
            exit_code,
            signal,
            command: &agenix_shell::render(&filled(&self.tasks, job.inputs.get())),
        })
    }
}

/// The tasks with an input put in.
pub(crate) fn filled(tasks: &[Task], input: &str) -> Vec<Task> {
    let input = serde_json::from_str::<&RawValue>(input).unwrap_or(RawValue::NULL);
    let fill = |text: &String| template::fill(text, input).unwrap_or_else(|_| text.clone());
    let filled = |task: &Task| Task {
        args: task.args.iter().map(fill).collect(),
        env: task.env.iter().map(|(name, value)| (name.clone(), fill(value))).collect(),
        stdin_file: task.stdin_file.as_ref().map(fill),
        stdout: task.stdout.as_ref().map(fill),
        stderr: task.stderr.as_ref().map(fill),
        ..task.clone()
    };
    tasks.iter().map(filled).collect()
}

/// What is wrong with a job that has ended, if anything is. `last` is the task whose stdout is the job's.
fn trouble(job: &JobStatus, results: &[TaskResult], last: Option<&Task>) -> Option<String> {
    if job.status != Status::Completed {
        return Some(match TaskResult::blamed(results) {
            Some(result) if result.timed_out => format!("{} took too long and was ended", result.command),
            Some(TaskResult { command, signal: Some(signal), .. }) => {
                format!("{command} was ended by signal {signal}")
            }
            Some(result) if result.exit_code == 1 && SEARCHERS.contains(&result.command.as_str()) => {
                format!("{} exited with code 1: nothing was found", result.command)
            }
            Some(result) => format!("{} exited with code {}", result.command, result.exit_code),
            None => job.error.clone().unwrap_or_else(|| job.status.as_str().into()),
        });
    }
    let kept = &results.last()?.stdout;
    (kept.is_truncated() && last.is_some_and(|task| task.stdout.is_none())).then(|| {
        format!(
            "only {} of {} bytes of its output were kept; write it to a file instead: … > {{#}}.out",
            kept.bytes.len(),
            kept.total
        )
    })
}

/// The bytes, each line of them behind the tag.
fn tagged(bytes: &[u8], tag: Option<&str>) -> Vec<u8> {
    let Some(tag) = tag else { return bytes.to_vec() };
    bytes.split_inclusive(|&byte| byte == b'\n').flat_map(|line| [tag.as_bytes(), line].concat()).collect()
}

#[cfg(test)]
mod tests {
    use super::tagged;

    #[test]
    fn every_line_bears_its_tag() {
        assert_eq!(tagged(b"a\nb", Some("x\t")), b"x\ta\nx\tb");
        assert_eq!(tagged(b"", Some("x\t")), b"");
        assert_eq!(tagged(b"a\n", None), b"a\n");
    }
}
