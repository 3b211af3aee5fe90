//! Compares the counts of blobs with the jobs that name them.

use std::collections::BTreeMap;

use agenix_protocol::blob::BlobHash;
use agenix_rules::blob::{JobBlobs, StoredBlob};
use serde::de::DeserializeOwned;

use super::Inconsistencies;
use crate::store::{
    DocumentKind,
    redb::{
        engine::Snapshot,
        queries::documents::documents,
        schema::{JOBS, RESULTS, Result},
    },
};

pub(super) fn check(snapshot: &Snapshot<'_>, found: &mut Inconsistencies) -> Result<()> {
    let mut counted: BTreeMap<BlobHash, u64> = BTreeMap::new();
    for (id, json) in documents(snapshot, DocumentKind::JobBlobs)? {
        let Some(of_job) = read::<JobBlobs>("job_blobs", &id, &json, found) else { continue };
        let results = snapshot.table(&RESULTS).get(id.as_str())?.map(|results| results.value().to_owned());
        for hash in of_job.blobs {
            *counted.entry(hash).or_default() += 1;
            if !results.as_ref().is_some_and(|results| results.contains(&hash.to_string())) {
                report!(found, "job_blobs: {id} is listed with {hash}, but its results do not name it");
            }
        }
    }
    for (id, json) in documents(snapshot, DocumentKind::JobInputs)? {
        let Some(of_job) = read::<JobBlobs>("job_inputs", &id, &json, found) else { continue };
        if snapshot.table(&JOBS).get(id.as_str())?.is_none() {
            report!(found, "job_inputs: {id} is listed, but there is no such job");
        }
        of_job.blobs.into_iter().for_each(|hash| *counted.entry(hash).or_default() += 1);
    }
    for (id, json) in documents(snapshot, DocumentKind::Blob)? {
        let Some(blob) = read::<StoredBlob>("blobs", &id, &json, found) else { continue };
        let jobs = id.parse().ok().and_then(|hash: BlobHash| counted.remove(&hash)).unwrap_or_default();
        if blob.jobs != jobs {
            report!(found, "blobs: {id} counts {} jobs, but should count {jobs}", blob.jobs);
        }
    }
    for (hash, jobs) in counted {
        report!(found, "blobs: {hash} has no record, but {jobs} jobs name it");
    }
    Ok(())
}

fn read<T: DeserializeOwned>(name: &str, id: &str, json: &str, found: &mut Inconsistencies) -> Option<T> {
    let read = serde_json::from_str(json).ok();
    if read.is_none() {
        report!(found, "{name}: {id} has a record that cannot be read");
    }
    read
}

/// Returns the records of all blobs that can be read.
pub(crate) fn records(snapshot: &Snapshot<'_>) -> Result<Vec<(BlobHash, StoredBlob)>> {
    let all = documents(snapshot, DocumentKind::Blob)?.into_iter();
    Ok(all.filter_map(|(id, json)| Some((id.parse().ok()?, serde_json::from_str(&json).ok()?))).collect())
}
