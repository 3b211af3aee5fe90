//! Outputs of jobs: uploads of workers, and reads of clients (ADR 20).

use std::sync::Arc;

use agenix_protocol::{
    blob::{BlobHash, OutputStream},
    documents::{CapturedOutput, Status, TaskResult, to_json},
    ids::{ActionId, JobId},
    request::UploadKey,
};
use agenix_rules::{
    blob::{JobBlobs, StoredBlob},
    job::{self, Job},
    rejection::Rejection,
};
use bytes::Bytes;
use sha2::{Digest, Sha256};

use super::{blobs, identity, job_output, lookup};
use crate::{
    app::{AppState, Caller},
    blobs::{
        BlobError, BlobFile, BlobStorage,
        uploads::{Upload, UploadTarget},
    },
    error::{CommandError, Result},
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
    check_holder(app, caller, key).await?;
    write_piece(app, &key.into(), key.attempt, offset, data).await
}

/// Writes a piece of an input. Returns the number of bytes of the upload.
pub(crate) async fn write_input(app: &AppState, name: ActionId, offset: u64, data: Bytes) -> Result<u64> {
    write_piece(app, &UploadTarget::Input(name), 0, offset, data).await
}

async fn write_piece(
    app: &AppState,
    target: &UploadTarget,
    attempt: u32,
    offset: u64,
    data: Bytes,
) -> Result<u64> {
    let storage = blobs::storage(app)?;
    let entry = app.uploads.of(target, app.clock.now());
    let mut upload = entry.lock().await;
    upload.check_piece(attempt, offset, &data)?;
    if offset == 0 {
        discard(storage, &upload).await?;
        *upload = Upload::begun(attempt, app.clock.suffix());
    }
    // The bytes are hashed while a thread writes them. After a failed write, the client sends the
    // same piece again.
    let (written, longer) =
        tokio::join!(storage.write(&upload.name, offset, data.clone()), async { upload.with(&data) });
    written?;
    *upload = longer;
    Ok(upload.length)
}

/// Removes the file of an upload, if it has one.
async fn discard(storage: &Arc<dyn BlobStorage>, upload: &Upload) -> Result<(), BlobError> {
    if upload.name.is_empty() { Ok(()) } else { storage.discard(&upload.name).await }
}

/// Ends an upload. When this returns, its blob is durable and has a record. The upload is over also
/// after an error, unless the error says that it can be published again.
pub(crate) async fn commit(
    app: &AppState,
    caller: &Caller,
    key: &UploadKey,
    length: u64,
    hash: BlobHash,
) -> Result<()> {
    check_holder(app, caller, key).await?;
    commit_upload(app, &key.into(), key.attempt, length, hash).await
}

/// Ends the upload of an input, like [`commit`]. An action has to name the blob within an hour.
pub(crate) async fn commit_input(app: &AppState, name: ActionId, length: u64, hash: BlobHash) -> Result<()> {
    commit_upload(app, &UploadTarget::Input(name), 0, length, hash).await
}

async fn commit_upload(
    app: &AppState,
    target: &UploadTarget,
    attempt: u32,
    length: u64,
    hash: BlobHash,
) -> Result<()> {
    let storage = blobs::storage(app)?;
    let entry = app.uploads.of(target, app.clock.now());
    let upload = entry.lock().await;
    let published = match upload.check_whole(attempt, length, hash) {
        Ok(checksums) => publish(app, storage, &upload.name, (length, hash), checksums).await,
        Err(rejection) => Err(rejection.into()),
    };
    if matches!(published, Err(CommandError::Blob(BlobError::Unpublished(_)))) {
        return published;
    }
    // After another failure, the file may have its final name already, so the worker begins again.
    app.uploads.remove(target);
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

/// Returns a piece of a stream: of the results of an ended attempt, or of what a running job has
/// written so far. Returns `None` without either.
pub(crate) async fn read(
    app: &AppState,
    job_id: &JobId,
    stream: (u32, OutputStream),
    range: Option<(u64, u64)>,
) -> Result<Option<OutputPiece>> {
    let Some(stored) = app.store.job(job_id).await? else { return Ok(None) };
    let Some(results) = &stored.results else {
        return read_running(app, &stored.job, stream, range).await;
    };
    let Some(output) = in_results(results, stream) else { return Ok(None) };
    let (total, (offset, length)) = (output.total, range.unwrap_or((0, u64::MAX)));
    if offset > total {
        return Err(Rejection::InvalidRange { offset, length: total }.into());
    }
    Ok(Some(OutputPiece { total, bytes: output.read(app, (offset, length)).await? }))
}

/// Returns a piece of a blob that the input of the job names, or `None` if it names another one.
pub(crate) async fn read_input(
    app: &AppState,
    caller: &Caller,
    (job_id, attempt): (&JobId, u32),
    hash: BlobHash,
    (offset, length): (u64, u64),
) -> Result<Option<OutputPiece>> {
    let who = identity::reporter(app, caller, None).await?;
    let record = lookup::job_record(app, job_id).await?;
    job::check_upload(&record, &who, attempt)?;
    let json = app.store.document(DocumentKind::JobInputs, job_id.as_str()).await?;
    let named = json.map(|json| lookup::parse::<JobBlobs>("input blobs of job", job_id.as_str(), &json));
    if !named.transpose()?.is_some_and(|named| named.blobs.contains(&hash)) {
        return Ok(None);
    }
    let total = blobs::record(app, hash).await?.map_or(0, |blob| blob.length);
    if offset > total {
        return Err(Rejection::InvalidRange { offset, length: total }.into());
    }
    let length = usize::try_from(length).unwrap_or(usize::MAX).min(MAX_PIECE_BYTES);
    let bytes = blobs::read(app, hash, (offset, length)).await?;
    Ok(Some(OutputPiece { total, bytes }))
}

/// Returns a piece of a stream of a running job, whose number of bytes is known up to its end.
async fn read_running(
    app: &AppState,
    job: &Job,
    stream: (u32, OutputStream),
    range: Option<(u64, u64)>,
) -> Result<Option<OutputPiece>> {
    if job.status() != Status::Running {
        return Ok(None);
    }
    let (offset, length) = range.unwrap_or((0, u64::MAX));
    let piece = job_output::piece(app, job, stream, offset).await?;
    Ok(piece.map(|mut bytes| {
        bytes.truncate(usize::try_from(length).unwrap_or(usize::MAX));
        OutputPiece { total: offset.saturating_add(bytes.len() as u64), bytes: bytes.into() }
    }))
}
