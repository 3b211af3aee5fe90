//! Counts of the jobs that name a blob, in a write transaction.
//!
//! The records of blobs are the last rows that a transaction locks, all at once and in one order,
//! when it writes its buffered changes.

use std::collections::{BTreeMap, BTreeSet};

use agenix_protocol::{blob::BlobHash, documents::to_json, ids::JobId};
use agenix_rules::{
    blob::{JobBlobs, StoredBlob},
    job::Job,
    rejection::Rejection,
};
use serde::de::DeserializeOwned;
use sqlx::{Error, Result, Row, query};

use crate::store::{
    DocumentKind, NewAction, ReportedResults, RuleResult,
    postgres::{
        connection::DatabaseSession,
        txn::{PgTxn, locked_rows::put},
    },
};

/// Changes of the uses of blobs that a transaction has buffered.
#[derive(Default)]
pub(crate) struct BlobUses {
    /// Blobs that new results and inputs name, by their job.
    named: BTreeMap<(DocumentKind, JobId), JobBlobs>,
    /// Numbers of jobs that no longer name a blob.
    released: BTreeMap<BlobHash, u64>,
}

const LOCK: &str = "SELECT id, json FROM agq.notes WHERE kind = $1 AND id = ANY ($2) ORDER BY id FOR UPDATE";

impl BlobUses {
    /// Removes the lists of blobs of jobs whose results, or also inputs, are removed, and uncounts
    /// these jobs.
    pub(crate) fn release(
        &mut self,
        session: &DatabaseSession,
        kinds: &[DocumentKind],
        jobs: &[&str],
    ) -> Result<()> {
        self.named.retain(|(kind, job_id), _| !(kinds.contains(kind) && jobs.contains(&job_id.as_str())));
        let sql = "DELETE FROM agq.notes WHERE kind = ANY ($1) AND id = ANY ($2) RETURNING json";
        let kinds: Vec<&str> = kinds.iter().map(|kind| kind.as_str()).collect();
        for row in session.rows(query(sql).bind(kinds).bind(jobs))? {
            for hash in read::<JobBlobs>(row.try_get(0)?)?.blobs {
                *self.released.entry(hash).or_default() += 1;
            }
        }
        Ok(())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.named.is_empty() && self.released.is_empty()
    }

    /// Writes the buffered changes.
    pub(crate) fn write(&mut self, session: &DatabaseSession) -> Result<()> {
        let Self { named, released } = std::mem::take(self);
        let named_hashes = named.values().flat_map(|of_job| &of_job.blobs);
        let hashes: BTreeSet<BlobHash> = released.keys().chain(named_hashes).copied().collect();
        if hashes.is_empty() {
            return Ok(());
        }
        let ids: Vec<String> = hashes.iter().map(BlobHash::to_string).collect();
        let mut blobs: BTreeMap<String, StoredBlob> = BTreeMap::new();
        for row in session.rows(query(LOCK).bind(DocumentKind::Blob.as_str()).bind(&ids))? {
            blobs.insert(row.try_get(0)?, read(row.try_get(1)?)?);
        }
        for (hash, count) in released {
            change(&mut blobs, hash, |blob| (0..count).fold(blob, |blob, _| blob.released()));
        }
        for of_job in named.values() {
            for hash in &of_job.blobs {
                // The check at the start of the decision found the record.
                if !change(&mut blobs, *hash, StoredBlob::named) {
                    return Err(Error::RowNotFound);
                }
            }
        }
        let json = |blob: &StoredBlob| to_json(blob);
        put(session, DocumentKind::Blob, blobs.iter().map(|(id, blob)| (id.clone(), json(blob))).unzip())?;
        for of_kind in [DocumentKind::JobBlobs, DocumentKind::JobInputs] {
            let of_jobs = named.iter().filter(|((kind, _), _)| *kind == of_kind);
            let documents = of_jobs.map(|((_, job_id), of_job)| (job_id.to_string(), to_json(of_job)));
            put(session, of_kind, documents.unzip())?;
        }
        Ok(())
    }
}

/// Changes the record of a blob. Returns false if there is no record.
fn change(
    blobs: &mut BTreeMap<String, StoredBlob>,
    hash: BlobHash,
    change: impl FnOnce(StoredBlob) -> StoredBlob,
) -> bool {
    let Some(blob) = blobs.get_mut(&hash.to_string()) else { return false };
    *blob = change(blob.clone());
    true
}

fn read<T: DeserializeOwned>(json: &str) -> Result<T> {
    serde_json::from_str(json).map_err(|error| Error::Decode(Box::new(error)))
}

impl PgTxn<'_> {
    /// Rejects results that name a blob without a record.
    pub(crate) fn check_blobs(&self, blobs: &BTreeSet<BlobHash>) -> Result<RuleResult<()>> {
        if blobs.is_empty() {
            return Ok(Ok(()));
        }
        let ids: Vec<String> = blobs.iter().map(BlobHash::to_string).collect();
        let sql = "SELECT id FROM agq.notes WHERE kind = $1 AND id = ANY ($2)";
        let rows = self.session.rows(query(sql).bind(DocumentKind::Blob.as_str()).bind(ids))?;
        let known = rows.iter().map(|row| row.try_get(0)).collect::<Result<BTreeSet<String>>>()?;
        let missing = blobs.iter().find(|hash| !known.contains(&hash.to_string()));
        Ok(missing.map_or(Ok(()), |hash| Err(Rejection::BlobNotFound(*hash))))
    }

    /// Counts a job with the blobs of its results. Earlier results of the same attempt name no
    /// blobs, because only the report of an end may name blobs.
    pub(crate) fn set_blobs(&mut self, job: &Job, results: &ReportedResults) {
        if results.blobs.is_empty() {
            return;
        }
        let of_job = JobBlobs { ended_at: job.ended_at, blobs: results.blobs.iter().copied().collect() };
        self.blobs.named.insert((DocumentKind::JobBlobs, job.job_id.clone()), of_job);
    }

    /// Counts the new jobs with the blobs of their inputs.
    pub(crate) fn set_input_blobs(&mut self, new: &NewAction) {
        for (job_id, blobs) in &new.input_blobs {
            let of_job = JobBlobs { ended_at: None, blobs: blobs.iter().copied().collect() };
            self.blobs.named.insert((DocumentKind::JobInputs, job_id.clone()), of_job);
        }
    }
}
