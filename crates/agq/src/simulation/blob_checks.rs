//! Invariants of blobs: those that hold after every write, and those of a sweep.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use agenix_protocol::{blob::BlobHash, resp::Reply};
use agenix_rules::blob::{BLOB_GRACE_MS, JobBlobs, StoredBlob};
use futures_util::FutureExt;

use super::{
    ledger::CheckResult,
    process::{SimulatedProcess, now},
    workers::{CONTENTS, hash_of},
    world::{IGNORED, World},
};
use crate::{
    blobs::{BlobFile, BlobStorage},
    resp::outcome::CommandOutcome,
    service::{blob_sweep::BlobSweep, blobs},
    store::{DocumentKind, DocumentStore},
};

impl World {
    /// Checks that every record of a blob has a file with the content of its name, and that every
    /// blob that a job names, or that was uploaded for a report, has a record.
    pub(super) fn check_blobs(&self) -> CheckResult {
        let Some(process) = &self.process else { return Ok(()) };
        let records = records(process)?;
        for hash in records.keys() {
            // A job without the blob may name it later, because an upload of the same content is
            // acknowledged without a new file.
            let read = blobs::read(&process.app, *hash, (0, usize::MAX)).now_or_never();
            let content = read.ok_or("a blob is not read at once")?;
            let content =
                content.map_err(|error| format!("the record of {hash} has lost its file: {error}"))?;
            if BlobHash::of(&content) != *hash {
                return Err(format!("the blob {hash} has other content"));
            }
        }
        let named = now(process.store.documents(DocumentKind::JobBlobs))?;
        let read = now(process.store.documents(DocumentKind::JobInputs))?;
        for (job_id, json) in named.into_iter().chain(read) {
            let of_job: JobBlobs = serde_json::from_str(&json).map_err(|error| error.to_string())?;
            if let Some(lost) = of_job.blobs.iter().find(|hash| !records.contains_key(hash)) {
                return Err(format!("job {job_id} has lost {lost}"));
            }
        }
        let mut uploads = self.ledger.uploads.iter().flatten();
        uploads.try_for_each(|((job_id, _), hash)| match records.get(hash) {
            Some(_) => Ok(()),
            None => Err(format!("the upload of {hash} for job {job_id} was acknowledged, and is gone")),
        })
    }

    /// Sweeps at a time when no report of an upload can be on its way. Checks that exactly the
    /// files that a record names are left.
    pub(super) fn check_sweep(&mut self) -> CheckResult {
        // The reaper makes its round before the clock goes forward.
        self.write_all()?;
        self.ledger.uploads = None;
        self.time.set_wall(2 * BLOB_GRACE_MS.cast_signed());
        let Some(process) = &mut self.process else { return Ok(()) };
        let app = Arc::clone(&process.app);
        let storage: Arc<dyn BlobStorage> = Arc::new(self.blobs.clone());
        process.spawn(IGNORED, async move {
            let mut sweep = BlobSweep::default();
            // The files that stay after an error are found below.
            let _failing = sweep.run(&app).await;
            for part in CONTENTS.map(|content| hash_of(&content.repeat(3)).0[0]) {
                for _pass in 0..2 {
                    let _failing = sweep.sweep_part(&app, &storage, part).await;
                }
            }
            CommandOutcome::plain(Reply::Nil)
        });
        self.write_all()?;
        let Some(process) = &self.process else { return Ok(()) };
        let records = records(process)?;
        let named: BTreeSet<String> =
            records.iter().map(|(hash, blob)| BlobFile::of(*hash, blob).to_string()).collect();
        let files = self.blobs.names();
        if named == files {
            Ok(())
        } else {
            Err(format!("records name the files {named:?}, and a sweep has left {files:?}"))
        }
    }
}

fn records(process: &SimulatedProcess) -> Result<BTreeMap<BlobHash, StoredBlob>, String> {
    let mut records = BTreeMap::new();
    for (id, json) in now(process.store.documents(DocumentKind::Blob))? {
        let hash = id.parse().map_err(|_| format!("{id} is no hash of a blob"))?;
        records.insert(hash, serde_json::from_str(&json).map_err(|error| error.to_string())?);
    }
    Ok(records)
}
