//! Storage of blobs in a bucket of S3, or of a server with the same interface (ADR 21).
//!
//! `PREFIX/00` to `PREFIX/ff` have the blobs. Uploads are local files until they are published.

mod address;
mod availability;
mod connection;
mod failure;
mod publication;
#[cfg(test)]
mod tests;

use std::{ops::Range, sync::Arc};

use agenix_protocol::time::Timestamp;
use bytes::Bytes;
use futures_util::TryStreamExt;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt, path::Path};

pub(crate) use self::address::BucketAddress;
use self::{
    availability::Availability,
    failure::{failure, is_lost_object},
    publication::Publications,
};
use super::{BlobError, BlobFile, BlobFuture, BlobStorage, ListedFile, directory::BlobDirectory};

/// Time by which an object may be younger than its date, in milliseconds: S3 dates it by the begin
/// of its upload. An upload has less time than this to end and to get its record.
const DATE_TOLERANCE_MS: u64 = 24 * 3_600_000;

#[derive(Debug, Clone)]
pub(crate) struct BucketStorage {
    store: Arc<dyn ObjectStore>,
    address: BucketAddress,
    /// Directory of the uploads.
    staging: BlobDirectory,
    publications: Publications,
    availability: Availability,
}

impl BucketStorage {
    /// `large_files` has the requests of publications of large files, which may take longer.
    /// `endpoint` is the address of the server in log lines.
    fn new(
        store: Arc<dyn ObjectStore>,
        large_files: Arc<dyn ObjectStore>,
        address: &BucketAddress,
        (staging, endpoint): (BlobDirectory, &str),
    ) -> Self {
        Self {
            store,
            address: address.clone(),
            staging,
            publications: Publications::new(large_files),
            availability: Availability::new(endpoint),
        }
    }

    fn prefix_of(&self, part: u8) -> Path {
        self.address.prefix.clone().join(format!("{part:02x}"))
    }

    fn path_of(&self, file: &BlobFile) -> Path {
        self.prefix_of(file.hash.0[0]).join(file.to_string())
    }

    /// Returns the text of a path in messages.
    fn shown(&self, path: &Path) -> String {
        format!("s3://{}/{path}", self.address.bucket)
    }

    fn failed(&self, path: &Path, error: &object_store::Error) -> BlobError {
        self.availability.suspect();
        BlobError::Failed(format!("{}: {}", self.shown(path), failure(error)))
    }

    async fn read_now(&self, path: &Path, ranges: &[(u64, usize)]) -> Result<Vec<Bytes>, BlobError> {
        let of_object: Vec<Range<u64>> =
            ranges.iter().map(|&(offset, length)| offset..offset + length as u64).collect();
        let read = self.store.get_ranges(path, &of_object).await;
        let read = read.map_err(|error| match self.failed(path, &error) {
            BlobError::Failed(text) if is_lost_object(&error) => BlobError::Lost(text),
            failed => failed,
        })?;
        // A server returns what it has of a range.
        let has_all = read.iter().zip(ranges).all(|(bytes, &(_, length))| bytes.len() == length);
        if has_all && read.len() == ranges.len() {
            return Ok(read);
        }
        Err(BlobError::Lost(format!("{}: the object has too few bytes", self.shown(path))))
    }

    /// Removes an object. S3 also confirms the removal of an object that does not exist.
    async fn remove_now(&self, path: &Path) -> Result<(), BlobError> {
        match self.store.delete(path).await {
            Err(error) if !matches!(error, object_store::Error::NotFound { .. }) => {
                Err(self.failed(path, &error))
            }
            _ => Ok(()),
        }
    }

    async fn list_now(&self, prefix: &Path) -> Result<Vec<ListedFile>, BlobError> {
        let objects: Result<Vec<ObjectMeta>, _> = self.store.list(Some(prefix)).try_collect().await;
        let objects = objects.map_err(|error| self.failed(prefix, &error))?;
        Ok(objects.into_iter().filter_map(|object| listed(prefix, &object)).collect())
    }
}

/// Returns the entry of an object in the listing of `prefix`.
fn listed(prefix: &Path, object: &ObjectMeta) -> Option<ListedFile> {
    let name = object.location.as_ref().strip_prefix(prefix.as_ref())?.strip_prefix('/')?;
    let dated_at = u64::try_from(object.last_modified.timestamp_millis()).unwrap_or_default();
    let modified_at = Timestamp(dated_at).plus_ms(DATE_TOLERANCE_MS);
    Some(ListedFile { name: name.to_owned(), bytes: object.size, modified_at })
}

impl BlobStorage for BucketStorage {
    fn write(&self, upload: &str, offset: u64, data: Bytes) -> BlobFuture<()> {
        self.staging.write(upload, offset, data)
    }

    fn publish(&self, upload: &str, file: &BlobFile) -> BlobFuture<()> {
        let path = self.path_of(file);
        let shown = self.shown(&path);
        let sent = self.publications.publish(&self.store, self.staging.upload_path(upload), path, shown);
        let availability = self.availability.clone();
        Box::pin(async move { sent.await.inspect_err(|_| availability.suspect()) })
    }

    fn discard(&self, upload: &str) -> BlobFuture<()> {
        self.publications.forget(&self.staging.upload_path(upload));
        self.staging.discard(upload)
    }

    fn read(&self, file: &BlobFile, ranges: Vec<(u64, usize)>) -> BlobFuture<Vec<Bytes>> {
        let (own, path) = (self.clone(), self.path_of(file));
        Box::pin(async move { own.read_now(&path, &ranges).await })
    }

    fn remove(&self, part: u8, name: &str) -> BlobFuture<()> {
        let (own, prefix, name) = (self.clone(), self.prefix_of(part), name.to_owned());
        Box::pin(async move {
            // The name of a foreign object may have any form that its path permits.
            match Path::parse(format!("{prefix}/{name}")) {
                Ok(path) => own.remove_now(&path).await,
                Err(error) => Err(own.failed(&prefix, &error.into())),
            }
        })
    }

    fn list(&self, part: u8) -> BlobFuture<Vec<ListedFile>> {
        let (own, prefix) = (self.clone(), self.prefix_of(part));
        Box::pin(async move { own.list_now(&prefix).await })
    }

    fn list_uploads(&self) -> BlobFuture<Vec<ListedFile>> {
        self.staging.list_uploads()
    }

    fn is_available(&self) -> bool {
        self.availability.is_available()
    }
}
