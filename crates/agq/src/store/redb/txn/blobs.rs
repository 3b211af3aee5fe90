//! Counts of the jobs that name a blob, in a write transaction.

use std::collections::BTreeSet;

use agenix_protocol::{blob::BlobHash, documents::to_json, ids::JobId};
use agenix_rules::{
    blob::{JobBlobs, StoredBlob},
    job::Job,
    rejection::Rejection,
};
use redb::Error;

use crate::store::{
    DocumentKind, ReportedResults, RuleResult,
    redb::{schema::Result, txn::WriteTxn},
};

impl WriteTxn<'_> {
    /// Rejects results that name a blob without a record.
    pub(crate) fn check_blobs(&self, blobs: &BTreeSet<BlobHash>) -> Result<RuleResult<()>> {
        for hash in blobs {
            if self.blob(*hash)?.is_none() {
                return Ok(Err(Rejection::BlobNotFound(*hash)));
            }
        }
        Ok(Ok(()))
    }

    /// Counts a job with the blobs of its new results instead of those of its earlier ones.
    pub(crate) fn set_blobs(&mut self, job: &Job, results: &ReportedResults) -> Result<()> {
        self.release_blobs(DocumentKind::JobBlobs, &job.job_id)?;
        let blobs = results.blobs.iter().copied().collect();
        self.name_blobs(DocumentKind::JobBlobs, &job.job_id, &JobBlobs { ended_at: job.ended_at, blobs })
    }

    /// Counts a new job with the blobs of its input.
    pub(crate) fn set_input_blobs(&mut self, job_id: &JobId, blobs: &BTreeSet<BlobHash>) -> Result<()> {
        let blobs = blobs.iter().copied().collect();
        self.name_blobs(DocumentKind::JobInputs, job_id, &JobBlobs { ended_at: None, blobs })
    }

    fn name_blobs(&mut self, kind: DocumentKind, job_id: &JobId, of_job: &JobBlobs) -> Result<()> {
        for hash in &of_job.blobs {
            if let Some(blob) = self.blob(*hash)? {
                self.put_blob(*hash, &blob.named());
            }
        }
        if !of_job.blobs.is_empty() {
            self.put_document(kind, job_id.as_str(), &to_json(of_job));
        }
        Ok(())
    }

    /// Uncounts a job whose results or input are removed.
    pub(crate) fn release_blobs(&mut self, kind: DocumentKind, job_id: &JobId) -> Result<()> {
        let key = (kind.as_str(), job_id.as_str());
        let Some(of_job) = self.tables.documents.get(key)?.map(|document| read::<JobBlobs>(document.value()))
        else {
            return Ok(());
        };
        for hash in of_job?.blobs {
            if let Some(blob) = self.blob(hash)? {
                self.put_blob(hash, &blob.released());
            }
        }
        self.tables.documents.remove(key);
        Ok(())
    }

    fn blob(&self, hash: BlobHash) -> Result<Option<StoredBlob>> {
        let document = self.tables.documents.get((DocumentKind::Blob.as_str(), hash.to_string().as_str()))?;
        document.map(|document| read(document.value())).transpose()
    }

    fn put_blob(&mut self, hash: BlobHash, blob: &StoredBlob) {
        self.put_document(DocumentKind::Blob, &hash.to_string(), &to_json(blob));
    }
}

fn read<T: serde::de::DeserializeOwned>(json: &str) -> Result<T> {
    serde_json::from_str(json).map_err(|error| Error::Corrupted(error.to_string()))
}
