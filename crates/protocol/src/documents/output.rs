//! Output of the tasks of a running job, requested in chunks from its worker (JOB.OUTPUT).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::task_result::{bytes_of, text_of};
use crate::{
    blob::OutputStream,
    ids::{ActionId, JobId},
};

/// Position of a reader in the output of a job. The next chunk begins there.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OutputPosition {
    /// Attempt of the position. For another attempt, the position is ignored.
    pub attempt: u32,
    /// Positions in the tasks whose output was read in part.
    pub tasks: Vec<TaskPosition>,
}

/// Position of a reader in the streams of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TaskPosition {
    /// Number of the task, from 1.
    pub task_number: u32,
    /// Number of bytes of the task's stdout that were read.
    pub stdout: u64,
    /// Number of bytes of the task's stderr that were read.
    pub stderr: u64,
}

/// Request for output, as a message on the directives channel of a worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputRequest {
    /// Id for the answer.
    pub request_id: String,
    /// The job.
    pub job_id: JobId,
    /// Position of the reader.
    pub position: OutputPosition,
    /// Stream to which the request is limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only: Option<TaskStream>,
}

/// One of the streams of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskStream {
    /// Number of the task, from 1.
    pub task_number: u32,
    /// The stream.
    pub stream: OutputStream,
}

/// Message on the directives channel of a worker that requests output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputCall {
    /// Requested output.
    pub output: OutputRequest,
}

/// Message on the directives channel of a worker. The worker gives up the jobs of an action that it
/// has claimed and not started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WithdrawCall {
    /// The action.
    pub withdraw: ActionId,
}

/// Chunk of the output of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobOutput {
    /// The job.
    pub job_id: JobId,
    /// Current or last attempt.
    pub attempt: u32,
    /// Started tasks, also those without new output.
    pub tasks: Vec<TaskOutput>,
    /// True if more output is available already.
    pub more: bool,
    /// True if the attempt has ended, so no further output will be written.
    pub ended: bool,
}

/// Chunk of the output of a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskOutput {
    /// Number of the task, from 1.
    pub task_number: u32,
    /// Command of the task.
    pub command: String,
    /// Chunk of the task's stdout; left out if a pipe or a file of the user takes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdout: Option<OutputChunk>,
    /// Chunk of the task's stderr; left out if it goes to a file or to stdout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr: Option<OutputChunk>,
}

/// Chunk of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "OutputChunkFields", into = "OutputChunkFields")]
pub struct OutputChunk {
    /// Number of bytes before the chunk.
    pub from: u64,
    /// Bytes of the chunk.
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
    fn from(chunk: OutputChunk) -> Self {
        let (data, encoding) = text_of(&chunk.bytes);
        Self { from: chunk.from, data, encoding: encoding.map(str::to_owned) }
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
    fn output_chunk_is_text_or_base64() {
        let text = OutputChunk { from: 3, bytes: "ä\n".into() };
        assert_eq!(to_json(&text), r#"{"from":3,"data":"ä\n"}"#);
        let cut = OutputChunk { from: 0, bytes: vec![0xc3] };
        assert_eq!(to_json(&cut), r#"{"from":0,"data":"ww==","encoding":"base64"}"#);
        for chunk in [text, cut] {
            assert_eq!(parse::<OutputChunk>(to_json(&chunk).as_bytes()).unwrap(), chunk);
        }
        assert!(parse::<OutputChunk>(br#"{"from":0,"data":"x","encoding":"rot13"}"#).is_err());
    }

    #[test]
    fn output_position_may_leave_out_zeros() {
        assert_eq!(parse::<OutputPosition>(b"{}").unwrap(), OutputPosition::default());
        let position = parse::<OutputPosition>(br#"{"attempt":1,"tasks":[{"task_number":2,"stderr":7}]}"#);
        assert_eq!(position.unwrap().tasks[0].stderr, 7);
        assert!(parse::<OutputPosition>(br#"{"atempt":1}"#).is_err());
    }
}
