//! What the tasks of a running job write, fetched piece by piece from its worker (JOB.OUTPUT).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::job::{bytes_of, text_of};
use crate::ids::{ActionId, JobId};

/// What of a job's output is there already: the next piece begins behind it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OutputPosition {
    /// The attempt that it is about; of another one everything is wanted.
    pub attempt: u32,
    /// The tasks of which something is there.
    pub tasks: Vec<TaskPosition>,
}

/// How many bytes of a task's streams are there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TaskPosition {
    /// The task, from 1.
    pub task_number: u32,
    /// Bytes of its stdout.
    pub stdout: u64,
    /// Bytes of its stderr.
    pub stderr: u64,
}

/// What a worker is asked for, as a message on its channel of orders.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputRequest {
    /// What the answer is to be sent under.
    pub request_id: String,
    /// The job.
    pub job_id: JobId,
    /// What is there already.
    pub position: OutputPosition,
}

/// A call on a worker's channel of orders that asks for more than a heartbeat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputCall {
    /// What is asked for.
    pub output: OutputRequest,
}

/// Call on the order channel of a worker. The worker gives up the jobs of an action that it has
/// claimed and not started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WithdrawCall {
    /// The action.
    pub withdraw: ActionId,
}

/// A piece of what a job's tasks write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobOutput {
    /// The job.
    pub job_id: JobId,
    /// The attempt that runs, or ran last.
    pub attempt: u32,
    /// The tasks that have started, those without anything new among them.
    pub tasks: Vec<TaskOutput>,
    /// Whether more is there already.
    pub more: bool,
    /// Whether the attempt is over: nothing comes any more but what is there.
    pub ended: bool,
}

/// A piece of what a task writes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskOutput {
    /// The task, from 1.
    pub task_number: u32,
    /// Its command.
    pub command: String,
    /// Of its stdout; not there where a pipe or a file of the user's takes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdout: Option<OutputChunk>,
    /// Of its stderr; not there where it goes elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr: Option<OutputChunk>,
}

/// A piece of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "OutputChunkFields", into = "OutputChunkFields")]
pub struct OutputChunk {
    /// How many bytes are before it.
    pub from: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct OutputChunkFields {
    from: u64,
    data: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    encoding: Option<String>,
}

impl From<OutputChunk> for OutputChunkFields {
    fn from(piece: OutputChunk) -> Self {
        let (data, encoding) = text_of(&piece.bytes);
        Self { from: piece.from, data, encoding: encoding.map(str::to_owned) }
    }
}

impl TryFrom<OutputChunkFields> for OutputChunk {
    type Error = String;

    fn try_from(fields: OutputChunkFields) -> Result<Self, String> {
        let bytes = bytes_of(fields.data, fields.encoding.as_deref())?;
        Ok(Self { from: fields.from, bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::{OutputChunk, OutputPosition};
    use crate::documents::{parse, to_json};

    #[test]
    fn a_piece_travels_as_text_or_as_base64() {
        let text = OutputChunk { from: 3, bytes: "ä\n".into() };
        assert_eq!(to_json(&text), r#"{"from":3,"data":"ä\n"}"#);
        let cut = OutputChunk { from: 0, bytes: vec![0xc3] };
        assert_eq!(to_json(&cut), r#"{"from":0,"data":"ww==","encoding":"base64"}"#);
        for piece in [text, cut] {
            assert_eq!(parse::<OutputChunk>(to_json(&piece).as_bytes()).unwrap(), piece);
        }
        assert!(parse::<OutputChunk>(br#"{"from":0,"data":"x","encoding":"rot13"}"#).is_err());
    }

    #[test]
    fn a_position_may_leave_out_what_is_nothing() {
        assert_eq!(parse::<OutputPosition>(b"{}").unwrap(), OutputPosition::default());
        let position = parse::<OutputPosition>(br#"{"attempt":1,"tasks":[{"task_number":2,"stderr":7}]}"#);
        assert_eq!(position.unwrap().tasks[0].stderr, 7);
        assert!(parse::<OutputPosition>(br#"{"atempt":1}"#).is_err());
    }
}
