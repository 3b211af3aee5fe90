//! Sweep of blobs: removes blobs and files that no job names, and bounds the bytes of all blobs.
//!
//! A sweep goes through some records of blobs, and through a part of the storage. The next sweep
//! goes on from there.

use std::{collections::HashSet, sync::Arc};

use agenix_protocol::{blob::BlobHash, ids::JobId, time::Timestamp};
use agenix_rules::blob::{BLOB_GRACE_MS, JobBlobs, StoredBlob};
use tracing::{info, warn};

use super::{blobs::record, lookup};
use crate::{
    app::AppState,
    blobs::{BlobFile, BlobStorage, ListedFile, PARTS},
    error::Result,
    registry::last_figures::BlobTotals,
    store::{DocumentChange, DocumentKind},
};

/// Number of records of one read, and of reads of one sweep.
const PAGE: usize = 1000;
const MAX_PAGES: usize = 10;

/// Position of the sweep in the records and in the storage.
#[derive(Debug, Default)]
pub(crate) struct BlobSweep {
    /// Id of the last record that was looked at; empty at the start of a pass.
    after: String,
    /// Blobs of this pass so far.
    found: BlobTotals,
    next_part: u16,
}

impl BlobSweep {
    /// Removes what no job names. The leader of several nodes calls this.
    pub(crate) async fn run(&mut self, app: &AppState) -> Result<()> {
        let Some(storage) = app.blobs.clone() else { return Ok(()) };
        for _page in 0..MAX_PAGES {
            if self.sweep_page(app, &storage).await? {
                self.end_pass(app).await?;
                break;
            }
        }
        sweep_part(app, &storage, self.next_part).await?;
        self.next_part = (self.next_part + 1) % PARTS;
        sweep_uploads(app).await
    }

    /// Removes the blobs without a job among the next records. Returns true after the last one.
    async fn sweep_page(&mut self, app: &AppState, storage: &Arc<dyn BlobStorage>) -> Result<bool> {
        let page = app.store.documents_after(DocumentKind::Blob, &self.after, PAGE).await?;
        for (id, json) in &page {
            let blob: StoredBlob = lookup::parse("blob", id, json)?;
            if !blob.is_removable(app.clock.now()) || !remove_record(app, storage, id, &blob).await? {
                self.found.count += 1;
                self.found.bytes = self.found.bytes.saturating_add(blob.length);
            }
        }
        match page.last() {
            Some((last, _)) if page.len() == PAGE => {
                self.after.clone_from(last);
                Ok(false)
            }
            _ => Ok(true),
        }
    }

    async fn end_pass(&mut self, app: &AppState) -> Result<()> {
        self.after.clear();
        let found = std::mem::take(&mut self.found);
        app.last_figures.keep_blobs(Some(found));
        let (total, most) = (found.bytes, app.settings.keep_blob_bytes);
        if most > 0 && total > most {
            remove_oldest(app, total - most).await?;
        }
        Ok(())
    }
}

/// Removes a record, and then its file. Returns false if the blob is in use again. A backup delays
/// the removal, but the blob counts as removed, because otherwise jobs would be removed instead.
async fn remove_record(
    app: &AppState,
    storage: &Arc<dyn BlobStorage>,
    id: &str,
    blob: &StoredBlob,
) -> Result<bool> {
    let now = app.clock.now();
    let Some(_permit) = app.backups.permit_removal(now).await else { return Ok(true) };
    let rule = move |known: Option<&str>| {
        let known: Option<StoredBlob> = known.and_then(|json| serde_json::from_str(json).ok());
        let is_removable = known.is_some_and(|blob| blob.is_removable(now));
        Ok(if is_removable { DocumentChange::Remove } else { DocumentChange::Keep })
    };
    app.store.update_document(DocumentKind::Blob, id, Box::new(rule)).await??;
    let Ok(hash) = id.parse::<BlobHash>() else { return Ok(true) };
    if record(app, hash).await?.is_some_and(|other| other.suffix == blob.suffix) {
        return Ok(false);
    }
    let file = BlobFile::of(hash, blob);
    if let Err(error) = storage.remove(hash.0[0], &file.to_string()).await {
        // A later sweep finds the file without a record.
        warn!(%file, %error, "the file of a removed blob could not be deleted");
    }
    Ok(true)
}

/// Removes the jobs with blobs that ended first, until their blobs have `excess` bytes.
async fn remove_oldest(app: &AppState, excess: u64) -> Result<()> {
    let mut oldest = ended_with_blobs(app).await?;
    oldest.sort();
    let (mut left, mut jobs) = (excess, 0);
    for (_, job_id, blobs) in oldest {
        if left == 0 {
            break;
        }
        let Some(job) = app.store.job_record(&job_id).await?.filter(|job| job.is_ended()) else { continue };
        for hash in blobs {
            let blob = record(app, hash).await?.filter(|blob| blob.jobs == 1);
            left = left.saturating_sub(blob.map_or(0, |blob| blob.length));
        }
        app.store.forget_job(&job_id, job.status()).await?;
        jobs += 1;
    }
    info!(jobs, excess, "the blobs exceed --keep-blob-bytes, and the oldest jobs with blobs were removed");
    Ok(())
}

/// Returns the jobs whose results or inputs name blobs, each with its end as far as that is known.
async fn ended_with_blobs(app: &AppState) -> Result<Vec<(Timestamp, JobId, Vec<BlobHash>)>> {
    let mut found = with_blobs(app, DocumentKind::JobBlobs).await?;
    found.extend(with_blobs(app, DocumentKind::JobInputs).await?);
    Ok(found)
}

async fn with_blobs(app: &AppState, kind: DocumentKind) -> Result<Vec<(Timestamp, JobId, Vec<BlobHash>)>> {
    let (mut found, mut after) = (Vec::new(), String::new());
    loop {
        let page = app.store.documents_after(kind, &after, PAGE).await?;
        for (id, json) in &page {
            let of_job: JobBlobs = lookup::parse("blobs of job", id, json)?;
            let Ok(job_id) = JobId::new(id.as_str()) else { continue };
            found.push((of_job.ended_at.unwrap_or_default(), job_id, of_job.blobs));
        }
        match page.last() {
            Some((last, _)) if page.len() == PAGE => after.clone_from(last),
            _ => return Ok(found),
        }
    }
}

fn is_old(file: &ListedFile, now: Timestamp) -> bool {
    now.ms_since(file.modified_at) > BLOB_GRACE_MS
}

/// Removes the files of a part that have no record.
async fn sweep_part(app: &AppState, storage: &Arc<dyn BlobStorage>, part: u16) -> Result<()> {
    let part = u8::try_from(part).unwrap_or_default();
    for file in storage.list(part).await? {
        if !is_old(&file, app.clock.now()) {
            continue;
        }
        if let Some(known) = BlobFile::parse(&file.name)
            && record(app, known.hash).await?.is_some_and(|blob| blob.suffix == known.suffix)
        {
            continue;
        }
        info!(
            file = file.name,
            bytes = file.bytes,
            "a file of the storage of blobs has no record, and was removed"
        );
        storage.remove(part, &file.name).await?;
    }
    Ok(())
}

/// Removes uploads without a piece for a while, also those of earlier processes.
pub(crate) async fn sweep_uploads(app: &AppState) -> Result<()> {
    let Some(storage) = &app.blobs else { return Ok(()) };
    let now = app.clock.now();
    for name in app.uploads.expire(now) {
        storage.discard(&name).await?;
    }
    let own: HashSet<String> = app.uploads.names().into_iter().collect();
    for file in storage.list_uploads().await? {
        if is_old(&file, now) && !own.contains(&file.name) {
            storage.discard(&file.name).await?;
        }
    }
    Ok(())
}
