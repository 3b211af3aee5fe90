//! `agx_results`: results of jobs, page by page. A page is bounded in bytes, because the model has
//! to read it.

use std::fmt;

use agenix_protocol::{
    documents::{ActionStatus, JobStatus, Status, TaskResult, to_json},
    ids::{ActionId, JobId},
    printable::printable,
};
use futures_util::future::try_join_all;
use serde_json::Value;

use crate::{
    action,
    arguments::{MAX_RESULT_BYTES, ResultFilter, ResultsArguments},
    error::{Result, ToolError},
    program_text::{escape_end_within, escape_within},
    queue::Queue,
    reports::{JobReport, ResultPage},
};

/// Number of jobs that are read at a time. A job may have results of megabytes.
pub(super) const BATCH: usize = 16;

/// Maximum number of ids that are listed at a time. A list by status costs agq time for each job
/// before its offset, so few long lists are better than many short ones.
const MAX_LISTED: usize = 1000;

/// Smallest number of bytes that a job usually takes on a page.
const USUAL_JOB_BYTES: usize = 128;

/// Maximum number of bytes of the input and of the error of a job.
const MAX_TEXT_BYTES: usize = 512;

pub(crate) async fn run(queue: &Queue, arguments: ResultsArguments) -> Result<ResultPage> {
    let ResultsArguments { action_id, only, cursor, max_bytes, job_bytes } = arguments;
    let status = action::status(queue, &action_id).await?;
    page(queue, &status, only, cursor.as_deref(), (max_bytes, job_bytes)).await
}

/// Position in the jobs of an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cursor {
    jobs: ListedJobs,
    offset: usize,
}

/// Jobs that a cursor goes through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ListedJobs {
    /// All jobs, and `offset` is the position of the input.
    All,
    Failed,
    /// Jobs that failed after their retries, which follow those of [`Self::Failed`].
    Dead,
}

impl Cursor {
    fn first(filter: ResultFilter) -> Self {
        let jobs = match filter {
            ResultFilter::All => ListedJobs::All,
            ResultFilter::Failed => ListedJobs::Failed,
        };
        Self { jobs, offset: 0 }
    }

    fn parse(text: &str) -> Option<Self> {
        let (jobs, offset) = text.split_once(':')?;
        let jobs = match jobs {
            "all" => ListedJobs::All,
            "failed" => ListedJobs::Failed,
            "dead" => ListedJobs::Dead,
            _ => return None,
        };
        Some(Self { jobs, offset: offset.parse().ok()? })
    }

    /// Returns the number of positions that the cursor goes through.
    fn end(self, status: &ActionStatus) -> usize {
        let end = match self.jobs {
            ListedJobs::All => status.total_jobs,
            ListedJobs::Failed => status.failed,
            ListedJobs::Dead => status.dead,
        };
        usize::try_from(end).unwrap_or(usize::MAX)
    }

    /// Returns the position of a job, which is at `place` of the list from here.
    fn at(self, place: usize, job: &JobStatus) -> Self {
        let offset = match self.jobs {
            ListedJobs::All => usize::try_from(job.index).unwrap_or(usize::MAX),
            ListedJobs::Failed | ListedJobs::Dead => self.offset + place,
        };
        Self { offset, ..self }
    }

    /// Returns the position after `listed` jobs from here, of which agq has listed `length`. A list
    /// by status ends with a short list, also if it had more jobs before some were retried.
    fn after(self, length: usize, listed: usize, status: &ActionStatus) -> Self {
        let is_end = self.jobs != ListedJobs::All && length < listed;
        Self { offset: if is_end { self.end(status) } else { self.offset + listed }, ..self }
    }

    /// Returns the number of jobs before position `next` that agq has forgotten, of which a page
    /// from here has `shown`. Only a list of all jobs shows this number.
    fn forgotten_before(self, next: usize, shown: usize) -> Option<usize> {
        let forgotten = next.saturating_sub(self.offset).saturating_sub(shown);
        (self.jobs == ListedJobs::All && forgotten > 0).then_some(forgotten)
    }

    /// Returns the position after the last one, in the next list if there is one.
    fn after_list(self) -> Option<Self> {
        (self.jobs == ListedJobs::Failed).then_some(Self { jobs: ListedJobs::Dead, offset: 0 })
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let jobs = match self.jobs {
            ListedJobs::All => "all",
            ListedJobs::Failed => "failed",
            ListedJobs::Dead => "dead",
        };
        write!(f, "{jobs}:{}", self.offset)
    }
}

/// Returns the page from `cursor`, or the first one. `max_bytes` bounds the page, and `job_bytes`
/// the output of a job. A page has at least one job, if there is one.
pub(crate) async fn page(
    queue: &Queue,
    status: &ActionStatus,
    filter: ResultFilter,
    cursor: Option<&str>,
    (max_bytes, job_bytes): (usize, usize),
) -> Result<ResultPage> {
    let max_bytes = max_bytes.min(MAX_RESULT_BYTES);
    let job_bytes = job_bytes.min(max_bytes);
    let mut cursor = match cursor {
        None => Cursor::first(filter),
        Some(text) => Cursor::parse(text).ok_or_else(|| {
            ToolError::new(
                format!("cursor: {text} is no cursor of agx_results"),
                "take the cursor of the page before, or leave it out",
            )
        })?,
    };
    let (first, mut jobs, mut used) = (cursor, Vec::new(), 0);
    loop {
        if cursor.offset >= cursor.end(status) {
            match cursor.after_list() {
                Some(next) => cursor = next,
                None => {
                    let forgotten = first.forgotten_before(cursor.end(status), jobs.len());
                    return Ok(ResultPage { jobs, cursor: None, forgotten });
                }
            }
            continue;
        }
        let listed = (max_bytes.saturating_sub(used) / USUAL_JOB_BYTES + BATCH).min(MAX_LISTED);
        let ids = list(queue, status, (cursor, listed)).await?;
        for (batch, places) in ids.chunks(BATCH).zip((0..).step_by(BATCH)) {
            for (place, job) in (places..).zip(read(queue, batch).await?) {
                // A job that agq has forgotten meanwhile is left out, and counted.
                let Some(job) = job else { continue };
                let report = job_report(&job, job_bytes);
                let bytes = to_json(&report).len();
                if used + bytes > max_bytes && !jobs.is_empty() {
                    let next = cursor.at(place, &job);
                    let forgotten = first.forgotten_before(next.offset, jobs.len());
                    return Ok(ResultPage { jobs, cursor: Some(next.to_string()), forgotten });
                }
                used += bytes;
                jobs.push(report);
            }
        }
        cursor = cursor.after(ids.len(), listed, status);
    }
}

/// Returns the ids of the next jobs from a cursor, at most `limit`.
async fn list(queue: &Queue, status: &ActionStatus, (cursor, limit): (Cursor, usize)) -> Result<Vec<JobId>> {
    let (id, range) = (&status.action_id, (cursor.offset, limit));
    queue
        .call(|mut agq| async move {
            match cursor.jobs {
                ListedJobs::All => agq.jobs_from(id, cursor.offset, limit).await,
                ListedJobs::Failed => agq.jobs_with(id, Status::Failed, range).await,
                ListedJobs::Dead => agq.jobs_with(id, Status::Dead, range).await,
            }
        })
        .await
}

/// Returns the jobs of [`BATCH`] inputs of an action from the input at `from`. A job that agq has
/// forgotten is missing, or `None` if agq has forgotten it meanwhile.
pub(crate) async fn jobs_of(
    queue: &Queue,
    action_id: &ActionId,
    from: usize,
) -> Result<Vec<Option<JobStatus>>> {
    let ids = queue.call(|mut agq| async move { agq.jobs_from(action_id, from, BATCH).await }).await?;
    read(queue, &ids).await
}

async fn read(queue: &Queue, ids: &[JobId]) -> Result<Vec<Option<JobStatus>>> {
    let read = queue.call(|agq| async move {
        let one = |id| {
            let mut agq = agq.clone();
            async move { agq.job(id).await }
        };
        try_join_all(ids.iter().map(one)).await
    });
    read.await
}

/// Returns the report of a job, whose output takes at most `job_bytes`.
fn job_report(job: &JobStatus, job_bytes: usize) -> JobReport {
    let results = job.results();
    let mut report = JobReport { index: job.index, ..JobReport::default() };
    if let Some(last) = results.last() {
        let text = escape_within(&last.stdout.bytes, job_bytes);
        if (text.consumed as u64) < last.stdout.total {
            report.stdout_bytes = Some(last.stdout.total);
            report.job_id = Some(job.job_id.to_string());
        }
        report.stdout = text.text;
    }
    if job.status == Status::Completed {
        return report;
    }
    report.status = Some(job.status.as_str().to_owned());
    report.job_id = Some(job.job_id.to_string());
    report.error = job.error.as_deref().map(|error| escape_within(error.as_bytes(), MAX_TEXT_BYTES).text);
    report.input = shown_input(job.inputs.get());
    if let Some(blamed) = TaskResult::blamed(&results) {
        report.exit_code = Some(blamed.exit_code);
        report.stderr = escape_end_within(&blamed.stderr.bytes, job_bytes).text;
    }
    report
}

/// Returns the input of a job, or the beginning of its text if it is long.
fn shown_input(json: &str) -> Option<Value> {
    if json == "{}" {
        return None;
    }
    let read = (json.len() <= MAX_TEXT_BYTES).then(|| serde_json::from_str(json).ok()).flatten();
    let whole = read.map(with_printable_texts).filter(|value| value.to_string().len() <= MAX_TEXT_BYTES);
    Some(whole.unwrap_or_else(|| Value::String(escape_within(json.as_bytes(), MAX_TEXT_BYTES).text)))
}

/// Escapes the hidden characters in all texts and names of a value. In JSON, these characters may
/// have been escapes, which a client reads as the characters.
fn with_printable_texts(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(printable(&text)),
        Value::Array(items) => Value::Array(items.into_iter().map(with_printable_texts).collect()),
        Value::Object(fields) => {
            let printed = |(name, value): (String, Value)| (printable(&name), with_printable_texts(value));
            Value::Object(fields.into_iter().map(printed).collect())
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use agenix_protocol::documents::{JobStatus, parse, to_json};

    use super::{Cursor, ListedJobs, MAX_TEXT_BYTES, job_report, shown_input};

    fn job(status: &str, results: &str) -> JobStatus {
        let json = format!(
            r#"{{"job_id":"j","action_id":"a","plan_id":"p","status":"{status}","state":"any","index":7,
                "attempt":1,"queue":"ready","priority":0,"created_at":"2025-11-17T10:00:00.000Z",
                "started_at":null,"completed_at":null,"worker_id":"w","inputs":{{"line":"x"}},"task_results":{results}}}"#
        );
        parse(json.as_bytes()).unwrap()
    }

    #[test]
    fn report_of_a_success_is_short() {
        let done = job("completed", r#"[{"task_number":1,"command":"wc","exit_code":0,"stdout":"3\n"}]"#);
        assert_eq!(to_json(&job_report(&done, 100)), r#"{"index":7,"stdout":"3\n"}"#);
    }

    #[test]
    fn report_of_a_long_output_says_where_the_rest_is() {
        let done = job("completed", r#"[{"task_number":1,"command":"wc","exit_code":0,"stdout":"12345"}]"#);
        let json = to_json(&job_report(&done, 3));
        assert_eq!(json, r#"{"index":7,"stdout":"123","stdout_bytes":5,"job_id":"j"}"#);
    }

    #[test]
    fn report_of_a_failure_has_its_input_and_the_end_of_stderr() {
        let results =
            r#"[{"task_number":1,"command":"sh","exit_code":3,"stderr":"a long story\u001b[2J end"}]"#;
        let json = to_json(&job_report(&job("failed", results), 12));
        let expected = r#"{"index":7,"status":"failed","stderr":"\\x1b[2J end","exit_code":3,"input":{"line":"x"},"job_id":"j"}"#;
        assert_eq!(json, expected);
    }

    #[test]
    fn input_is_shown_without_hidden_characters() {
        let shown = |json: &str| to_json(&shown_input(json).unwrap());
        let expected = r#"{"line":"x\\u202eexe"}"#;
        assert_eq!(shown("{\"line\":\"x\u{202e}exe\"}"), expected);
        assert_eq!(shown(r#"{"line":"x\u202eexe"}"#), expected);
        let expected = r#"{"a\\x1b":["🙂\\udb40\\udc41",7,null]}"#;
        assert_eq!(shown(r#"{"a\u001b":["🙂\udb40\udc41",7,null]}"#), expected);
        let long = format!(r#"{{"line":"{}"}}"#, "\u{202e}".repeat(MAX_TEXT_BYTES / 4));
        let shown = shown_input(&long).unwrap().to_string();
        assert!(!shown.contains('\u{202e}') && shown.len() <= MAX_TEXT_BYTES + 2, "{shown}");
    }

    #[test]
    fn page_counts_the_jobs_that_are_forgotten() {
        let forgotten = |cursor: &str, next, shown| {
            Cursor::parse(cursor).and_then(|cursor| cursor.forgotten_before(next, shown))
        };
        assert_eq!(forgotten("all:0", 40, 40), None);
        assert_eq!(forgotten("all:0", 40, 30), Some(10));
        assert_eq!(forgotten("all:20", 40, 19), Some(1));
        assert_eq!(forgotten("all:50", 40, 0), None, "the action has no input from there");
        assert_eq!(forgotten("failed:0", 40, 30), None, "jobs leave this list when they run again");
    }

    #[test]
    fn cursor_is_read_as_it_was_written() {
        for text in ["all:0", "failed:40", "dead:1"] {
            assert_eq!(Cursor::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(Cursor::parse("all:7"), Some(Cursor { jobs: ListedJobs::All, offset: 7 }));
        assert!(["", "all", "all:", "all:-1", "some:1"].iter().all(|text| Cursor::parse(text).is_none()));
    }
}
