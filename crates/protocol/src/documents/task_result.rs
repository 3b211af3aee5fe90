//! Result of a task, with its captured output.

use base64::{Engine, engine::general_purpose::STANDARD as BASE64};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{DsseEnvelope, MemoryLimit, ResourceUse, TaskAdmission, TaskSandbox};
use crate::blob::{BlobHash, OutputStream};

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
    /// True if the idle timeout ended the task. `timed_out` is true then, too.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub idle_timed_out: bool,
    /// True if the kernel killed the task, or a child whose end it reports, for lack of memory.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub out_of_memory: bool,
    /// True if the exit code does not count, because the task streams into the next one and the
    /// plan ignores its failures (`pipefail`), or because a later task of its stream could not be
    /// started.
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
    /// Bound of its memory, if the job wants a quantity of memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_limit: Option<MemoryLimit>,
    /// Sandbox in which the task ran, if it ran in one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<TaskSandbox>,
    /// Policy and signed order by which the task ran, if the worker has a policy or a trust file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admission: Option<TaskAdmission>,
    /// Statement of the worker about the task, with its signature, if the worker signs provenance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provenance: Option<DsseEnvelope>,
}

impl TaskResult {
    /// Returns a stream of the task.
    pub fn stream(&self, stream: OutputStream) -> &CapturedOutput {
        match stream {
            OutputStream::Stdout => &self.stdout,
            OutputStream::Stderr => &self.stderr,
        }
    }

    /// Returns a stream of the task, to change it.
    pub fn stream_mut(&mut self, stream: OutputStream) -> &mut CapturedOutput {
        match stream {
            OutputStream::Stdout => &mut self.stdout,
            OutputStream::Stderr => &mut self.stderr,
        }
    }
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
    /// Otherwise the first failure is the cause, except for a SIGPIPE that a later failure in a
    /// stream caused.
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
    /// Blob of all bytes, if the stream has more bytes than are stored here.
    pub blob: Option<BlobHash>,
}

impl CapturedOutput {
    /// Returns a stream that has no other bytes.
    pub fn whole(bytes: Vec<u8>) -> Self {
        let total = bytes.len() as u64;
        Self::inline(bytes, total)
    }

    /// Returns a stream of `bytes`, of `total` in all.
    pub fn inline(bytes: Vec<u8>, total: u64) -> Self {
        Self { bytes, total, blob: None }
    }

    /// Returns true if the stream has more bytes than are stored here.
    pub fn is_truncated(&self) -> bool {
        self.total > self.bytes.len() as u64
    }

    /// Returns true if bytes of the stream are stored neither here nor in a blob.
    pub fn is_cut(&self) -> bool {
        self.is_truncated() && self.blob.is_none()
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
        Ok(Self::inline(bytes, total))
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
    ($module:ident, $text:literal, $encoding:literal, $bytes:literal, $truncated:literal, $blob:literal) => {
        mod $module {
            use schemars::JsonSchema;
            use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

            use super::{BlobHash, CapturedOutput, text_of};

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
                #[serde(rename = $blob, default, skip_serializing_if = "Option::is_none")]
                blob: Option<BlobHash>,
            }

            pub(super) fn serialize<S: Serializer>(
                captured: &CapturedOutput,
                to: S,
            ) -> Result<S::Ok, S::Error> {
                let (text, encoding) = text_of(&captured.bytes);
                let encoding = encoding.map(str::to_owned);
                let (total, truncated) = (Some(captured.total), captured.is_truncated());
                Fields { text, encoding, total, truncated, blob: captured.blob }.serialize(to)
            }

            pub(super) fn deserialize<'de, D: Deserializer<'de>>(
                from: D,
            ) -> Result<CapturedOutput, D::Error> {
                let fields = Fields::deserialize(from)?;
                let captured =
                    CapturedOutput::from_text(fields.text, fields.encoding.as_deref(), fields.total)
                        .map_err(D::Error::custom)?;
                Ok(CapturedOutput { blob: fields.blob, ..captured })
            }
        }
    };
}

captured_output_fields!(
    stdout_fields,
    "stdout",
    "stdout_encoding",
    "stdout_bytes",
    "stdout_truncated",
    "stdout_blob"
);
captured_output_fields!(
    stderr_fields,
    "stderr",
    "stderr_encoding",
    "stderr_bytes",
    "stderr_truncated",
    "stderr_blob"
);

#[cfg(test)]
mod tests {
    use super::{CapturedOutput, TaskResult};
    use crate::documents::{parse, to_json};

    fn result(bytes: &[u8], total: u64) -> TaskResult {
        let stdout = CapturedOutput::inline(bytes.to_vec(), total);
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
    fn captured_output_names_its_blob() {
        let hash = "d74981efa70a0c880b8d8c1985d075dbcbf679b99a5f9914e5aaf96b831a9e24";
        let mut large = result(b"a", 9);
        assert!(large.stdout.is_cut());
        large.stdout.blob = Some(hash.parse().unwrap());
        assert!(large.stdout.is_truncated() && !large.stdout.is_cut());
        let json = to_json(&large);
        assert!(json.contains(&format!(r#""stdout_truncated":true,"stdout_blob":"{hash}""#)), "{json}");
        assert_eq!(parse::<TaskResult>(json.as_bytes()).unwrap(), large);
        assert!(parse::<TaskResult>(br#"{"stdout_blob":"../x"}"#).is_err());
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
        let mut captured = CapturedOutput::inline("aä".into(), 3);
        captured.truncate(2);
        assert_eq!((captured.bytes.as_slice(), captured.is_truncated()), (&b"a"[..], true));
    }
}
