//! Records of blobs, and their content.

use std::sync::Arc;

use agenix_protocol::blob::BlobHash;
use agenix_rules::blob::StoredBlob;
use bytes::Bytes;

use super::lookup;
use crate::{
    app::AppState,
    blobs::{BlobError, BlobFile, BlobStorage, read_range},
    error::Result,
    store::DocumentKind,
};

/// Returns the storage of blobs. Fails if this agq stores no blobs.
pub(crate) fn storage(app: &AppState) -> Result<&Arc<dyn BlobStorage>, BlobError> {
    app.blobs.as_ref().ok_or(BlobError::Disabled)
}

/// Returns the record of a blob, if there is one.
pub(crate) async fn record(app: &AppState, hash: BlobHash) -> Result<Option<StoredBlob>> {
    let id = hash.to_string();
    let json = app.store.document(DocumentKind::Blob, &id).await?;
    Ok(json.map(|json| lookup::parse("blob", &id, &json)).transpose()?)
}

/// Returns a range of a blob, given by its offset and its maximum number of bytes.
pub(crate) async fn read(app: &AppState, hash: BlobHash, range: (u64, usize)) -> Result<Bytes> {
    let storage = storage(app)?;
    let missing = || BlobError::Lost(format!("there is no record of the blob {hash}"));
    let blob = record(app, hash).await?.ok_or_else(missing)?;
    Ok(read_range(storage, &BlobFile::of(hash, &blob), blob.length, range).await?)
}
