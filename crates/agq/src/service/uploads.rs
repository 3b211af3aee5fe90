//! Uploads of large outputs by workers, and of large inputs by clients (ADR 20).

use std::sync::Arc;

use agenix_protocol::{
    blob::BlobHash,
    documents::to_json,
    ids::ActionId,
    request::{OpenFile, UploadKey},
};
use agenix_rules::blob::StoredBlob;
use bytes::Bytes;
use tracing::warn;

use super::{blobs, identity::check_holder, peer_file::PeerFile};
use crate::{
    app::{AppState, Caller},
    blobs::{
        BlobError, BlobFile, BlobStorage,
        check::is_intact,
        uploads::{Upload, UploadTarget},
    },
    error::{CommandError, Result},
    store::{DocumentChange, DocumentKind},
};

/// Maximum number of bytes that one command copies, because the connection waits for the command.
const MAX_COPIED_BYTES: u64 = 64 * 1024 * 1024;

/// Writes a chunk of an upload. Returns the number of bytes of the upload.
pub(crate) async fn write(
    app: &AppState,
    caller: &Caller,
    key: &UploadKey,
    offset: u64,
    data: Bytes,
) -> Result<u64> {
    check_holder(app, caller, &key.job_id, key.attempt).await?;
    write_chunk(app, &key.into(), key.attempt, offset, data).await
}

/// Copies bytes of an upload from a file that the worker has open. Returns the number of bytes of
/// the upload, which may be fewer than asked for, and their BLAKE3 hash.
pub(crate) async fn copy(
    app: &AppState,
    caller: &Caller,
    key: &UploadKey,
    (offset, length): (u64, u64),
    file: OpenFile,
) -> Result<(u64, BlobHash)> {
    check_holder(app, caller, &key.job_id, key.attempt).await?;
    let file = PeerFile::open(caller.process, file).await?;
    let end = offset.saturating_add(length.min(MAX_COPIED_BYTES));
    let storage = blobs::storage(app)?;
    let entry = app.uploads.of(&key.into(), app.clock.now());
    let mut upload = entry.lock().await;
    let first = file.read(offset, end).await?;
    upload.check_chunk(key.attempt, offset, &first)?;
    if offset == 0 {
        begin(app, storage, (&key.into(), &mut upload), key.attempt).await?;
        adopt(storage, &mut upload, &file).await?;
    }
    if upload.adopted.is_some() {
        *upload = file.add_to(upload.clone(), end).await?;
    } else {
        copy_chunks(storage, &mut upload, (&file, end), first).await?;
    }
    Ok((upload.length, upload.hash()))
}

/// Copies the chunks of a file up to `end`, the first of which was read already.
async fn copy_chunks(
    storage: &Arc<dyn BlobStorage>,
    upload: &mut Upload,
    (file, end): (&PeerFile, u64),
    first: Bytes,
) -> Result<()> {
    let (start, mut chunk) = (upload.length, first);
    while !chunk.is_empty() {
        // The next chunk is read while this one is hashed and written.
        let after = upload.length + chunk.len() as u64;
        let (added, next) = tokio::join!(add(storage, upload, &chunk), file.read(after, end));
        match added {
            Ok(()) => chunk = next?,
            // The worker asks for the rest, and gets the error if the read fails again. An upload
            // that is over has no bytes.
            Err(_) if upload.length > start => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Makes the file of the worker that of the upload, if the worker and the storage permit it.
async fn adopt(
    storage: &Arc<dyn BlobStorage>,
    upload: &mut Upload,
    file: &PeerFile,
) -> Result<(), BlobError> {
    if let Some((file, bytes)) = file.adoptable() {
        upload.adopted = storage.adopt(&upload.name, file).await?.then_some(bytes);
    }
    Ok(())
}

/// Writes a chunk of an input. Returns the number of bytes of the upload.
pub(crate) async fn write_input(
    app: &AppState,
    caller: &Caller,
    name: ActionId,
    offset: u64,
    data: Bytes,
) -> Result<u64> {
    write_chunk(app, &input_of(caller, name), 0, offset, data).await
}

async fn write_chunk(
    app: &AppState,
    target: &UploadTarget,
    attempt: u32,
    offset: u64,
    data: Bytes,
) -> Result<u64> {
    let storage = blobs::storage(app)?;
    let entry = app.uploads.of(target, app.clock.now());
    let mut upload = entry.lock().await;
    upload.check_chunk(attempt, offset, &data)?;
    if offset == 0 {
        begin(app, storage, (target, &mut upload), attempt).await?;
    }
    add(storage, &mut upload, &data).await?;
    Ok(upload.length)
}

/// Begins an upload again, in a file with another name.
async fn begin(
    app: &AppState,
    storage: &Arc<dyn BlobStorage>,
    (target, upload): (&UploadTarget, &mut Upload),
    attempt: u32,
) -> Result<(), BlobError> {
    discard(storage, upload).await?;
    *upload = app.uploads.begin(target, attempt, app.clock.suffix());
    Ok(())
}

/// Adds a chunk to an upload. The chunk is hashed while a thread writes it. After a failed write,
/// the client sends the same chunk again. After a failed sync, the upload is over, so that the same
/// chunk is refused, and the client begins again.
async fn add(storage: &Arc<dyn BlobStorage>, upload: &mut Upload, data: &Bytes) -> Result<(), BlobError> {
    let written = storage.write(&upload.name, upload.length, data.clone());
    let (written, longer) = tokio::join!(written, async { upload.with(data) });
    match written {
        Ok(()) => *upload = longer,
        Err(BlobError::Unsynced(_)) => {
            // A file that stays is removed when the upload begins again, or by a sweep.
            let _removed = discard(storage, upload).await;
            *upload = Upload::default();
        }
        Err(_) => {}
    }
    written
}

/// Removes the file of an upload, if it has one.
async fn discard(storage: &Arc<dyn BlobStorage>, upload: &Upload) -> Result<(), BlobError> {
    if upload.name.is_empty() { Ok(()) } else { storage.discard(&upload.name).await }
}

/// Ends an upload. When the call returns, the blob of the upload is durable and has a record. The
/// upload has also ended after an error, unless the upload can be published again after that error.
pub(crate) async fn commit(
    app: &AppState,
    caller: &Caller,
    key: &UploadKey,
    length: u64,
    hash: BlobHash,
) -> Result<()> {
    check_holder(app, caller, &key.job_id, key.attempt).await?;
    commit_upload(app, &key.into(), key.attempt, length, hash).await
}

/// Ends the upload of an input, like [`commit`]. An action has to name the blob within an hour.
pub(crate) async fn commit_input(
    app: &AppState,
    caller: &Caller,
    name: ActionId,
    length: u64,
    hash: BlobHash,
) -> Result<()> {
    commit_upload(app, &input_of(caller, name), 0, length, hash).await
}

fn input_of(caller: &Caller, name: ActionId) -> UploadTarget {
    UploadTarget::Input(caller.agent().map(|agent| agent.owner.clone()), name)
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

/// Publishes an upload, unless its content is stored already, and stores the record of the blob. An
/// upload of the same content repairs a blob whose file is missing or damaged.
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
    let mut lost = None;
    if let Some(blob) = blobs::record(app, hash).await? {
        let file = BlobFile::of(hash, &blob);
        if is_intact(storage, &file, blob.length).await? {
            return Ok(());
        }
        warn!(%file, "the file of a blob is missing or damaged; an upload of the same content replaces it");
        lost = Some(blob.suffix);
    }
    storage.write(name, length, checksums).await?;
    storage.publish(name, &BlobFile { hash, suffix: name.to_owned() }).await?;
    let suffix = name.to_owned();
    change_record(app, hash, move |known| {
        Some(match (known, &lost) {
            (None, _) => StoredBlob::new(length, &suffix, now),
            (Some(blob), Some(lost)) => blob.repaired(lost, &suffix),
            // Another upload has stored the same content meanwhile.
            (Some(blob), None) => blob.uploaded_again(now),
        })
    })
    .await
}

/// Changes the record of a blob. Without a new record, the record stays as it is.
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

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use agenix_protocol::blob::BlobHash;
    use bytes::Bytes;

    use super::{UploadTarget, add, blobs, commit_upload, write_chunk};
    use crate::{
        blobs::{
            BlobError, BlobFile, BlobFuture, BlobStorage, ListedFile, directory::BlobDirectory,
            uploads::Uploads,
        },
        startup::services::without_tasks,
        sync::lock,
    };

    /// Directory whose next write fails after the bytes are written.
    struct FailingDirectory {
        directory: BlobDirectory,
        next_error: Mutex<Option<BlobError>>,
    }

    impl BlobStorage for FailingDirectory {
        fn write(&self, upload: &str, offset: u64, data: Bytes) -> BlobFuture<()> {
            let (written, error) =
                (self.directory.write(upload, offset, data), lock(&self.next_error).take());
            Box::pin(async move {
                written.await?;
                error.map_or(Ok(()), Err)
            })
        }

        fn publish(&self, upload: &str, file: &BlobFile) -> BlobFuture<()> {
            self.directory.publish(upload, file)
        }

        fn discard(&self, upload: &str) -> BlobFuture<()> {
            self.directory.discard(upload)
        }

        fn read(&self, file: &BlobFile, ranges: Vec<(u64, usize)>) -> BlobFuture<Vec<Bytes>> {
            self.directory.read(file, ranges)
        }

        fn remove(&self, part: u8, name: &str) -> BlobFuture<()> {
            self.directory.remove(part, name)
        }

        fn list(&self, part: u8) -> BlobFuture<Vec<ListedFile>> {
            self.directory.list(part)
        }

        fn list_uploads(&self) -> BlobFuture<Vec<ListedFile>> {
            self.directory.list_uploads()
        }
    }

    /// Lets the write of the second chunk of an upload fail with `error`. Returns the answer to the
    /// same chunk, sent again, and the number of files of uploads before it.
    async fn repeated_after(error: BlobError) -> (Result<(), String>, usize) {
        let dir = tempfile::tempdir().unwrap();
        let directory = BlobDirectory::open(dir.path()).unwrap();
        let failing = Arc::new(FailingDirectory { directory, next_error: Mutex::default() });
        let storage = Arc::clone(&failing) as Arc<dyn BlobStorage>;
        let target = UploadTarget::Input(None, "i".parse().unwrap());
        let mut upload = Uploads::default().begin(&target, 0, "u".into());
        let chunk = Bytes::from_static(b"hello");
        add(&storage, &mut upload, &chunk).await.unwrap();
        *lock(&failing.next_error) = Some(error.clone());
        assert_eq!(add(&storage, &mut upload, &chunk).await, Err(error));
        let answer = upload.check_chunk(0, 5, &chunk).map_err(|rejection| rejection.to_string());
        (answer, storage.list_uploads().await.unwrap().len())
    }

    #[tokio::test]
    async fn upload_of_the_same_content_repairs_a_lost_blob() {
        let dir = tempfile::tempdir().unwrap();
        let app = without_tasks(dir.path(), |_| {});
        let content = Bytes::from_static(b"hello");
        let hash = BlobHash::of(&content);
        let upload = async || {
            let target = UploadTarget::Input(None, "i".parse().unwrap());
            write_chunk(&app, &target, 0, 0, content.clone()).await.unwrap();
            commit_upload(&app, &target, 0, 5, hash).await.unwrap();
            let blob = blobs::record(&app, hash).await.unwrap().unwrap();
            app.blobs.as_ref().unwrap().path(&BlobFile::of(hash, &blob)).unwrap()
        };
        let first = upload().await;
        assert_eq!(upload().await, first, "the content is stored once");
        std::fs::remove_file(&first).unwrap();
        let second = upload().await;
        assert_ne!(second, first);
        assert_eq!(blobs::read(&app, hash, (0, 10)).await.unwrap(), content);
        std::fs::write(&second, [&b"jello"[..], &std::fs::read(&second).unwrap()[5..]].concat()).unwrap();
        upload().await;
        assert_eq!(blobs::read(&app, hash, (0, 10)).await.unwrap(), content);
    }

    #[tokio::test]
    async fn upload_begins_again_in_another_file_after_a_failed_sync() {
        let refusal = "Invalid upload: offset is 5, but the upload has 0 bytes".to_owned();
        assert_eq!(repeated_after(BlobError::Unsynced("EIO".into())).await, (Err(refusal), 0));
    }

    #[tokio::test]
    async fn upload_goes_on_in_its_file_after_a_failed_write() {
        assert_eq!(repeated_after(BlobError::Failed("the disk is full".into())).await, (Ok(()), 1));
    }
}
