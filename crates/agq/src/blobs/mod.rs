//! Blobs: large outputs of tasks, in files beside the database (ADR 20), or in a bucket (ADR 21).
//!
//! [`BlobStorage`] keeps files, and knows nothing of jobs. [`uploads`] has the state of unfinished
//! uploads, and [`agenix_protocol::blob_blocks`] the form of a file. `service::uploads` and
//! `service::outputs` decide which upload and which read is permitted, and the store has the
//! records of blobs.

mod bucket;
pub(crate) mod check;
pub(crate) mod directory;
pub(crate) mod location;
pub(crate) mod uploads;

use std::{fmt, fs::File, io, path::PathBuf, sync::Arc};

use agenix_protocol::{blob::BlobHash, blob_blocks::Blocks, time::Timestamp};
use agenix_rules::blob::StoredBlob;
use bytes::Bytes;
use futures_util::future::BoxFuture;

/// Failure of the storage of blobs. The text names the file if one is damaged or missing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BlobError {
    #[error("the blob store failed: {0}")]
    Failed(String),
    /// The blob is not published, or not yet. The upload is intact, and can be published again.
    #[error("the blob store failed: {0}")]
    Unpublished(String),
    /// A sync of an upload failed. The system reports a lost write once, so that a further sync of
    /// the same file proves nothing, and the upload has to begin again in another file.
    #[error("the blob store failed: {0}")]
    Unsynced(String),
    /// The content of a blob is missing or damaged. The same read fails again.
    #[error("the blob store failed: {0}")]
    Lost(String),
    #[error("Blobs are disabled: start agq with --blob-dir")]
    Disabled,
}

impl From<io::Error> for BlobError {
    fn from(error: io::Error) -> Self {
        Self::Failed(error.to_string())
    }
}

pub(crate) type BlobFuture<T> = BoxFuture<'static, Result<T, BlobError>>;

/// Name of the file of a blob.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct BlobFile {
    pub(crate) hash: BlobHash,
    /// Suffix that no other file of the same content has.
    pub(crate) suffix: String,
}

impl BlobFile {
    pub(crate) fn of(hash: BlobHash, blob: &StoredBlob) -> Self {
        Self { hash, suffix: blob.suffix.clone() }
    }

    /// Parses a name of [`fmt::Display`].
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let (hash, suffix) = name.split_once('-')?;
        Some(Self { hash: hash.parse().ok()?, suffix: suffix.to_owned() })
    }
}

impl fmt::Display for BlobFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.hash, self.suffix)
    }
}

/// File that a listing of the storage has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ListedFile {
    /// Name of the file, which may have any form.
    pub(crate) name: String,
    /// Number of bytes of the file, with its checksums.
    pub(crate) bytes: u64,
    pub(crate) modified_at: Timestamp,
}

/// Number of parts of the storage. A blob is in the part of the first byte of its hash.
pub(crate) const PARTS: u16 = 256;

/// Storage of the files of blobs.
///
/// An upload is a file under a temporary name until it is published. A published file never
/// changes. All methods may be called at the same time, but an upload has one writer.
pub(crate) trait BlobStorage: Send + Sync + 'static {
    /// Writes a chunk of an upload. Offset 0 creates the file. After [`BlobError::Unsynced`], the
    /// earlier chunks may be lost; after another error, the same call tries again.
    fn write(&self, upload: &str, offset: u64, data: Bytes) -> BlobFuture<()>;
    /// Makes an open file without a name the file of a new upload, which saves a copy. Returns
    /// false if that is not possible.
    fn adopt(&self, _upload: &str, _file: &Arc<File>) -> BlobFuture<bool> {
        Box::pin(async { Ok(false) })
    }
    /// Makes an upload durable under the name of `file`. After [`BlobError::Unpublished`], the same
    /// call tries or waits again.
    fn publish(&self, upload: &str, file: &BlobFile) -> BlobFuture<()>;
    /// Removes an upload, if it exists.
    fn discard(&self, upload: &str) -> BlobFuture<()>;
    /// Returns ranges of a file, each an offset and a number of bytes. The error is
    /// [`BlobError::Lost`] if there is no file, or if the file does not have all ranges.
    fn read(&self, file: &BlobFile, ranges: Vec<(u64, usize)>) -> BlobFuture<Vec<Bytes>>;
    /// Returns the path of a published file, if other processes can open the file.
    fn path(&self, _file: &BlobFile) -> Option<PathBuf> {
        None
    }
    /// Removes the file of a blob, or any other file of a listing, if it exists.
    fn remove(&self, part: u8, name: &str) -> BlobFuture<()>;
    /// Returns the files of a part.
    fn list(&self, part: u8) -> BlobFuture<Vec<ListedFile>>;
    /// Returns the unfinished uploads, also those of other processes.
    fn list_uploads(&self) -> BlobFuture<Vec<ListedFile>>;
    /// Returns false while it is known that the storage cannot publish and read.
    fn is_available(&self) -> bool {
        true
    }
}

/// Returns `length` bytes of a blob from `offset`, or fewer at its end. Fails if a block of the
/// range does not have its checksum.
pub(crate) async fn read_range(
    storage: &Arc<dyn BlobStorage>,
    file: &BlobFile,
    total: u64,
    (offset, length): (u64, usize),
) -> Result<Bytes, BlobError> {
    let Some(blocks) = Blocks::of(total, offset, length) else { return Ok(Bytes::new()) };
    let ranges = vec![blocks.data(), blocks.checksums()];
    match storage.read(file, ranges).await?.as_slice() {
        [data, checksums] => blocks
            .verified(data, checksums)
            .ok_or_else(|| BlobError::Lost(format!("the file {file} of a blob is damaged"))),
        _ => Err(BlobError::Failed(format!("the file {file} of a blob cannot be read"))),
    }
}
