//! Blobs: the record of where a content is and how many jobs name it, and the checks of uploads.

use std::collections::BTreeSet;

use agenix_protocol::{
    blob::BlobHash,
    documents::{Plan, Task, TaskResult},
    template::{self, Values},
    time::Timestamp,
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::rejection::Rejection;

/// Time after the last upload for which a blob without a job is kept, because the report that names
/// it may be on its way, in milliseconds.
pub const BLOB_GRACE_MS: u64 = 3_600_000;

/// Stored record of a blob.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[must_use]
pub struct StoredBlob {
    /// Number of bytes of the content.
    pub length: u64,
    /// Suffix of the blob's file, which no other file of the same content has.
    pub suffix: String,
    /// Number of the results and inputs of jobs that name the blob.
    pub jobs: u64,
    /// Number of uploads that no report has named yet. An upload whose worker was lost stays
    /// counted.
    pub unreported: u64,
    /// Time of the last upload.
    pub uploaded_at: Timestamp,
}

/// Blobs that the results or the input of a job name. The blobs of results are stored while the job
/// has these results, and the blobs of an input are stored as long as the job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobBlobs {
    /// Time of the end; `None` for the input of a job, and for a job that waits for a retry.
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

    /// Returns the record with the file `suffix` instead of the lost file `lost`. Keeps the record
    /// if it has another file by now.
    pub fn repaired(self, lost: &str, suffix: &str) -> Self {
        if self.suffix == lost { Self { suffix: suffix.to_owned(), ..self } } else { self }
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

/// Checks that a chunk of an upload follows the `received` bytes, or begins the upload again. The
/// error is [`Rejection::InvalidUpload`].
pub fn check_chunk(received: u64, offset: u64, bytes: usize) -> Result<(), Rejection> {
    if bytes == 0 {
        return Err(Rejection::InvalidUpload("the chunk is empty".into()));
    }
    if offset != 0 && offset != received {
        let text = format!("offset is {offset}, but the upload has {received} bytes");
        return Err(Rejection::InvalidUpload(text));
    }
    Ok(())
}

/// Checks that the `received` bytes, whose hash is `own`, are those that the worker has sent. The
/// error is [`Rejection::InvalidUpload`].
pub fn check_whole(
    (received, own): (u64, BlobHash),
    (length, hash): (u64, BlobHash),
) -> Result<(), Rejection> {
    if received != length {
        return Err(Rejection::InvalidUpload(format!("it has {received} bytes, not {length}")));
    }
    if own != hash {
        return Err(Rejection::InvalidUpload(format!("its BLAKE3 hash is {own}, not {hash}")));
    }
    Ok(())
}

/// Returns the blobs that the results of a report name. The error is
/// [`Rejection::InvalidUpdate`] for blobs in a report that is not that of an end, because a further
/// report of the same attempt would replace them.
pub fn named_blobs(results: &[TaskResult], is_end: bool) -> Result<BTreeSet<BlobHash>, Rejection> {
    let streams = results.iter().flat_map(|result| [&result.stdout, &result.stderr]);
    let blobs: BTreeSet<BlobHash> = streams.filter_map(|stream| stream.blob).collect();
    if is_end || blobs.is_empty() {
        return Ok(blobs);
    }
    Err(Rejection::InvalidUpdate("only the report of an end may name blobs".into()))
}

/// Returns the blobs that the tasks of `plan` read with this input. The error is
/// [`Rejection::InvalidAction`] for a text that is not a BLAKE3 hash; `at` is the index of the
/// input.
pub fn input_blobs(plan: &Plan, at: usize, input: &RawValue) -> Result<BTreeSet<BlobHash>, Rejection> {
    let read = |task: &Task, text: &String| {
        // The slot is not known before the claim, and no slot is a hash, so the slot stays empty.
        let hash = template::fill(text, Values { input, slot: "" }).map_err(|error| error.to_string())?;
        hash.parse::<BlobHash>().map_err(|error| format!("stdin_blob of task {}: {error}", task.task_number))
    };
    let texts = plan.tasks.iter().filter_map(|task| Some((task, task.stdin_blob.as_ref()?)));
    let blobs = texts.map(|(task, text)| read(task, text)).collect::<Result<_, String>>();
    blobs.map_err(|why| Rejection::InvalidAction(format!("inputs[{at}]: {why}")))
}

/// Checks that no task of `plan` reads a blob. Only a whole action counts the blobs of its inputs.
/// The error is [`Rejection::InvalidAction`].
pub fn check_reads_none(plan: &Plan) -> Result<(), Rejection> {
    let reader = plan.tasks.iter().find(|task| task.stdin_blob.is_some());
    reader.map_or(Ok(()), |task| {
        let text = format!(
            "task {} has stdin_blob: such a plan runs only as a small action, submitted as a whole",
            task.task_number
        );
        Err(Rejection::InvalidAction(text))
    })
}

#[cfg(test)]
mod tests {
    use agenix_protocol::{blob::BlobHash, documents::TaskResult, time::Timestamp};

    use super::{BLOB_GRACE_MS, StoredBlob, check_chunk, check_whole, named_blobs};

    #[test]
    fn upload_takes_chunks_in_their_order() {
        assert_eq!(check_chunk(5, 5, 1), Ok(()));
        assert_eq!(check_chunk(5, 0, 1), Ok(()), "it may begin again");
        let error = |received, offset, bytes| check_chunk(received, offset, bytes).unwrap_err().to_string();
        assert_eq!(error(5, 4, 1), "Invalid upload: offset is 4, but the upload has 5 bytes");
        assert_eq!(error(5, 5, 0), "Invalid upload: the chunk is empty");
    }

    #[test]
    fn upload_is_checked_as_a_whole() {
        let [own, other] = [BlobHash([1; 32]), BlobHash([2; 32])];
        assert_eq!(check_whole((11, own), (11, own)), Ok(()));
        let error = |length, hash| check_whole((11, own), (length, hash)).unwrap_err().to_string();
        assert_eq!(error(12, own), "Invalid upload: it has 11 bytes, not 12");
        assert_eq!(error(11, other), format!("Invalid upload: its BLAKE3 hash is {own}, not {other}"));
    }

    #[test]
    fn only_the_report_of_an_end_names_blobs() {
        let mut result = TaskResult::default();
        assert!(named_blobs(std::slice::from_ref(&result), false).unwrap().is_empty());
        (result.stdout.blob, result.stderr.blob) = (Some(BlobHash([1; 32])), Some(BlobHash([1; 32])));
        assert_eq!(named_blobs(std::slice::from_ref(&result), true).unwrap().len(), 1);
        assert!(named_blobs(&[result], false).is_err());
    }

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
        let repaired = again.clone().repaired("a", "b");
        assert_eq!(repaired, StoredBlob { suffix: "b".into(), ..again });
        assert_eq!(repaired.clone().repaired("a", "c"), repaired, "another upload was faster");
    }
}
