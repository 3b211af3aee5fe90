//! Commands about large inputs and outputs of jobs: OUTPUT.WRITE, OUTPUT.COPY, OUTPUT.COMMIT,
//! JOB.RESULT, JOB.FILE, INPUT.WRITE, INPUT.COMMIT and JOB.INPUT.

use bytes::Bytes;

use super::{
    Request, RequestError,
    arguments::{count, id_of, is_word},
    encode::words,
};
use crate::{
    blob::{BlobHash, OutputStream},
    ids::{ActionId, JobId},
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

/// File that the process of a client has open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenFile {
    /// Number of its descriptor in the process.
    pub descriptor: u32,
    /// Device of the file, because a descriptor may be used again for another file.
    pub device: u64,
    /// Inode of the file.
    pub inode: u64,
    /// True if no process will write to the file, so that agq may keep it instead of a copy.
    pub may_be_kept: bool,
}

/// Command about a large input or output of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutputCommand {
    /// OUTPUT.WRITE
    Write {
        /// The upload.
        upload: UploadKey,
        /// Number of bytes before the chunk.
        offset: u64,
        /// The chunk.
        data: Bytes,
    },
    /// OUTPUT.COPY
    Copy {
        /// The upload.
        upload: UploadKey,
        /// Number of bytes before the copied ones, and number of bytes to copy.
        range: (u64, u64),
        /// File with the whole stream.
        file: OpenFile,
    },
    /// OUTPUT.COMMIT
    Commit {
        /// The upload.
        upload: UploadKey,
        /// Number of bytes of the whole stream.
        length: u64,
        /// BLAKE3 hash of the whole stream.
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
    /// JOB.FILE
    File {
        /// The job.
        job_id: JobId,
        /// Number of the task, from 1.
        task_number: u32,
        /// The stream of the task.
        stream: OutputStream,
    },
    /// INPUT.WRITE
    WriteInput {
        /// Name of the upload, which the client chooses.
        upload: ActionId,
        /// Number of bytes before the chunk.
        offset: u64,
        /// The chunk.
        data: Bytes,
    },
    /// INPUT.COMMIT
    CommitInput {
        /// Name of the upload.
        upload: ActionId,
        /// Number of bytes of the whole input.
        length: u64,
        /// BLAKE3 hash of the whole input.
        hash: BlobHash,
    },
    /// JOB.INPUT
    Input {
        /// The job.
        job_id: JobId,
        /// Number of the claim, from 1.
        attempt: u32,
        /// BLAKE3 hash of the input.
        hash: BlobHash,
        /// Offset and maximum number of bytes.
        range: (u64, u64),
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

pub(super) fn copy(args: &[Bytes]) -> Result<Request, RequestError> {
    let (upload, range) = (upload(args)?, (number(&args[4])?, number(&args[5])?));
    let may_be_kept = match &args[9..] {
        [] => false,
        [keep] if is_word(keep, "KEEP") => true,
        _ => return Err(RequestError::Syntax),
    };
    let (descriptor, device, inode) = (small_number(&args[6])?, number(&args[7])?, number(&args[8])?);
    let file = OpenFile { descriptor, device, inode, may_be_kept };
    Ok(Request::Output(OutputCommand::Copy { upload, range, file }))
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

pub(super) fn file(args: &[Bytes]) -> Result<Request, RequestError> {
    let (job_id, task_number, stream) = (id_of(&args[0])?, small_number(&args[1])?, id_of(&args[2])?);
    Ok(Request::Output(OutputCommand::File { job_id, task_number, stream }))
}

pub(super) fn write_input(args: &[Bytes]) -> Result<Request, RequestError> {
    let (upload, offset, data) = (id_of(&args[0])?, number(&args[1])?, args[2].clone());
    Ok(Request::Output(OutputCommand::WriteInput { upload, offset, data }))
}

pub(super) fn commit_input(args: &[Bytes]) -> Result<Request, RequestError> {
    let (upload, length, hash) = (id_of(&args[0])?, number(&args[1])?, id_of(&args[2])?);
    Ok(Request::Output(OutputCommand::CommitInput { upload, length, hash }))
}

pub(super) fn input(args: &[Bytes]) -> Result<Request, RequestError> {
    let (job_id, attempt, hash) = (id_of(&args[0])?, small_number(&args[1])?, id_of(&args[2])?);
    let range = (number(&args[3])?, number(&args[4])?);
    Ok(Request::Output(OutputCommand::Input { job_id, attempt, hash, range }))
}

impl OutputCommand {
    pub(super) fn encode(&self) -> Vec<Bytes> {
        match self {
            Self::Write { upload, offset, data } => {
                let mut args = upload.encode("OUTPUT.WRITE");
                args.extend([offset.to_string().into(), data.clone()]);
                args
            }
            Self::Copy { upload, range: (offset, length), file } => {
                let mut args = upload.encode("OUTPUT.COPY");
                let numbers = [*offset, *length, file.descriptor.into(), file.device, file.inode];
                args.extend(numbers.map(|n| n.to_string().into()));
                args.extend(file.may_be_kept.then(|| Bytes::from_static(b"KEEP")));
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
            Self::File { job_id, task_number, stream } => {
                words(["JOB.FILE", job_id.as_str(), &task_number.to_string(), stream.as_str()])
            }
            Self::WriteInput { upload, offset, data } => {
                let mut args = words(["INPUT.WRITE", upload.as_str(), &offset.to_string()]);
                args.push(data.clone());
                args
            }
            Self::CommitInput { upload, length, hash } => {
                words(["INPUT.COMMIT", upload.as_str(), &length.to_string(), &hash.to_string()])
            }
            Self::Input { job_id, attempt, hash, range: (offset, length) } => {
                let [attempt, offset, length] =
                    [u64::from(*attempt), *offset, *length].map(|n| n.to_string());
                words(["JOB.INPUT", job_id.as_str(), &attempt, &hash.to_string(), &offset, &length])
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
