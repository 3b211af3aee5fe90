//! Delivers the result of an ended job: output, line in the joblog, files of `--results`.

use std::path::PathBuf;

use agenix_protocol::{
    blob::OutputStream,
    documents::{JobStatus, Status, Task, TaskResult},
    ids::JobId,
};
use serde_json::json;

use crate::{
    error::Result,
    map::{
        columns::Columns,
        command_template::filled,
        input::{InvalidInput, MapInput},
        joblog::JobLogEntry,
        large_output::{JobStreams, has_blobs},
        printer::{Printer, StreamedOutput},
        reorder_buffer::JobOutputText,
        results_dir,
        tag::{Tagger, tag_of},
    },
    output::{OutputFormat, SCHEMA},
    remote::retrying_client::RetryingClient,
    sandbox::denial,
    util::shorten::shortened,
    watch::{failures::MAX_REPORTED, progress::ProgressLine},
};

/// Programs whose exit code 1 means that nothing was found (POSIX, grep).
const SEARCHERS: [&str; 7] = ["grep", "egrep", "fgrep", "zgrep", "bzgrep", "xzgrep", "rg"];

pub(crate) struct Delivery {
    pub(crate) output: OutputFormat,
    pub(crate) printer: Printer,
    /// True if each line begins with the input (`--tag`).
    pub(crate) tags: bool,
    pub(crate) results: Option<PathBuf>,
    /// Columns that name the directories of the results.
    pub(crate) columns: Columns,
    /// Tasks of each job.
    pub(crate) tasks: Vec<Task>,
    /// True if agq and its worker belong to this map.
    pub(crate) is_local: bool,
    /// Latest delivered job with large outputs.
    pub(crate) latest_large: Option<JobId>,
    /// Number of failures that were reported.
    pub(crate) reported: u64,
}

impl Delivery {
    /// Delivers the result of job `at`. Returns whether the job and its delivery succeeded.
    /// `unread` is the reason for which its live output is incomplete, if it is.
    pub(crate) async fn deliver(
        &mut self,
        at: u64,
        (job, unread): (&JobStatus, Option<String>),
        input: &MapInput,
        line: &ProgressLine,
        agq: &mut RetryingClient,
    ) -> Result<bool> {
        if job.status == Status::Cancelled {
            // A cancelled job has no result, and a later run with --resume runs its input again.
            self.printer.print(at, JobOutputText::default(), line)?;
            return Ok(false);
        }
        let results = job.results();
        // A job that failed half-way has written nothing yet.
        let last = results.last().filter(|last| last.task_number as usize == self.tasks.len());
        let streams = JobStreams::of(&results, last);
        let failure = failure_text(job, &results, self.tasks.last()).or(unread);
        let trouble = if streams.are_large() {
            let (printed, kept) = self.deliver_chunks(at, (job, input), &streams, line, agq).await?;
            let trouble = failure.or(kept.err());
            let log_line = self.log_line(job, input, &results, trouble.is_none());
            self.printer.end(&printed, &log_line, line)?;
            trouble
        } else {
            let stdout = last.map_or(&[][..], |last| &last.stdout.bytes);
            let stderr: Vec<u8> = results.iter().flat_map(|result| &result.stderr.bytes).copied().collect();
            let trouble = failure.or(self.keep(input, stdout, &stderr).err());
            let log_line = self.log_line(job, input, &results, trouble.is_none());
            let text = JobOutputText { log_line, ..self.text(job, input, stdout, &stderr) };
            self.printer.print(at, text, line)?;
            trouble
        };
        if let Some(reason) = &trouble {
            line.aside(|| self.report_failure(input.seq, &named(input), reason));
        }
        if self.is_local && has_blobs(&results) {
            self.forget_before(job, agq).await;
        }
        Ok(trouble.is_none())
    }

    /// Removes the delivered job with large outputs before `job` from agq, which frees its disk.
    /// The latest delivered job stays, because agq would remove an action with its last job.
    async fn forget_before(&mut self, job: &JobStatus, agq: &mut RetryingClient) {
        let Some(delivered) = self.latest_large.replace(job.job_id.clone()) else { return };
        let forgotten = agq.with_retry(async |agq| agq.forget_job(&delivered).await).await;
        // agq may have removed the job already, because it keeps a limited number of ended jobs.
        drop(forgotten);
    }

    /// Fetches the output of a job in chunks, prints it, and writes it to the files of --results.
    /// Returns the printed output, which has not ended. The inner error is the reason for which the
    /// job counts as failed.
    async fn deliver_chunks(
        &mut self,
        at: u64,
        (job, input): (&JobStatus, &MapInput),
        streams: &JobStreams<'_>,
        line: &ProgressLine,
        agq: &mut RetryingClient,
    ) -> Result<(StreamedOutput, Result<(), String>)> {
        let (mut files, mut failure) = (None, None);
        if let Some(dir) = &self.results {
            match results_dir::begin(dir, &self.labelled(input)) {
                Ok(begun) => files = Some(begun),
                Err(error) => failure = Some(error.to_string()),
            }
        }
        let tag = self.tags.then(|| tag_of(input));
        let mut taggers = [OutputStream::Stdout, OutputStream::Stderr]
            .map(|stream| Tagger::new(tag.as_deref(), self.output.escapes(stream)));
        let (printer, is_json) = (&mut self.printer, self.output.is_json);
        // Without files, neither a document nor printed output needs the bytes.
        let is_needed = self.results.is_some() || !(is_json || printer.is_silent());
        let mut printed = printer.begin(at);
        let mut stopped = None;
        if is_json {
            printer.print_chunk(&mut printed, OutputStream::Stdout, &document(job), line)?;
        }
        let take = |stream, chunk: &[u8]| {
            if let Some(begun) = &mut files
                && let Err(error) = begun.write(stream, chunk)
            {
                (failure, files) = (Some(error.to_string()), None);
            }
            if is_json {
                return Ok(());
            }
            let tagged = taggers[stream as usize].tagged(chunk);
            printer.print_chunk(&mut printed, stream, &tagged, line).inspect_err(|_| stopped = Some(()))
        };
        let fetched = if is_needed { streams.fetch(agq, &job.job_id, take).await } else { Ok(()) };
        if let Err(error) = fetched {
            return if stopped.is_some() { Err(error) } else { Ok((printed, Err(error.to_string()))) };
        }
        let written = files.map_or(Ok(()), |files| files.finish(input.seq));
        Ok((printed, failure.map_or(Ok(()), Err).and(written.map_err(|error| error.to_string()))))
    }

    /// Returns the number of bytes of large output of job `at` if this output has to stay at agq
    /// until its turn: agx has no room for it, or would only copy it on the disk of this machine,
    /// and the output has not waited long (`has_waited`).
    pub(crate) fn bytes_that_wait(&self, at: u64, job: &JobStatus, has_waited: bool) -> Option<u64> {
        let is_copied = self.is_local && self.results.is_none() && !has_waited;
        if self.printer.is_turn_of(at) || !(is_copied || self.printer.is_full()) {
            return None;
        }
        let results = job.results();
        let streams = JobStreams::of(&results, results.last());
        streams.are_large().then(|| streams.bytes())
    }

    /// Reports an input that no job can have.
    pub(crate) fn unfit(&mut self, unfit: &InvalidInput, line: &ProgressLine) {
        line.aside(|| self.report_failure(unfit.seq, "", &unfit.why));
    }

    /// Reports a job that has ended with an unknown result.
    pub(crate) fn lost(&mut self, at: u64, input: &MapInput, line: &ProgressLine) -> Result<()> {
        let why = "its result is lost: agq removed it before agx fetched it";
        line.aside(|| self.report_failure(input.seq, &named(input), why));
        self.printer.print(at, JobOutputText::default(), line)
    }

    /// Writes the files of --results.
    fn keep(&self, input: &MapInput, stdout: &[u8], stderr: &[u8]) -> Result<(), String> {
        let Some(dir) = &self.results else { return Ok(()) };
        let write = || {
            let mut files = results_dir::begin(dir, &self.labelled(input))?;
            files.write(OutputStream::Stdout, stdout)?;
            files.write(OutputStream::Stderr, stderr)?;
            files.finish(input.seq)
        };
        write().map_err(|error| error.to_string())
    }

    /// Returns the values that name the directory of a job, with their labels.
    fn labelled(&self, input: &MapInput) -> Vec<(String, String)> {
        if input.block.is_some() {
            self.columns.labelled(&[input.seq.to_string()])
        } else {
            self.columns.labelled(&input.args)
        }
    }

    /// Returns the text that agx prints for a job.
    fn text(&self, job: &JobStatus, input: &MapInput, stdout: &[u8], stderr: &[u8]) -> JobOutputText {
        if self.output.is_json {
            return JobOutputText { stdout: document(job), ..JobOutputText::default() };
        }
        let tag = self.tags.then(|| tag_of(input));
        let tagged = |stream, bytes| {
            Tagger::new(tag.as_deref(), self.output.escapes(stream)).tagged(bytes).into_owned()
        };
        JobOutputText {
            stdout: tagged(OutputStream::Stdout, stdout),
            stderr: tagged(OutputStream::Stderr, stderr),
            log_line: Vec::new(),
        }
    }

    fn report_failure(&mut self, seq: u64, named: &str, reason: &str) {
        self.reported += 1;
        if self.reported <= MAX_REPORTED as u64 {
            self.output.note(&format!("agx: job {seq}{named}: {reason}"));
        }
        if self.reported == MAX_REPORTED as u64 {
            self.output.note("agx: further failures are counted, but not listed");
        }
    }

    /// Returns the line of a job in the joblog, or no bytes without a joblog.
    fn log_line(
        &self,
        job: &JobStatus,
        input: &MapInput,
        results: &[TaskResult],
        went_well: bool,
    ) -> Vec<u8> {
        if !self.printer.has_joblog() {
            return Vec::new();
        }
        let (exit_code, signal) = exit_of(results, went_well);
        let millis = results.iter().map(|result| result.duration_ms).max().unwrap_or_default();
        #[expect(clippy::cast_precision_loss, reason = "seconds for people")]
        let (started, runtime) =
            (job.started_at.map_or(0.0, |at| at.0 as f64 / 1000.0), millis as f64 / 1000.0);
        let entry = JobLogEntry {
            seq: input.seq,
            host: if self.is_local { ":" } else { job.worker_id.as_deref().unwrap_or("-") },
            started,
            runtime,
            receive: results.last().map_or(0, |last| last.stdout.total),
            exit_code,
            signal,
            command: &agenix_shell::render(&filled(&self.tasks, job.inputs.get())),
        };
        entry.line()
    }
}

/// Returns the text that identifies `input` in messages.
fn named(input: &MapInput) -> String {
    if input.block.is_some() { String::new() } else { format!(" ({})", shortened(&input.args.join(" "))) }
}

/// Returns the exit code and the signal of a job for the joblog. A failed job never has 0 for both.
fn exit_of(results: &[TaskResult], went_well: bool) -> (i32, i32) {
    match TaskResult::blamed(results).or(results.last()) {
        _ if went_well => (0, 0),
        Some(result) if result.timed_out => (-1, result.signal.unwrap_or(15)),
        Some(TaskResult { signal: Some(signal), .. }) => (0, *signal),
        Some(result) if result.exit_code != 0 => (result.exit_code, 0),
        _ => (-1, 0),
    }
}

/// Returns the failure of an ended job. `last` is the task whose stdout is the job's.
fn failure_text(job: &JobStatus, results: &[TaskResult], last: Option<&Task>) -> Option<String> {
    if job.status != Status::Completed {
        let blamed = TaskResult::blamed(results);
        let text = match blamed {
            Some(result) if result.idle_timed_out => format!("{} wrote nothing for too long", result.command),
            Some(result) if result.timed_out => format!("{} timed out", result.command),
            Some(TaskResult { command, signal: Some(signal), .. }) => {
                format!("{command} was ended by signal {signal}")
            }
            Some(result) if result.exit_code == 1 && SEARCHERS.contains(&result.command.as_str()) => {
                format!("{} exited with code 1: nothing was found", result.command)
            }
            Some(result) => format!("{} exited with code {}", result.command, result.exit_code),
            None => job.error.clone().unwrap_or_else(|| job.status.as_str().into()),
        };
        let denied = blamed.and_then(denial).map(|denied| format!("; sandbox: {denied}"));
        return Some(text + &denied.unwrap_or_default());
    }
    let kept = &results.last()?.stdout;
    (kept.is_cut() && last.is_some_and(|task| task.stdout.is_none())).then(|| {
        format!(
            "only {} of {} bytes of its output were kept; write it to a file instead: … > {{#}}.out",
            kept.bytes.len(),
            kept.total
        )
    })
}

/// Returns the document of an ended job, on one line.
fn document(job: &JobStatus) -> Vec<u8> {
    let document = json!({"schema": SCHEMA, "kind": "action.result", "data": job});
    format!("{document}\n").into_bytes()
}

#[cfg(test)]
mod tests {
    use agenix_protocol::documents::TaskResult;

    use super::exit_of;

    #[test]
    fn joblog_exit_code_of_a_failed_job_is_never_zero() {
        let ran = |exit_code, signal, timed_out| {
            vec![TaskResult { exit_code, signal, timed_out, ..TaskResult::default() }]
        };
        assert_eq!(exit_of(&ran(0, None, false), true), (0, 0));
        assert_eq!(exit_of(&ran(0, None, false), false), (-1, 0), "its output was cut");
        assert_eq!(exit_of(&[], false), (-1, 0), "its worker was lost");
        assert_eq!(exit_of(&ran(3, None, false), false), (3, 0));
        assert_eq!(exit_of(&ran(137, Some(9), false), false), (0, 9));
        assert_eq!(exit_of(&ran(143, Some(15), true), false), (-1, 15));
    }
}
