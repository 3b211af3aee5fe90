//! Commands about the output of ended attempts: OUTPUT.WRITE, OUTPUT.COMMIT and JOB.RESULT.

use bytes::Bytes;

use super::{
    Request, RequestError,
    arguments::{count, id_of},
    encode::words,
};
use crate::{
    blob::{BlobHash, OutputStream},
    ids::JobId,
};

/// Stream of one attempt that a worker uploads.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct UploadKey {
    /// The job.
    pub job_id: JobId,
    /// Number of the claim, from 1.
    pub attempt: u32,
    /// Number of the task, from 1.
    pub task_number: u32,
    /// The stream of the task.
    pub stream: OutputStream,
}

/// Command about the output of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutputCommand {
    /// OUTPUT.WRITE
    Write {
        /// The upload.
        upload: UploadKey,
        /// Number of bytes before the piece.
        offset: u64,
        /// The piece.
        data: Bytes,
    },
    /// OUTPUT.COMMIT
    Commit {
        /// The upload.
        upload: UploadKey,
        /// Number of bytes of the whole stream.
        length: u64,
        /// SHA-256 of the whole stream.
        hash: BlobHash,
    },
    /// JOB.RESULT
    Result {
        /// The job.
        job_id: JobId,
        /// Number of the task, from 1.
        task_number: u32,
        /// The stream of the task.
        stream: OutputStream,
        /// Offset and maximum number of bytes; `None` for the beginning of the stream.
        range: Option<(u64, u64)>,
    },
}

fn number(arg: &Bytes) -> Result<u64, RequestError> {
    count(arg).map(|count| count as u64)
}

fn small_number(arg: &Bytes) -> Result<u32, RequestError> {
    let wrong = |_| RequestError::Arguments("a number is too large".into());
    count(arg).and_then(|count| u32::try_from(count).map_err(wrong))
}

fn upload(args: &[Bytes]) -> Result<UploadKey, RequestError> {
    Ok(UploadKey {
        job_id: id_of(&args[0])?,
        attempt: small_number(&args[1])?,
        task_number: small_number(&args[2])?,
        stream: id_of(&args[3])?,
    })
}

pub(super) fn write(args: &[Bytes]) -> Result<Request, RequestError> {
    let (upload, offset, data) = (upload(args)?, number(&args[4])?, args[5].clone());
    Ok(Request::Output(OutputCommand::Write { upload, offset, data }))
}

pub(super) fn commit(args: &[Bytes]) -> Result<Request, RequestError> {
    let (upload, length, hash) = (upload(args)?, number(&args[4])?, id_of(&args[5])?);
    Ok(Request::Output(OutputCommand::Commit { upload, length, hash }))
}

pub(super) fn result(args: &[Bytes]) -> Result<Request, RequestError> {
    let (job, rest) = args.split_at(3);
    let range = match rest {
        [] => None,
        [offset, length] => Some((number(offset)?, number(length)?)),
        _ => return Err(RequestError::Syntax),
    };
    let (job_id, task_number, stream) = (id_of(&job[0])?, small_number(&job[1])?, id_of(&job[2])?);
    Ok(Request::Output(OutputCommand::Result { job_id, task_number, stream, range }))
}

impl OutputCommand {
    pub(super) fn encode(&self) -> Vec<Bytes> {
        match self {
            Self::Write { upload, offset, data } => {
                let mut args = upload.encode("OUTPUT.WRITE");
                args.extend([offset.to_string().into(), data.clone()]);
                args
            }
            Self::Commit { upload, length, hash } => {
                let mut args = upload.encode("OUTPUT.COMMIT");
                args.extend([length.to_string().into(), hash.to_string().into()]);
                args
            }
            Self::Result { job_id, task_number, stream, range } => {
                let mut args =
                    words(["JOB.RESULT", job_id.as_str(), &task_number.to_string(), stream.as_str()]);
                args.extend(
                    range.iter().flat_map(|(offset, length)| [offset, length]).map(|n| n.to_string().into()),
                );
                args
            }
        }
    }
}

impl UploadKey {
    fn encode(&self, command: &str) -> Vec<Bytes> {
        let (attempt, task_number) = (self.attempt.to_string(), self.task_number.to_string());
        words([command, self.job_id.as_str(), &attempt, &task_number, self.stream.as_str()])
    }
}
