//! Typed calls for large inputs and outputs of jobs.

use agenix_protocol::{
    blob::{BlobHash, OutputStream},
    ids::{ActionId, JobId},
    request::{OutputCommand, Request, UploadKey},
};
use bytes::Bytes;
use redis::Value;

use crate::{connection::Connection, error::ClientError};

impl Connection {
    /// OUTPUT.WRITE: sends the piece of a stream that begins at `offset`.
    pub async fn write_output(
        &mut self,
        upload: &UploadKey,
        offset: u64,
        data: Bytes,
    ) -> Result<(), ClientError> {
        let upload = upload.clone();
        self.call(&Request::Output(OutputCommand::Write { upload, offset, data })).await.map(drop)
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
        piece(
            self.call(&Request::Output(OutputCommand::Result { job_id, task_number, stream, range })).await?,
        )
    }

    /// INPUT.WRITE: sends the piece of an input that begins at `offset`.
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
        piece(self.call(&Request::Output(OutputCommand::Input { job_id, attempt, hash, range })).await?)
    }
}

/// Parses a reply with a number of bytes, and some of them.
fn piece(reply: Value) -> Result<Option<(u64, Vec<u8>)>, ClientError> {
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
