//! Outputs of ended attempts: uploads of workers, and reads of clients (ADR 20).

use std::sync::Arc;

use agenix_protocol::{
    blob::{BlobHash, OutputStream},
    documents::{CapturedOutput, TaskResult, to_json},
    ids::JobId,
    request::UploadKey,
};
use agenix_rules::{blob::StoredBlob, job, rejection::Rejection};
use bytes::Bytes;
use sha2::{Digest, Sha256};

use super::{blobs, identity, lookup};
use crate::{
    app::{AppState, Caller},
    blobs::{BlobError, BlobFile, BlobStorage, uploads::Upload},
    error::Result,
    store::{DocumentChange, DocumentKind},
};

/// Maximum number of bytes of one reply.
const MAX_PIECE_BYTES: usize = 4 * 1024 * 1024;

/// Piece of a stored stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct OutputPiece {
    /// Number of bytes of the whole stored stream.
    pub(crate) total: u64,
    pub(crate) bytes: Bytes,
}

/// Rejects a caller that does not hold the job, or no longer holds the attempt.
async fn check_holder(app: &AppState, caller: &Caller, key: &UploadKey) -> Result<()> {
    let who = identity::reporter(app, caller, None).await?;
    let record = lookup::job_record(app, &key.job_id).await?;
    Ok(job::check_upload(&record, &who, key.attempt)?)
}

/// Writes a piece of an upload. Returns the number of bytes of the upload.
pub(crate) async fn write(
    app: &AppState,
    caller: &Caller,
    key: &UploadKey,
    offset: u64,
    data: Bytes,
) -> Result<u64> {
    let storage = blobs::storage(app)?;
    check_holder(app, caller, key).await?;
    let entry = app.uploads.of(key, app.clock.now());
    let mut upload = entry.lock().await;
    upload.check_piece(key.attempt, offset, &data)?;
    if offset == 0 {
        discard(storage, &upload).await?;
        *upload = Upload::begun(key.attempt, app.clock.suffix());
    }
    // After a failed write, the worker sends the same piece again.
    storage.write(&upload.name, offset, data.clone()).await?;
    Ok(upload.add(&data))
}

/// Removes the file of an upload, if it has one.
async fn discard(storage: &Arc<dyn BlobStorage>, upload: &Upload) -> Result<(), BlobError> {
    if upload.name.is_empty() { Ok(()) } else { storage.discard(&upload.name).await }
}

/// Ends an upload. When this returns, its blob is on disk and has a record. The upload is over also
/// after an error.
pub(crate) async fn commit(
    app: &AppState,
    caller: &Caller,
    key: &UploadKey,
    length: u64,
    hash: BlobHash,
) -> Result<()> {
    let storage = blobs::storage(app)?;
    check_holder(app, caller, key).await?;
    let entry = app.uploads.of(key, app.clock.now());
    let upload = entry.lock().await;
    let published = match upload.check_whole(key.attempt, length, hash) {
        Ok(checksums) => publish(app, storage, &upload.name, (length, hash), checksums).await,
        Err(rejection) => Err(rejection.into()),
    };
    // After a failure, the file may have its final name already, so the worker begins again.
    app.uploads.remove(key);
    discard(storage, &upload).await?;
    published
}

/// Publishes an upload, unless its content is stored already, and stores the record of the blob.
async fn publish(
    app: &AppState,
    storage: &Arc<dyn BlobStorage>,
    name: &str,
    (length, hash): (u64, BlobHash),
    checksums: Bytes,
) -> Result<()> {
    let now = app.clock.now();
    // The record that counts this upload is not removed for a while, and neither is its file.
    change_record(app, hash, move |known| known.map(|blob| blob.uploaded_again(now))).await?;
    if blobs::record(app, hash).await?.is_some() {
        return Ok(());
    }
    storage.write(name, length, checksums).await?;
    storage.publish(name, &BlobFile { hash, suffix: name.to_owned() }).await?;
    let suffix = name.to_owned();
    change_record(app, hash, move |known| {
        let new = || StoredBlob::new(length, &suffix, now);
        // Another upload may have stored the same content meanwhile.
        Some(known.map_or_else(new, |blob| blob.uploaded_again(now)))
    })
    .await
}

/// Changes the record of a blob. Without a new record, it stays as it is.
async fn change_record(
    app: &AppState,
    hash: BlobHash,
    change: impl Fn(Option<StoredBlob>) -> Option<StoredBlob> + Send + Sync + 'static,
) -> Result<()> {
    let rule = move |known: Option<&str>| {
        let known = known.and_then(|json| serde_json::from_str(json).ok());
        let changed = change(known).map(|blob| to_json(&blob));
        Ok(changed.map_or(DocumentChange::Keep, DocumentChange::Put))
    };
    Ok(app.store.update_document(DocumentKind::Blob, &hash.to_string(), Box::new(rule)).await??)
}

/// Stored stream of an ended attempt.
#[derive(Debug)]
pub(crate) struct StoredOutput {
    captured: CapturedOutput,
    /// Number of bytes of the stored stream.
    pub(crate) total: u64,
    /// Number of bytes that the task has written. It is larger if the stream was cut.
    pub(crate) written: u64,
}

impl StoredOutput {
    /// Returns the SHA-256 of the stored stream.
    pub(crate) fn hash(&self) -> BlobHash {
        self.captured.blob.unwrap_or_else(|| BlobHash(Sha256::digest(&self.captured.bytes).into()))
    }

    /// Returns the inline bytes of the stream, which are its first ones.
    pub(crate) fn beginning(&self) -> &[u8] {
        &self.captured.bytes
    }

    /// Returns at most `length` bytes from `offset`, and at most [`MAX_PIECE_BYTES`].
    pub(crate) async fn read(&self, app: &AppState, (offset, length): (u64, u64)) -> Result<Bytes> {
        let length = usize::try_from(length).unwrap_or(usize::MAX).min(MAX_PIECE_BYTES);
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
}

/// Returns a stream of an ended attempt, or `None` without a result of the task.
pub(crate) async fn find(
    app: &AppState,
    job_id: &JobId,
    (task_number, stream): (u32, OutputStream),
) -> Result<Option<StoredOutput>> {
    let Some(results) = app.store.job(job_id).await?.and_then(|job| job.results) else { return Ok(None) };
    let results: Vec<TaskResult> = serde_json::from_str(&results).unwrap_or_default();
    let Some(result) = results.into_iter().find(|result| result.task_number == task_number) else {
        return Ok(None);
    };
    let captured = result.stream(stream).clone();
    let written = captured.total;
    let total = if captured.is_cut() { captured.bytes.len() as u64 } else { written };
    Ok(Some(StoredOutput { captured, total, written }))
}

/// Returns a piece of a stream of an ended attempt, or `None` without a result of the task.
pub(crate) async fn read(
    app: &AppState,
    job_id: &JobId,
    stream: (u32, OutputStream),
    range: Option<(u64, u64)>,
) -> Result<Option<OutputPiece>> {
    let Some(output) = find(app, job_id, stream).await? else { return Ok(None) };
    let (total, (offset, length)) = (output.total, range.unwrap_or((0, u64::MAX)));
    if offset > total {
        return Err(Rejection::InvalidRange { offset, length: total }.into());
    }
    Ok(Some(OutputPiece { total, bytes: output.read(app, (offset, length)).await? }))
}
