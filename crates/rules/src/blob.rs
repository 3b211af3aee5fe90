//! Record of a blob: where its content is, and how many jobs name it.

use agenix_protocol::{blob::BlobHash, time::Timestamp};
use serde::{Deserialize, Serialize};

/// Time after the last upload for which a blob without a job is kept, because the report that names
/// it may be on its way, in milliseconds.
pub const BLOB_GRACE_MS: u64 = 3_600_000;

/// Stored record of a blob.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[must_use]
pub struct StoredBlob {
    /// Number of bytes of the content.
    pub length: u64,
    /// Suffix of its file, which no other file of the same content has.
    pub suffix: String,
    /// Number of the jobs whose results name the blob.
    pub jobs: u64,
    /// Number of uploads that no report has named yet. An upload whose worker died stays counted.
    pub unreported: u64,
    /// Time of the last upload.
    pub uploaded_at: Timestamp,
}

/// Blobs that the results of a job name, stored while it has these results.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobBlobs {
    /// Time of the end; `None` for a job that waits for a retry.
    pub ended_at: Option<Timestamp>,
    /// The blobs, each once.
    pub blobs: Vec<BlobHash>,
}

impl StoredBlob {
    /// Returns the record of a new blob.
    pub fn new(length: u64, suffix: &str, now: Timestamp) -> Self {
        Self { length, suffix: suffix.to_owned(), jobs: 0, unreported: 1, uploaded_at: now }
    }

    /// Returns the record after another upload of the same content, whose file is not needed.
    pub fn uploaded_again(self, now: Timestamp) -> Self {
        Self { unreported: self.unreported + 1, uploaded_at: now, ..self }
    }

    /// Returns the record after the report of a job has named the blob.
    pub fn named(self) -> Self {
        Self { jobs: self.jobs + 1, unreported: self.unreported.saturating_sub(1), ..self }
    }

    /// Returns the record after one job less names the blob.
    pub fn released(self) -> Self {
        Self { jobs: self.jobs.saturating_sub(1), ..self }
    }

    /// Returns true if no job names the blob, and no report that names it can be on its way.
    pub fn is_removable(&self, now: Timestamp) -> bool {
        self.jobs == 0 && (self.unreported == 0 || now.ms_since(self.uploaded_at) >= BLOB_GRACE_MS)
    }
}

#[cfg(test)]
mod tests {
    use agenix_protocol::time::Timestamp;

    use super::{BLOB_GRACE_MS, StoredBlob};

    #[test]
    fn blob_is_removable_without_a_job_and_without_an_unreported_upload() {
        let (start, later) = (Timestamp(1000), Timestamp(5000));
        let blob = StoredBlob::new(7, "a", start);
        assert!(!blob.is_removable(Timestamp(start.0 + BLOB_GRACE_MS - 1)));
        assert!(blob.is_removable(start.plus_ms(BLOB_GRACE_MS)), "its worker died");
        let twice = blob.named().uploaded_again(later).named();
        assert_eq!((twice.jobs, twice.unreported, twice.uploaded_at), (2, 0, later));
        let once = twice.released();
        assert!(!once.is_removable(later.plus_ms(BLOB_GRACE_MS)));
        let free = once.released();
        assert!(free.is_removable(later) && free.is_removable(start), "a report names it no more");
        let again = free.uploaded_again(later);
        assert!(!again.is_removable(later) && !again.is_removable(start), "the clock was set back");
        assert_eq!(again.suffix, "a", "the first file stays");
    }
}
