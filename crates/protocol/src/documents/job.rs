//! Jobs: one run of a plan on one input (AGQ API spec §3).

use base64::{Engine, engine::general_purpose::STANDARD as BASE64};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::ResourceUse;
use crate::{
    ids::{ActionId, JobId, PlanId, WorkerId},
    time::Timestamp,
};

/// Status of a job as RESP shows it (AGQ API spec §3, extended by `cancelled`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the names say it")]
pub enum Status {
    Pending,
    Running,
    Completed,
    Failed,
    Dead,
    Cancelled,
}

impl Status {
    /// Returns the word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Dead => "dead",
            Self::Cancelled => "cancelled",
        }
    }

    /// Parses the word on the wire.
    pub fn parse(word: &str) -> Option<Self> {
        let all = [Self::Pending, Self::Running, Self::Completed, Self::Failed, Self::Dead, Self::Cancelled];
        all.into_iter().find(|status| status.as_str() == word)
    }

    /// Returns true if a job of this status will not run again by itself.
    pub fn is_ended(self) -> bool {
        !matches!(self, Self::Pending | Self::Running)
    }
}

/// Job that `BRPOP queue:ready` gives a worker.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct JobDocument {
    /// The job.
    pub job_id: JobId,
    /// Action of the job.
    pub action_id: ActionId,
    /// Plan of the job.
    pub plan_id: PlanId,
    /// Document of the plan.
    pub plan: Box<RawValue>,
    /// Input of the job.
    pub inputs: Box<RawValue>,
    /// Number of this claim, from 1. An update with this number is refused for any other claim.
    pub attempt: u32,
    /// Trace of the job (`traceparent` of W3C Trace Context), if it was submitted with one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
}

/// Report of a worker with `JOB.UPDATE`. Unknown fields are ignored, because workers may have more.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct JobUpdate {
    /// `running`, `completed`, `failed`, or `cancelled` for an unstarted job. Left out to report
    /// progress only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
    /// Reporter, on a connection that has not named its worker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker_id: Option<WorkerId>,
    /// Number of the claim that the report is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// Start by the clock of the worker. agq uses its own clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// End by the clock of the worker. agq uses its own clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<Timestamp>,
    /// Failure by the clock of the worker. agq uses its own clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_at: Option<Timestamp>,
    /// Number of the running task, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current_task: Option<u32>,
    /// Progress, 0 to 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress_percent: Option<f32>,
    /// Reason of a failure, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Array of [`TaskResult`], stored as the worker sent it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_results: Option<Box<RawValue>>,
}

/// Result of one task.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TaskResult {
    /// Number of the task, from 1.
    pub task_number: u32,
    /// Command of the task.
    pub command: String,
    /// Exit code as in a shell: 128 + the signal that ended the task, or 127 if it could not be
    /// started.
    pub exit_code: i32,
    /// Signal that ended the task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// True if the timeout ended the task.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub timed_out: bool,
    /// True if the plan ignores the exit code, because the task streams into the next one
    /// (`pipefail`).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub ignored: bool,
    /// Captured stdout.
    #[serde(flatten, with = "stdout_fields")]
    #[schemars(with = "stdout_fields::Fields")]
    pub stdout: CapturedOutput,
    /// Captured stderr.
    #[serde(flatten, with = "stderr_fields")]
    #[schemars(with = "stderr_fields::Fields")]
    pub stderr: CapturedOutput,
    /// Run time, in milliseconds.
    pub duration_ms: u64,
    /// Use of the machine.
    #[serde(flatten)]
    pub resources: ResourceUse,
}

/// SIGPIPE, the signal that ends a task that writes to a closed pipe.
const SIGPIPE: i32 = 13;

impl TaskResult {
    /// Returns true if the task failed.
    pub fn is_failure(&self) -> bool {
        self.timed_out || (self.exit_code != 0 && !self.ignored)
    }

    /// Returns the result of the task that caused the failure of a job.
    ///
    /// A timeout comes first, because it also ends the tasks that stream into or from that task.
    /// Otherwise it is the first failure, except for a SIGPIPE that a later failure in a stream
    /// caused.
    pub fn blamed(results: &[Self]) -> Option<&Self> {
        let failures = || results.iter().filter(|result| result.is_failure());
        let late = failures().find(|result| result.timed_out);
        let own = || failures().find(|result| result.signal != Some(SIGPIPE));
        late.or_else(own).or_else(|| failures().next())
    }
}

/// Captured stream of a task. Bytes beyond a maximum are counted, and not stored.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CapturedOutput {
    /// First bytes of the stream.
    pub bytes: Vec<u8>,
    /// Number of all bytes of the stream.
    pub total: u64,
}

impl CapturedOutput {
    /// Returns true if the stream has more bytes than are stored.
    pub fn is_truncated(&self) -> bool {
        self.total > self.bytes.len() as u64
    }

    /// Truncates the stream to at most `cap` bytes. Text is cut between characters.
    pub fn truncate(&mut self, cap: usize) {
        if self.bytes.len() > cap {
            self.bytes.truncate(cap);
        }
        if !self.is_truncated() {
            return;
        }
        if let Err(error) = std::str::from_utf8(&self.bytes)
            && error.error_len().is_none()
        {
            self.bytes.truncate(error.valid_up_to());
        }
    }

    fn from_text(text: String, encoding: Option<&str>, total: Option<u64>) -> Result<Self, String> {
        let bytes = bytes_of(text, encoding)?;
        let total = total.unwrap_or(bytes.len() as u64);
        Ok(Self { bytes, total })
    }
}

/// Returns bytes as text for JSON, with the name of the encoding if they are not valid UTF-8.
pub(super) fn text_of(bytes: &[u8]) -> (String, Option<&'static str>) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (text.to_owned(), None),
        Err(_) => (BASE64.encode(bytes), Some("base64")),
    }
}

/// Decodes the text that [`text_of`] returns.
pub(super) fn bytes_of(text: String, encoding: Option<&str>) -> Result<Vec<u8>, String> {
    match encoding {
        None => Ok(text.into_bytes()),
        Some("base64") => BASE64.decode(text).map_err(|error| error.to_string()),
        Some(other) => Err(format!("unknown encoding '{other}', expected base64")),
    }
}

macro_rules! captured_output_fields {
    ($module:ident, $text:literal, $encoding:literal, $bytes:literal, $truncated:literal) => {
        mod $module {
            use schemars::JsonSchema;
            use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

            use super::{CapturedOutput, text_of};

            #[derive(Serialize, Deserialize, JsonSchema)]
            pub(super) struct Fields {
                #[serde(rename = $text, default)]
                text: String,
                #[serde(rename = $encoding, default, skip_serializing_if = "Option::is_none")]
                encoding: Option<String>,
                #[serde(rename = $bytes, default)]
                total: Option<u64>,
                #[serde(rename = $truncated, default, skip_serializing_if = "std::ops::Not::not")]
                truncated: bool,
            }

            pub(super) fn serialize<S: Serializer>(
                captured: &CapturedOutput,
                to: S,
            ) -> Result<S::Ok, S::Error> {
                let (text, encoding) = text_of(&captured.bytes);
                let encoding = encoding.map(str::to_owned);
                Fields { text, encoding, total: Some(captured.total), truncated: captured.is_truncated() }
                    .serialize(to)
            }

            pub(super) fn deserialize<'de, D: Deserializer<'de>>(
                from: D,
            ) -> Result<CapturedOutput, D::Error> {
                let fields = Fields::deserialize(from)?;
                CapturedOutput::from_text(fields.text, fields.encoding.as_deref(), fields.total)
                    .map_err(D::Error::custom)
            }
        }
    };
}

captured_output_fields!(stdout_fields, "stdout", "stdout_encoding", "stdout_bytes", "stdout_truncated");
captured_output_fields!(stderr_fields, "stderr", "stderr_encoding", "stderr_bytes", "stderr_truncated");

/// Answer of `JOB.STATUS`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct JobStatus {
    /// The job.
    pub job_id: JobId,
    /// Action of the job.
    pub action_id: ActionId,
    /// Plan of the job.
    pub plan_id: PlanId,
    /// Status of the job.
    pub status: Status,
    /// Stored state behind the status.
    pub state: String,
    /// Position of the input in the action, from 0.
    pub index: u64,
    /// Number of claims so far.
    pub attempt: u32,
    /// Queue of the job.
    pub queue: String,
    /// Priority, -100 to 100. Jobs of a higher one are claimed first.
    pub priority: i32,
    /// Time of the submission.
    pub created_at: Timestamp,
    /// Time at which a waiting job becomes available by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_at: Option<Timestamp>,
    /// Time of the last claim; null before the first.
    pub started_at: Option<Timestamp>,
    /// Time of the end; null until then.
    pub completed_at: Option<Timestamp>,
    /// Current or last worker.
    pub worker_id: Option<String>,
    /// Number of the running task, if the worker reported it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_task: Option<u32>,
    /// Progress, 0 to 100, if the worker reported it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress_percent: Option<f32>,
    /// Reason of the failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Input of the job.
    #[schemars(with = "serde_json::Map<String, serde_json::Value>")]
    pub inputs: Box<RawValue>,
    /// Exit code of the task that failed, otherwise of the last task that ran (RESP spec).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Stdout of the last task, when the job completed (RESP spec).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdout: Option<String>,
    /// Stderr of the task that failed, when the job failed (RESP spec).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr: Option<String>,
    /// Results of the tasks of the last ended attempt; null before its end, and during another
    /// attempt.
    #[schemars(with = "Option<Vec<TaskResult>>")]
    pub task_results: Option<Box<RawValue>>,
}

impl JobStatus {
    /// Returns the results of the tasks, or no results if `task_results` does not have the form of
    /// agw.
    pub fn results(&self) -> Vec<TaskResult> {
        let raw = self.task_results.as_deref().map_or("[]", RawValue::get);
        serde_json::from_str(raw).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::{CapturedOutput, TaskResult};
    use crate::documents::{parse, to_json};

    fn result(bytes: &[u8], total: u64) -> TaskResult {
        let stdout = CapturedOutput { bytes: bytes.to_vec(), total };
        TaskResult { task_number: 1, command: "sort".into(), stdout, ..TaskResult::default() }
    }

    #[test]
    fn captured_output_is_text_or_base64() {
        let text = to_json(&result("ä\n".as_bytes(), 3));
        assert!(text.contains(r#""stdout":"ä\n","stdout_bytes":3,"stderr":"","stderr_bytes":0"#), "{text}");
        let binary = to_json(&result(&[0xff, 0x00], 9));
        let fields = r#""stdout":"/wA=","stdout_encoding":"base64","stdout_bytes":9,"stdout_truncated":true"#;
        assert!(binary.contains(fields), "{binary}");
        for result in [result("ä\n".as_bytes(), 3), result(&[0xff, 0x00], 9)] {
            assert_eq!(parse::<TaskResult>(to_json(&result).as_bytes()).unwrap(), result);
        }
    }

    #[test]
    fn blamed_ignores_a_sigpipe_that_a_later_failure_caused() {
        let failed = |number, signal, exit_code| TaskResult {
            task_number: number,
            signal,
            exit_code,
            ..TaskResult::default()
        };
        let blamed = |results: &[TaskResult]| TaskResult::blamed(results).map(|result| result.task_number);
        assert_eq!(blamed(&[failed(1, Some(13), 141), failed(2, None, 1)]), Some(2));
        assert_eq!(blamed(&[failed(1, Some(13), 141), failed(2, None, 0)]), Some(1));
        let late = TaskResult { timed_out: true, ..failed(2, Some(15), 143) };
        assert_eq!(blamed(&[failed(1, Some(15), 143), late]), Some(2));
        assert_eq!(blamed(&[failed(1, None, 0)]), None);
        let ignored = TaskResult { ignored: true, ..failed(1, None, 1) };
        assert_eq!(blamed(std::slice::from_ref(&ignored)), None);
        assert_eq!(blamed(&[ignored.clone(), failed(2, None, 2)]), Some(2));
        assert_eq!(blamed(&[TaskResult { timed_out: true, ..ignored }]), Some(1), "late is late");
    }

    #[test]
    fn task_result_of_the_specification_is_parsed() {
        let seed = br#"{"task_number":1,"command":"sort","exit_code":0,"stdout":"a\n","stderr":"","duration_ms":120}"#;
        let result = parse::<TaskResult>(seed).unwrap();
        assert_eq!((result.stdout.bytes.as_slice(), result.stdout.total), (&b"a\n"[..], 2));
    }

    #[test]
    fn truncate_cuts_text_between_characters() {
        let mut captured = CapturedOutput { bytes: "aä".into(), total: 3 };
        captured.truncate(2);
        assert_eq!((captured.bytes.as_slice(), captured.is_truncated()), (&b"a"[..], true));
    }
}
