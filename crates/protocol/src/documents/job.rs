//! A job: one run of a plan on one input (AGQ API spec §3).

use base64::{Engine, engine::general_purpose::STANDARD as BASE64};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::{
    ids::{ActionId, JobId, PlanId, WorkerId},
    time::Timestamp,
};

/// A job's status as RESP shows it (AGQ API spec §3; `cancelled` is ours).
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
    /// The word on the wire.
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

    /// Reads the word on the wire.
    pub fn parse(word: &str) -> Option<Self> {
        let all = [Self::Pending, Self::Running, Self::Completed, Self::Failed, Self::Dead, Self::Cancelled];
        all.into_iter().find(|status| status.as_str() == word)
    }

    /// Whether a job of this status will not run again by itself.
    pub fn is_ended(self) -> bool {
        !matches!(self, Self::Pending | Self::Running)
    }
}

/// What `BRPOP queue:ready` gives a worker.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct JobDocument {
    /// The job.
    pub job_id: JobId,
    /// The action it belongs to.
    pub action_id: ActionId,
    /// The plan it runs.
    pub plan_id: PlanId,
    /// That plan, whole.
    pub plan: Box<RawValue>,
    /// The input it runs on.
    pub inputs: Box<RawValue>,
    /// Which claim of the job this is, from 1; an update may carry it and is then refused for any other claim.
    pub attempt: u32,
    /// The trace that it is a part of, where it was submitted with one (W3C Trace Context).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
}

/// What a worker reports by `JOB.UPDATE`. Fields that are not known are left alone: workers come in any language.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct JobUpdate {
    /// `running`, `completed`, `failed`, or `cancelled` for an unstarted job, and `None` for
    /// progress alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
    /// Who reports, on a connection that has not named its worker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker_id: Option<WorkerId>,
    /// The claim that this report is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// The worker's own time; agq keeps its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// The worker's own time; agq keeps its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<Timestamp>,
    /// The worker's own time; agq keeps its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_at: Option<Timestamp>,
    /// The task that runs now, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current_task: Option<u32>,
    /// 0 to 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress_percent: Option<f32>,
    /// Why it failed, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// An array of [`TaskResult`], kept as it came.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_results: Option<Box<RawValue>>,
}

/// What became of one task.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TaskResult {
    /// The task, from 1.
    pub task_number: u32,
    /// Its command.
    pub command: String,
    /// Its exit code; 128 + the signal when a signal ended it, as a shell has it; 127 when it could not be started.
    pub exit_code: i32,
    /// The signal that ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Whether its timeout ended it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub timed_out: bool,
    /// Whether its exit code does not count: the plan says so of what streams on (`pipefail`).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub ignored: bool,
    /// What it wrote to stdout, as far as it was kept.
    #[serde(flatten, with = "stdout_fields")]
    #[schemars(with = "stdout_fields::Fields")]
    pub stdout: CapturedOutput,
    /// What it wrote to stderr, as far as it was kept.
    #[serde(flatten, with = "stderr_fields")]
    #[schemars(with = "stderr_fields::Fields")]
    pub stderr: CapturedOutput,
    /// How long it ran.
    pub duration_ms: u64,
}

/// SIGPIPE: the signal of a task whose reader has gone.
const SIGPIPE: i32 = 13;

impl TaskResult {
    /// Whether the task failed.
    pub fn is_failure(&self) -> bool {
        self.timed_out || (self.exit_code != 0 && !self.ignored)
    }

    /// The result that a failed job is to be blamed on: a timeout, which ended the tasks that it streams with; else the
    /// first failure, but not the SIGPIPE that a later failure in a stream has caused.
    pub fn blamed(results: &[Self]) -> Option<&Self> {
        let failures = || results.iter().filter(|result| result.is_failure());
        let late = failures().find(|result| result.timed_out);
        let own = || failures().find(|result| result.signal != Some(SIGPIPE));
        late.or_else(own).or_else(|| failures().next())
    }
}

/// A stream of a task as a result keeps it: capped, counted and flagged (design, decision 9).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CapturedOutput {
    /// The first bytes that it wrote.
    pub bytes: Vec<u8>,
    /// How many it wrote in all.
    pub total: u64,
}

impl CapturedOutput {
    /// Whether more was written than is kept.
    pub fn is_truncated(&self) -> bool {
        self.total > self.bytes.len() as u64
    }

    /// Keeps at most `cap` bytes; text is cut between characters.
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

/// Bytes as JSON has them: as text where they are some, and else encoded, which the second says.
pub(super) fn text_of(bytes: &[u8]) -> (String, Option<&'static str>) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (text.to_owned(), None),
        Err(_) => (BASE64.encode(bytes), Some("base64")),
    }
}

/// The way back.
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

            pub(super) fn serialize<S: Serializer>(kept: &CapturedOutput, to: S) -> Result<S::Ok, S::Error> {
                let (text, encoding) = text_of(&kept.bytes);
                let encoding = encoding.map(str::to_owned);
                Fields { text, encoding, total: Some(kept.total), truncated: kept.is_truncated() }
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

/// What `JOB.STATUS` answers.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct JobStatus {
    /// The job.
    pub job_id: JobId,
    /// The action it belongs to.
    pub action_id: ActionId,
    /// The plan it runs.
    pub plan_id: PlanId,
    /// Where it stands.
    pub status: Status,
    /// The stored state behind the status.
    pub state: String,
    /// Its place among the action's inputs, from 0.
    pub index: u64,
    /// How often it was claimed.
    pub attempt: u32,
    /// The queue it waits in.
    pub queue: String,
    /// -100 to 100; jobs of a higher one are claimed first.
    pub priority: i32,
    /// When it was submitted.
    pub created_at: Timestamp,
    /// When it becomes available by itself, where it waits for a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_at: Option<Timestamp>,
    /// When it was last claimed; null until then.
    pub started_at: Option<Timestamp>,
    /// When it ended; null until then.
    pub completed_at: Option<Timestamp>,
    /// The worker that has it, or had it last.
    pub worker_id: Option<String>,
    /// The task that runs now, as far as the worker said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_task: Option<u32>,
    /// 0 to 100, as far as the worker said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress_percent: Option<f32>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The input it runs on.
    #[schemars(with = "serde_json::Map<String, serde_json::Value>")]
    pub inputs: Box<RawValue>,
    /// The RESP spec: exit code of the last task that ran, or of the one that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The RESP spec: stdout of the last task, when the job completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdout: Option<String>,
    /// The RESP spec: stderr of the task that failed, when the job failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr: Option<String>,
    /// What became of each task of the attempt that ended last; null until one has, and while another is under way.
    #[schemars(with = "Option<Vec<TaskResult>>")]
    pub task_results: Option<Box<RawValue>>,
}

impl JobStatus {
    /// The results of the tasks, as far as they are what agw writes.
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
    fn text_travels_as_text_and_the_rest_as_base64() {
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
    fn a_broken_pipe_is_not_to_blame_for_what_broke_it() {
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
    fn a_seed_result_is_understood() {
        let seed = br#"{"task_number":1,"command":"sort","exit_code":0,"stdout":"a\n","stderr":"","duration_ms":120}"#;
        let result = parse::<TaskResult>(seed).unwrap();
        assert_eq!((result.stdout.bytes.as_slice(), result.stdout.total), (&b"a\n"[..], 2));
    }

    #[test]
    fn cut_text_stays_text() {
        let mut kept = CapturedOutput { bytes: "aä".into(), total: 3 };
        kept.truncate(2);
        assert_eq!((kept.bytes.as_slice(), kept.is_truncated()), (&b"a"[..], true));
    }
}
