//! Backups: a consistent copy of the store, made beside the database and read in chunks.

use std::sync::Arc;

use agenix_protocol::{
    blob::BlobHash,
    documents::{BACKUP_CHUNK_BYTES, BackupBegun},
};
use bytes::Bytes;

use super::blobs;
use crate::{
    app::AppState,
    error::{CommandError, Result},
    registry::backups::chunk,
    store::StoreError,
};

/// Returns the id and the length of the copy.
pub(crate) async fn begin(app: &Arc<AppState>) -> Result<BackupBegun> {
    let backup_id = app.clock.backup_id();
    let path = app.backups.begin(app.clock.now())?;
    let app = Arc::clone(app);
    // A task of its own records the backup, even if the client disconnects.
    let made = tokio::spawn(async move {
        // From here to the end of the backup, the sweep removes no blob that the copy may name.
        app.backups.end_of_removals().await;
        match app.store.backup(path.clone()).await {
            Ok(bytes) => {
                app.backups.made(&backup_id, &path, app.clock.now())?;
                Ok(BackupBegun { backup_id, bytes })
            }
            Err(error) => {
                app.backups.failed(&path);
                Err(CommandError::from(error))
            }
        }
    });
    made.await.map_err(|error| StoreError(error.to_string()))?
}

/// Returns the chunk at `offset`, which is empty at the end.
pub(crate) async fn read(app: &AppState, backup_id: &str, offset: u64) -> Result<Vec<u8>> {
    let file = app.backups.file(backup_id, app.clock.now())?;
    let read = tokio::task::spawn_blocking(move || chunk(&file, offset));
    Ok(read.await.map_err(|error| StoreError(error.to_string()))??)
}

/// Returns the chunk of a blob at `offset`, which is empty at its end.
pub(crate) async fn read_blob(app: &AppState, backup_id: &str, hash: BlobHash, offset: u64) -> Result<Bytes> {
    app.backups.file(backup_id, app.clock.now())?;
    blobs::read(app, hash, (offset, BACKUP_CHUNK_BYTES)).await
}
