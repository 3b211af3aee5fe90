//! Unfinished uploads of this process. A restart drops all uploads, and the workers begin these
//! uploads again.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex},
};

use agenix_protocol::{
    blob::{BlobHash, BlobHasher, OutputStream},
    blob_blocks::BlockSums,
    ids::{ActionId, JobId},
    request::UploadKey,
    time::Timestamp,
};
use agenix_rules::{blob, owner::Owner, rejection::Rejection};
use bytes::Bytes;

use crate::sync::lock;

/// Time without a chunk after which an upload is removed, in milliseconds.
const MAX_IDLE_MS: u64 = 3_600_000;

/// Purpose of an upload.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum UploadTarget {
    /// Stream of a task, whatever the attempt.
    Output(JobId, u32, OutputStream),
    /// Input under a name that the client has chosen. Each agent has names of its own; all other
    /// clients share theirs.
    Input(Option<Owner>, ActionId),
}

impl From<&UploadKey> for UploadTarget {
    fn from(key: &UploadKey) -> Self {
        Self::Output(key.job_id.clone(), key.task_number, key.stream)
    }
}

/// Unfinished uploads by their purpose.
#[derive(Default)]
pub(crate) struct Uploads(Mutex<HashMap<UploadTarget, UploadEntry>>);

struct UploadEntry {
    /// Locked while a chunk is written, because chunks come in their order.
    upload: Arc<tokio::sync::Mutex<Upload>>,
    /// Name of the file; empty before the first chunk. The name is also known while the upload is
    /// locked.
    name: String,
    used_at: Timestamp,
}

/// Bytes that agq has received of a stream.
#[derive(Debug, Clone, Default)]
pub(crate) struct Upload {
    attempt: u32,
    /// Name of the file; empty before the first chunk.
    pub(crate) name: String,
    pub(crate) length: u64,
    /// Number of bytes of the file if agq has adopted the file of the worker, so that no chunk has
    /// to be written.
    pub(crate) adopted: Option<u64>,
    hash: BlobHasher,
    sums: BlockSums,
}

impl Uploads {
    /// Returns the upload of a target, new or in progress.
    pub(crate) fn of(&self, target: &UploadTarget, now: Timestamp) -> Arc<tokio::sync::Mutex<Upload>> {
        let mut all = lock(&self.0);
        let new = || UploadEntry { upload: Arc::default(), name: String::new(), used_at: now };
        let entry = all.entry(target.clone()).or_insert_with(new);
        entry.used_at = now;
        Arc::clone(&entry.upload)
    }

    /// Begins an upload again in the file `name`, so that a sweep spares the file.
    pub(crate) fn begin(&self, target: &UploadTarget, attempt: u32, name: String) -> Upload {
        if let Some(entry) = lock(&self.0).get_mut(target) {
            entry.name.clone_from(&name);
        }
        Upload { attempt, name, ..Upload::default() }
    }

    pub(crate) fn remove(&self, target: &UploadTarget) {
        lock(&self.0).remove(target);
    }

    /// Removes the uploads without a chunk for an hour. Returns the names of their files.
    pub(crate) fn expire(&self, now: Timestamp) -> Vec<String> {
        let mut all = lock(&self.0);
        // An upload that is locked is being written or published.
        let is_idle = |entry: &UploadEntry| {
            now.ms_since(entry.used_at) > MAX_IDLE_MS && entry.upload.try_lock().is_ok()
        };
        let idle = all.extract_if(|_, entry| is_idle(entry));
        idle.map(|(_, entry)| entry.name).filter(|name| !name.is_empty()).collect()
    }

    /// Returns the names of the files of all uploads.
    pub(crate) fn names(&self) -> HashSet<String> {
        lock(&self.0).values().map(|entry| entry.name.clone()).collect()
    }
}

impl Upload {
    /// Checks that a chunk of `attempt` follows the bytes that agq has received.
    pub(crate) fn check_chunk(&self, attempt: u32, offset: u64, data: &Bytes) -> Result<(), Rejection> {
        blob::check_chunk(self.received(attempt), offset, data.len())
    }

    /// Returns the number of received bytes of an attempt.
    fn received(&self, attempt: u32) -> u64 {
        if attempt == self.attempt { self.length } else { 0 }
    }

    /// Returns the upload with a further chunk.
    pub(crate) fn with(&self, data: &[u8]) -> Self {
        let mut longer = self.clone();
        longer.add(data);
        longer
    }

    /// Adds a chunk.
    pub(crate) fn add(&mut self, data: &[u8]) {
        self.hash.update(data);
        self.sums.add(data);
        self.length += data.len() as u64;
    }

    /// Returns the hash of the received bytes.
    pub(crate) fn hash(&self) -> BlobHash {
        self.hash.clone().finish()
    }

    /// Checks the whole upload. Returns the checksums that follow the content.
    pub(crate) fn check_whole(&self, attempt: u32, length: u64, hash: BlobHash) -> Result<Bytes, Rejection> {
        let received = self.adopted.filter(|_| attempt == self.attempt);
        let received = received.unwrap_or_else(|| self.received(attempt));
        blob::check_whole((received, self.hash()), (length, hash))?;
        Ok(self.sums.clone().finish())
    }
}

#[cfg(test)]
mod tests {
    use agenix_protocol::{blob::OutputStream, request::UploadKey, time::Timestamp};
    use bytes::Bytes;

    use super::{MAX_IDLE_MS, Upload, UploadTarget, Uploads};

    fn target(attempt: u32) -> UploadTarget {
        let job_id = "j".parse().unwrap();
        UploadTarget::from(&UploadKey { job_id, attempt, task_number: 1, stream: OutputStream::Stdout })
    }

    fn begun() -> Upload {
        Uploads::default().begin(&target(1), 1, "u".into())
    }

    #[test]
    fn upload_takes_chunks_in_their_order() {
        let chunk = Bytes::from_static(b"hello");
        let upload = begun();
        assert_eq!(upload.check_chunk(1, 0, &chunk), Ok(()));
        let upload = upload.with(&chunk);
        assert_eq!(upload.length, 5);
        assert_eq!(upload.check_chunk(1, 5, &chunk), Ok(()));
        assert_eq!(upload.check_chunk(1, 0, &chunk), Ok(()), "it may begin again");
        let error = |attempt, offset, chunk: &Bytes| {
            upload.check_chunk(attempt, offset, chunk).unwrap_err().to_string()
        };
        assert_eq!(error(1, 4, &chunk), "Invalid upload: offset is 4, but the upload has 5 bytes");
        assert_eq!(error(2, 5, &chunk), "Invalid upload: offset is 5, but the upload has 0 bytes");
        assert_eq!(error(1, 5, &Bytes::new()), "Invalid upload: the chunk is empty");
    }

    #[test]
    fn upload_is_checked_as_a_whole() {
        let upload = begun().with(b"hello world");
        let hash = "d74981efa70a0c880b8d8c1985d075dbcbf679b99a5f9914e5aaf96b831a9e24".parse().unwrap();
        assert_eq!(upload.check_whole(1, 11, hash).unwrap().len(), 4);
        let error = |attempt, length| upload.check_whole(attempt, length, hash).unwrap_err().to_string();
        assert_eq!(error(1, 12), "Invalid upload: it has 11 bytes, not 12");
        assert_eq!(error(2, 11), "Invalid upload: it has 0 bytes, not 11");
        let upload = upload.with(b"!");
        assert!(upload.check_whole(1, 12, hash).unwrap_err().to_string().contains("its BLAKE3 hash is "));
    }

    #[tokio::test]
    async fn uploads_expire_without_a_chunk() {
        let (uploads, start) = (Uploads::default(), Timestamp(1000));
        let upload = uploads.of(&target(1), start);
        *upload.lock().await = uploads.begin(&target(1), 1, "u".into());
        let last = start.plus_ms(MAX_IDLE_MS);
        assert!(uploads.expire(last).is_empty());
        let published = upload.lock().await;
        assert!(uploads.expire(last.plus_ms(1)).is_empty(), "its publication lasts long");
        assert_eq!(uploads.names(), ["u".to_owned()].into());
        drop(published);
        assert_eq!(uploads.expire(last.plus_ms(1)), ["u"]);
        assert!(uploads.of(&target(1), last).lock().await.name.is_empty());
    }

    #[test]
    fn upload_that_has_not_begun_has_no_file() {
        let (uploads, start) = (Uploads::default(), Timestamp(1000));
        drop(uploads.of(&target(1), start));
        assert!(uploads.expire(start.plus_ms(MAX_IDLE_MS + 1)).is_empty());
        assert!(uploads.names().is_empty(), "it has expired");
    }
}
