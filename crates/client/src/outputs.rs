//! Typed calls for large inputs and outputs of jobs.

use std::{ffi::OsString, os::unix::ffi::OsStringExt, path::PathBuf};

use agenix_protocol::{
    blob::{BlobHash, OutputStream},
    ids::{ActionId, JobId},
    request::{OpenFile, OutputCommand, Request, UploadKey},
};
use bytes::Bytes;
use redis::Value;

use crate::{connection::Connection, error::ClientError};

impl Connection {
    /// OUTPUT.WRITE: sends the chunk of a stream that begins at `offset`.
    pub async fn write_output(
        &mut self,
        upload: &UploadKey,
        offset: u64,
        data: Bytes,
    ) -> Result<(), ClientError> {
        let upload = upload.clone();
        self.call(&Request::Output(OutputCommand::Write { upload, offset, data })).await.map(drop)
    }

    /// OUTPUT.COPY: lets agq copy a part of a stream, given by its offset and its number of bytes,
    /// from a file that this process has open. Returns the number of bytes that agq has now, which
    /// may be fewer than the end of the part, and the BLAKE3 hash of these bytes.
    pub async fn copy_output(
        &mut self,
        upload: &UploadKey,
        range: (u64, u64),
        file: OpenFile,
    ) -> Result<(u64, BlobHash), ClientError> {
        let upload = upload.clone();
        let reply = self.call(&Request::Output(OutputCommand::Copy { upload, range, file })).await?;
        let unexpected = || ClientError::Unexpected("the reply is not a number and a BLAKE3 hash".into());
        let (total, hash) = chunk(reply)?.ok_or_else(unexpected)?;
        let hash = std::str::from_utf8(&hash).ok().and_then(|hash| hash.parse().ok());
        Ok((total, hash.ok_or_else(unexpected)?))
    }

    /// OUTPUT.COMMIT: stores a stream of `length` bytes as a blob.
    pub async fn commit_output(
        &mut self,
        upload: &UploadKey,
        length: u64,
        hash: BlobHash,
    ) -> Result<(), ClientError> {
        let upload = upload.clone();
        self.call(&Request::Output(OutputCommand::Commit { upload, length, hash })).await.map(drop)
    }

    /// JOB.RESULT: returns the number of bytes of a stored stream, and at most `length` of them
    /// from `offset`. Returns `None` if there is no such job or task.
    pub async fn job_result(
        &mut self,
        job_id: &JobId,
        (task_number, stream): (u32, OutputStream),
        (offset, length): (u64, u64),
    ) -> Result<Option<(u64, Vec<u8>)>, ClientError> {
        let (job_id, range) = (job_id.clone(), Some((offset, length)));
        chunk(
            self.call(&Request::Output(OutputCommand::Result { job_id, task_number, stream, range })).await?,
        )
    }

    /// JOB.FILE: returns the path of the file with a stored stream, and the number of bytes of the
    /// stream, if this process may be able to open the file. The form of the file is that of
    /// [`agenix_protocol::blob_blocks`].
    pub async fn job_file(
        &mut self,
        job_id: &JobId,
        (task_number, stream): (u32, OutputStream),
    ) -> Result<Option<(u64, PathBuf)>, ClientError> {
        let job_id = job_id.clone();
        let reply = self.call(&Request::Output(OutputCommand::File { job_id, task_number, stream })).await?;
        Ok(chunk(reply)?.map(|(total, path)| (total, OsString::from_vec(path).into())))
    }

    /// INPUT.WRITE: sends the chunk of an input that begins at `offset`.
    pub async fn write_input(
        &mut self,
        upload: &ActionId,
        offset: u64,
        data: Bytes,
    ) -> Result<(), ClientError> {
        let upload = upload.clone();
        self.call(&Request::Output(OutputCommand::WriteInput { upload, offset, data })).await.map(drop)
    }

    /// INPUT.COMMIT: stores an input of `length` bytes as a blob.
    pub async fn commit_input(
        &mut self,
        upload: &ActionId,
        length: u64,
        hash: BlobHash,
    ) -> Result<(), ClientError> {
        let upload = upload.clone();
        self.call(&Request::Output(OutputCommand::CommitInput { upload, length, hash })).await.map(drop)
    }

    /// JOB.INPUT: returns the number of bytes of a blob that the input of a job names, and a range
    /// of them as [`Self::job_result`] does. Returns `None` if the input names another blob.
    pub async fn job_input(
        &mut self,
        (job_id, attempt): (&JobId, u32),
        hash: BlobHash,
        range: (u64, u64),
    ) -> Result<Option<(u64, Vec<u8>)>, ClientError> {
        let job_id = job_id.clone();
        chunk(self.call(&Request::Output(OutputCommand::Input { job_id, attempt, hash, range })).await?)
    }
}

/// Parses a reply with a number of bytes, and some of them.
fn chunk(reply: Value) -> Result<Option<(u64, Vec<u8>)>, ClientError> {
    match reply {
        Value::Nil => Ok(None),
        Value::Array(mut parts) => match (parts.pop(), parts.pop()) {
            (Some(Value::BulkString(bytes)), Some(Value::Int(total))) => {
                Ok(Some((u64::try_from(total).unwrap_or_default(), bytes)))
            }
            _ => Err(ClientError::Unexpected("the reply has another form".into())),
        },
        other => Err(ClientError::Unexpected(format!("{other:?}"))),
    }
}
