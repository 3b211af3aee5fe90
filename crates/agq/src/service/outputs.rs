//! Reads of the outputs of jobs, and of their large inputs (ADR 20).

use std::path::PathBuf;

use agenix_protocol::{
    blob::{BlobHash, OutputStream},
    documents::{CapturedOutput, Status, TaskResult},
    ids::JobId,
};
use agenix_rules::{blob::JobBlobs, job::Job, rejection::Rejection};
use bytes::Bytes;

use super::{blobs, identity::check_holder, job_output, lookup, peer_file::NO_PROCESS};
use crate::{
    app::{AppState, Caller},
    blobs::BlobFile,
    error::Result,
    store::DocumentKind,
};

/// Maximum number of bytes of one reply.
const MAX_CHUNK_BYTES: usize = 4 * 1024 * 1024;

/// Chunk of a stored stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct StreamChunk {
    /// Number of bytes of the whole stored stream.
    pub(crate) total: u64,
    pub(crate) bytes: Bytes,
}

/// Stored stream of an ended attempt.
#[derive(Debug)]
pub(crate) struct StoredOutput {
    captured: CapturedOutput,
    /// Number of bytes of the stored stream.
    pub(crate) total: u64,
    /// Number of bytes that the task has written, which is larger if the stream was cut.
    pub(crate) written: u64,
}

impl StoredOutput {
    /// Returns the hash of the stored stream.
    pub(crate) fn hash(&self) -> BlobHash {
        self.captured.blob.unwrap_or_else(|| BlobHash::of(&self.captured.bytes))
    }

    /// Returns the inline bytes of the stream, which are its first ones.
    pub(crate) fn beginning(&self) -> &[u8] {
        &self.captured.bytes
    }

    /// Returns at most `length` bytes from `offset`, and at most [`MAX_CHUNK_BYTES`].
    pub(crate) async fn read(&self, app: &AppState, (offset, length): (u64, u64)) -> Result<Bytes> {
        let length = self.available((offset, length));
        let Self { captured, .. } = self;
        match captured.blob {
            Some(hash) => blobs::read(app, hash, (offset, length)).await,
            None => {
                let start = usize::try_from(offset).unwrap_or(usize::MAX).min(captured.bytes.len());
                let end = start.saturating_add(length).min(captured.bytes.len());
                Ok(Bytes::copy_from_slice(&captured.bytes[start..end]))
            }
        }
    }

    /// Returns the length of the reply to a request for `length` bytes from `offset`. The report of
    /// a worker may name a blob that is longer than its stream.
    fn available(&self, (offset, length): (u64, u64)) -> usize {
        let left = self.total.saturating_sub(offset);
        usize::try_from(length.min(left)).unwrap_or(usize::MAX).min(MAX_CHUNK_BYTES)
    }
}

/// Returns a stream of an ended attempt, or `None` without a result of the task.
pub(crate) async fn find(
    app: &AppState,
    job_id: &JobId,
    stream: (u32, OutputStream),
) -> Result<Option<StoredOutput>> {
    let results = app.store.job(job_id).await?.and_then(|job| job.results);
    Ok(results.and_then(|results| in_results(&results, stream)))
}

fn in_results(results: &str, (task_number, stream): (u32, OutputStream)) -> Option<StoredOutput> {
    let results: Vec<TaskResult> = serde_json::from_str(results).unwrap_or_default();
    let result = results.iter().find(|result| result.task_number == task_number)?;
    let captured = result.stream(stream).clone();
    let written = captured.total;
    let total = if captured.is_cut() { captured.bytes.len() as u64 } else { written };
    Some(StoredOutput { captured, total, written })
}

/// Returns a chunk of a stream: of the results of an ended attempt, or of what a running job has
/// written so far. Returns `None` if there is neither.
pub(crate) async fn read(
    app: &AppState,
    job_id: &JobId,
    stream: (u32, OutputStream),
    range: Option<(u64, u64)>,
) -> Result<Option<StreamChunk>> {
    let Some(stored) = app.store.job(job_id).await? else { return Ok(None) };
    let Some(results) = &stored.results else {
        return read_running(app, &stored.job, stream, range).await;
    };
    let Some(output) = in_results(results, stream) else { return Ok(None) };
    let (total, (offset, length)) = (output.total, range.unwrap_or((0, u64::MAX)));
    if offset > total {
        return Err(Rejection::InvalidRange { offset, length: total }.into());
    }
    Ok(Some(StreamChunk { total, bytes: output.read(app, (offset, length)).await? }))
}

/// Returns the path and the number of bytes of the content of the file with a stream of an ended
/// attempt, for a client on this machine that runs as the user of agq. Returns `None` if no file
/// has the stream.
pub(crate) async fn file(
    app: &AppState,
    caller: &Caller,
    job_id: &JobId,
    stream: (u32, OutputStream),
) -> Result<Option<(PathBuf, u64)>> {
    if caller.process.is_none() {
        return Err(Rejection::UnreadableFile(NO_PROCESS.into()).into());
    }
    let found = find(app, job_id, stream).await?;
    let Some(hash) = found.and_then(|output| output.captured.blob) else { return Ok(None) };
    let Some(blob) = blobs::record(app, hash).await? else { return Ok(None) };
    let path = blobs::storage(app)?.path(&BlobFile::of(hash, &blob));
    Ok(path.map(|path| (path, blob.length)))
}

/// Returns a chunk of a blob that the input of the job names, or `None` if the input names another
/// blob.
pub(crate) async fn read_input(
    app: &AppState,
    caller: &Caller,
    (job_id, attempt): (&JobId, u32),
    hash: BlobHash,
    (offset, length): (u64, u64),
) -> Result<Option<StreamChunk>> {
    check_holder(app, caller, job_id, attempt).await?;
    let json = app.store.document(DocumentKind::JobInputs, job_id.as_str()).await?;
    let named = json.map(|json| lookup::parse::<JobBlobs>("input blobs of job", job_id.as_str(), &json));
    if !named.transpose()?.is_some_and(|named| named.blobs.contains(&hash)) {
        return Ok(None);
    }
    let total = blobs::record(app, hash).await?.map_or(0, |blob| blob.length);
    if offset > total {
        return Err(Rejection::InvalidRange { offset, length: total }.into());
    }
    let length = usize::try_from(length).unwrap_or(usize::MAX).min(MAX_CHUNK_BYTES);
    let bytes = blobs::read(app, hash, (offset, length)).await?;
    Ok(Some(StreamChunk { total, bytes }))
}

/// Returns a chunk of a stream of a running job, whose number of bytes is known up to its end.
async fn read_running(
    app: &AppState,
    job: &Job,
    stream: (u32, OutputStream),
    range: Option<(u64, u64)>,
) -> Result<Option<StreamChunk>> {
    if job.status() != Status::Running {
        return Ok(None);
    }
    let (offset, length) = range.unwrap_or((0, u64::MAX));
    let chunk = job_output::chunk(app, job, stream, offset).await?;
    Ok(chunk.map(|mut bytes| {
        bytes.truncate(usize::try_from(length).unwrap_or(usize::MAX));
        StreamChunk { total: offset.saturating_add(bytes.len() as u64), bytes: bytes.into() }
    }))
}

#[cfg(test)]
mod tests {
    use agenix_protocol::blob::OutputStream;

    use super::{MAX_CHUNK_BYTES, in_results};

    #[test]
    fn reply_has_no_bytes_behind_the_end_of_the_stream() {
        let of = |total: u64| {
            let hash = "0".repeat(64);
            let stdout = format!(r#""stdout":"a\n","stdout_bytes":{total},"stdout_blob":"{hash}""#);
            let results = format!(r#"[{{"task_number":1,"command":"sh","exit_code":0,{stdout}}}]"#);
            in_results(&results, (1, OutputStream::Stdout)).unwrap()
        };
        assert_eq!([0, 1, 2, 3].map(|offset| of(2).available((offset, 100))), [2, 1, 0, 0]);
        assert_eq!(of(2).available((0, 1)), 1);
        assert_eq!(of(u64::MAX).available((0, u64::MAX)), MAX_CHUNK_BYTES);
    }
}
