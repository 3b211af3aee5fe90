//! Sweep of blobs: removes blobs and files that no job names, and bounds the bytes of all blobs.
//!
//! A sweep goes through some records of blobs, and through a part of the storage. The next sweep
//! continues there.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

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

/// Maximum number of files of a part that a pass records as orphans. Later passes find the rest.
const MAX_ORPHANS: usize = 1000;

/// Position of the sweep in the records and in the storage.
#[derive(Debug, Default)]
pub(crate) struct BlobSweep {
    /// Id of the last record that was checked; empty at the start of a pass.
    after: String,
    /// Blobs of this pass so far.
    found: BlobTotals,
    /// Bytes of those blobs that jobs name. Only the removal of jobs frees them.
    named_bytes: u64,
    next_part: u16,
    /// Names of the old files without a record that the previous pass has found, by their parts.
    orphans: HashMap<u8, HashSet<String>>,
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
        let part = u8::try_from(self.next_part).unwrap_or_default();
        self.sweep_part(app, &storage, part).await?;
        self.next_part = (self.next_part + 1) % PARTS;
        sweep_uploads(app).await
    }

    /// Removes the old files of a part that had no record in the previous pass, and still have
    /// none. One pass is not enough: the clock may have been set forward, so that the file of a
    /// commit whose record is about to be stored appears old.
    pub(crate) async fn sweep_part(
        &mut self,
        app: &AppState,
        storage: &Arc<dyn BlobStorage>,
        part: u8,
    ) -> Result<()> {
        let before = self.orphans.remove(&part).unwrap_or_default();
        for file in storage.list(part).await? {
            if !is_old(&file, app.clock.now()) || has_record(app, &file).await? {
                continue;
            }
            if before.contains(&file.name) {
                info!(
                    file = file.name,
                    bytes = file.bytes,
                    "a file of the storage of blobs has no record, and was removed"
                );
                storage.remove(part, &file.name).await?;
                continue;
            }
            let orphans = self.orphans.entry(part).or_default();
            if orphans.len() < MAX_ORPHANS {
                orphans.insert(file.name);
            }
        }
        Ok(())
    }

    /// Removes the blobs without a job among the next records. Returns true after the last one.
    async fn sweep_page(&mut self, app: &AppState, storage: &Arc<dyn BlobStorage>) -> Result<bool> {
        let page = app.store.documents_after(DocumentKind::Blob, &self.after, PAGE).await?;
        for (id, json) in &page {
            let blob: StoredBlob = lookup::parse("blob", id, json)?;
            if !blob.is_removable(app.clock.now()) || !remove_record(app, storage, id, &blob).await? {
                self.found.count += 1;
                self.found.bytes = self.found.bytes.saturating_add(blob.length);
                if blob.jobs > 0 {
                    self.named_bytes = self.named_bytes.saturating_add(blob.length);
                }
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
        let (named, most) = (std::mem::take(&mut self.named_bytes), app.settings.keep_blob_bytes);
        if most > 0 && named > most {
            remove_oldest(app, named - most).await?;
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
    let (mut left, mut jobs) = (excess, 0);
    for (_, job_id, blobs) in ended_with_blobs(app).await? {
        if left == 0 {
            break;
        }
        let Some(job) = app.store.job_record(&job_id).await?.filter(|job| job.is_ended()) else { continue };
        for (hash, uses) in blobs {
            let blob = record(app, hash).await?.filter(|blob| blob.jobs == uses);
            left = left.saturating_sub(blob.map_or(0, |blob| blob.length));
        }
        app.store.forget_job(&job_id, job.status()).await?;
        jobs += 1;
    }
    info!(jobs, excess, "the blobs exceed --keep-blob-bytes, and the oldest jobs with blobs were removed");
    Ok(())
}

/// Blobs that the results and the input of a job name, each with the number of uses, and the end of
/// the job if it is known.
#[derive(Debug, Default)]
struct BlobsOfJob {
    ended_at: Option<Timestamp>,
    uses: BTreeMap<BlobHash, u64>,
}

/// Returns the ended jobs whose results or inputs name blobs, the first end first.
async fn ended_with_blobs(app: &AppState) -> Result<Vec<(Timestamp, JobId, BTreeMap<BlobHash, u64>)>> {
    let mut all = BTreeMap::new();
    for kind in [DocumentKind::JobBlobs, DocumentKind::JobInputs] {
        add_blobs(app, kind, &mut all).await?;
    }
    let mut ended = Vec::new();
    for (job_id, of_job) in all {
        // The entry of an input is older than the end of its job.
        let ended_at = match of_job.ended_at {
            Some(at) => Some(at),
            None => app.store.job_record(&job_id).await?.and_then(|job| job.ended_at),
        };
        ended.extend(ended_at.map(|at| (at, job_id, of_job.uses)));
    }
    ended.sort();
    Ok(ended)
}

async fn add_blobs(app: &AppState, kind: DocumentKind, all: &mut BTreeMap<JobId, BlobsOfJob>) -> Result<()> {
    let mut after = String::new();
    loop {
        let page = app.store.documents_after(kind, &after, PAGE).await?;
        for (id, json) in &page {
            let named: JobBlobs = lookup::parse("blobs of job", id, json)?;
            let Ok(job_id) = JobId::new(id.as_str()) else { continue };
            let of_job = all.entry(job_id).or_default();
            of_job.ended_at = of_job.ended_at.max(named.ended_at);
            for hash in named.blobs {
                *of_job.uses.entry(hash).or_default() += 1;
            }
        }
        match page.last() {
            Some((last, _)) if page.len() == PAGE => after.clone_from(last),
            _ => return Ok(()),
        }
    }
}

fn is_old(file: &ListedFile, now: Timestamp) -> bool {
    now.ms_since(file.modified_at) > BLOB_GRACE_MS
}

async fn has_record(app: &AppState, file: &ListedFile) -> Result<bool> {
    let Some(file) = BlobFile::parse(&file.name) else { return Ok(false) };
    Ok(record(app, file.hash).await?.is_some_and(|blob| blob.suffix == file.suffix))
}

/// Removes uploads without a chunk for a while, also those of earlier processes.
pub(crate) async fn sweep_uploads(app: &AppState) -> Result<()> {
    let Some(storage) = &app.blobs else { return Ok(()) };
    let now = app.clock.now();
    for name in app.uploads.expire(now) {
        storage.discard(&name).await?;
    }
    let own = app.uploads.names();
    for file in storage.list_uploads().await? {
        if is_old(&file, now) && !own.contains(&file.name) {
            storage.discard(&file.name).await?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{fs::File, sync::Arc, time::UNIX_EPOCH};

    use agenix_protocol::{
        blob::BlobHash,
        documents::{Status, parse, to_json},
        ids::JobId,
        request::Slice,
        time::Timestamp,
    };
    use agenix_rules::{
        blob::{JobBlobs, StoredBlob},
        job::{self, Job},
    };
    use bytes::Bytes;
    use serde_json::json;

    use super::{BlobSweep, remove_oldest};
    use crate::{
        app::{AppState, Submitter},
        blobs::{BlobFile, BlobStorage},
        service::{action_submission, plans},
        startup::services::without_tasks,
        store::{AckLevel, DocumentChange, DocumentKind},
    };

    const PART: u8 = 7;

    /// Publishes a file that is old by the clock, and returns it.
    async fn old_file(storage: &Arc<dyn BlobStorage>, suffix: &str) -> BlobFile {
        let file = BlobFile { hash: BlobHash([PART; 32]), suffix: suffix.into() };
        storage.write(suffix, 0, Bytes::from_static(b"content")).await.unwrap();
        storage.publish(suffix, &file).await.unwrap();
        let path = storage.path(&file).unwrap();
        File::options().write(true).open(path).unwrap().set_modified(UNIX_EPOCH).unwrap();
        file
    }

    async fn store_record(app: &AppState, file: &BlobFile) {
        let json = to_json(&StoredBlob::new(7, &file.suffix, app.clock.now()));
        put(app, DocumentKind::Blob, &file.hash.to_string(), json).await;
    }

    /// Adds an action whose jobs have ended at `ended_at`, one after another, and returns the jobs.
    async fn ended_jobs(app: &AppState, ended_at: &[u64]) -> Vec<JobId> {
        let plan = br#"{"plan_id":"p","tasks":[{"task_number":1,"command":"sort"}]}"#;
        plans::submit(app, Submitter::NOBODY, plan).await.unwrap();
        let action = json!({"action_id": "a", "plan_id": "p", "inputs": vec![json!({}); ended_at.len()]});
        let action = parse(action.to_string().as_bytes()).unwrap();
        action_submission::submit(app, Submitter::NOBODY, action).await.unwrap();
        let statuses = vec![Status::Pending];
        let jobs = app.store.jobs_of(&"a".parse().unwrap(), statuses, Slice::ALL).await.unwrap();
        for (job_id, at) in jobs.iter().zip(ended_at).filter(|(_, at)| **at > 0) {
            let at = Timestamp(*at);
            let rule = Box::new(move |job: Option<&Job>| job::cancelled(job.unwrap(), at));
            app.store.decide(job_id, AckLevel::Durable, None, rule).await.unwrap().unwrap();
        }
        jobs
    }

    async fn put(app: &AppState, kind: DocumentKind, id: &str, json: String) {
        let rule = Box::new(move |_: Option<&str>| Ok(DocumentChange::Put(json.clone())));
        app.store.update_document(kind, id, rule).await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn bound_of_bytes_removes_the_jobs_that_ended_first() {
        let dir = tempfile::tempdir().unwrap();
        let app = without_tasks(dir.path(), |_| {});
        // The jobs have ended in another order than they were submitted. The last one waits.
        let jobs = ended_jobs(&app, &[3000, 1000, 2000, 0]).await;
        for (number, (job_id, ended_at)) in jobs.iter().zip([Some(3000), None, Some(2000), None]).enumerate()
        {
            let hash = BlobHash([u8::try_from(number).unwrap(); 32]);
            let of_job = |ended_at| to_json(&JobBlobs { ended_at, blobs: vec![hash] });
            let blob = StoredBlob::new(10, "s", Timestamp(0)).named();
            match ended_at {
                // Input and output are the same blob, which the job uses twice.
                Some(at) => {
                    put(&app, DocumentKind::Blob, &hash.to_string(), to_json(&blob.named())).await;
                    put(&app, DocumentKind::JobBlobs, job_id.as_str(), of_job(Some(Timestamp(at)))).await;
                }
                None => put(&app, DocumentKind::Blob, &hash.to_string(), to_json(&blob)).await,
            }
            put(&app, DocumentKind::JobInputs, job_id.as_str(), of_job(None)).await;
        }
        let mut left = vec![true; 4];
        for (excess, removed) in [(1, 1), (10, 2)] {
            remove_oldest(&app, excess).await.unwrap();
            left[removed] = false;
            for (job_id, is_left) in jobs.iter().zip(&left) {
                assert_eq!(app.store.job_record(job_id).await.unwrap().is_some(), *is_left, "{job_id}");
            }
        }
    }

    #[tokio::test]
    async fn bound_of_bytes_removes_no_job_for_blobs_that_no_job_names() {
        let dir = tempfile::tempdir().unwrap();
        let app = without_tasks(dir.path(), |settings| settings.keep_blob_bytes = 25);
        let jobs = ended_jobs(&app, &[1000, 2000]).await;
        let [first, second, unnamed] = [1, 2, 3].map(|byte| BlobHash([byte; 32]));
        for (job_id, hash) in jobs.iter().zip([first, second]) {
            let of_job = to_json(&JobBlobs { ended_at: Some(Timestamp(1000)), blobs: vec![hash] });
            let blob = to_json(&StoredBlob::new(10, "s", Timestamp(0)).named());
            put(&app, DocumentKind::Blob, &hash.to_string(), blob).await;
            put(&app, DocumentKind::JobBlobs, job_id.as_str(), of_job).await;
        }
        let uploaded = to_json(&StoredBlob::new(10, "s", app.clock.now()));
        put(&app, DocumentKind::Blob, &unnamed.to_string(), uploaded).await;
        BlobSweep::default().run(&app).await.unwrap();
        for job_id in &jobs {
            assert!(app.store.job_record(job_id).await.unwrap().is_some(), "{job_id}");
        }
    }

    #[tokio::test]
    async fn sweep_leaves_the_file_of_a_commit_whose_record_is_stored_after_it() {
        let dir = tempfile::tempdir().unwrap();
        let app = without_tasks(dir.path(), |_| {});
        let storage = app.blobs.clone().unwrap();
        let mut sweep = BlobSweep::default();
        let committed = old_file(&storage, "committed").await;
        sweep.sweep_part(&app, &storage, PART).await.unwrap();
        store_record(&app, &committed).await;
        sweep.sweep_part(&app, &storage, PART).await.unwrap();
        let listed = storage.list(PART).await.unwrap();
        assert_eq!(listed.iter().map(|file| file.name.clone()).collect::<Vec<_>>(), [committed.to_string()]);
    }

    #[tokio::test]
    async fn second_pass_removes_a_file_without_a_record() {
        let dir = tempfile::tempdir().unwrap();
        let app = without_tasks(dir.path(), |_| {});
        let storage = app.blobs.clone().unwrap();
        let mut sweep = BlobSweep::default();
        old_file(&storage, "first").await;
        sweep.sweep_part(&app, &storage, PART).await.unwrap();
        let later = old_file(&storage, "later").await;
        sweep.sweep_part(&app, &storage, PART).await.unwrap();
        let listed = storage.list(PART).await.unwrap();
        assert_eq!(listed.iter().map(|file| file.name.clone()).collect::<Vec<_>>(), [later.to_string()]);
        sweep.sweep_part(&app, &storage, PART).await.unwrap();
        assert!(storage.list(PART).await.unwrap().is_empty());
    }
}
