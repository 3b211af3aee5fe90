//! Download of the blobs that the input of a job names, before the job starts (ADR 20).

use std::{future::ready, os::unix::fs::FileExt, sync::Arc, time::Duration};

use agenix_client::ClientError;
use agenix_protocol::{
    blob::{BlobHash, BlobHasher},
    documents::JobDocument,
    errors::ErrorKind,
};
use tokio::{sync::watch, time::sleep};
use tracing::debug;

use crate::{
    exec::{
        cancel::CancelToken,
        resource_wait::{RESOURCE_TIMEOUT, Unstarted, retry_on_shortage},
        spool::SpoolFile,
        start::ExecContext,
    },
    report::{link::ReportLink, upload::Reaction},
};

/// Number of bytes of a chunk.
const CHUNK_BYTES: u64 = 1024 * 1024;
/// Pause before agq is asked again after an error.
const PAUSE: Duration = Duration::from_secs(1);
/// Maximum number of repeated requests for a chunk that the storage of agq cannot read.
const MAX_UNREADABLE: u32 = 5;

/// Received part of a blob.
struct Received {
    file: Arc<SpoolFile>,
    hash: BlobHasher,
    bytes: u64,
}

impl Received {
    /// Appends bytes to the file, and adds them to the hash. Waits out a shortage of resources.
    /// Lanes may block on spool files.
    async fn add(
        &mut self,
        bytes: &[u8],
        context: &ExecContext,
        cancel: &CancelToken,
    ) -> Result<(), Unstarted> {
        let write = || ready(self.file.write_all_at(bytes, self.bytes));
        retry_on_shortage(write, RESOURCE_TIMEOUT, &context.shortage, cancel).await?;
        self.hash.update(bytes);
        self.bytes += bytes.len() as u64;
        Ok(())
    }
}

/// Repeated requests for a chunk that the storage of agq cannot read.
#[derive(Default)]
struct UnreadableChunk {
    offset: u64,
    requests: u32,
}

impl UnreadableChunk {
    /// Returns true if the request for the chunk at `offset` is to be repeated after `error`. Only
    /// a chunk that stays unreadable ends a download: any other failure of agq may take its time.
    fn is_repeated(&mut self, error: &ClientError, offset: u64) -> bool {
        let is_unreadable =
            matches!(error, ClientError::Rejected(text) if ErrorKind::of(text) == ErrorKind::BlobStoreFailed);
        if !is_unreadable {
            return true;
        }
        if offset != self.offset {
            *self = Self { offset, requests: 0 };
        }
        self.requests += 1;
        self.requests <= MAX_UNREADABLE
    }
}

/// Fetches a blob into a spool file. Waits for the connection to agq as long as necessary, and for
/// resources of this machine. The error is the reason for which the job fails.
pub(crate) async fn fetch(
    job: &JobDocument,
    hash: BlobHash,
    (context, cancel): (&ExecContext, &CancelToken),
    mut current: watch::Receiver<Option<ReportLink>>,
) -> Result<Arc<SpoolFile>, String> {
    let file = || ready(context.spool.file());
    let file = retry_on_shortage(file, RESOURCE_TIMEOUT, &context.shortage, cancel).await;
    let file = Arc::new(file.map_err(|unstarted| unstored(&unstarted))?);
    let mut received = Received { file, hash: BlobHasher::default(), bytes: 0 };
    let mut unreadable = UnreadableChunk::default();
    loop {
        let link = current.borrow_and_update().clone();
        let Some(link) = link else {
            if current.changed().await.is_err() {
                return Err("the worker ends".into());
            }
            continue;
        };
        let error = match receive(job, hash, received.bytes, &link).await {
            Ok((total, bytes)) => {
                let added = received.add(&bytes, context, cancel).await;
                added.map_err(|unstarted| unstored(&unstarted))?;
                if received.bytes < total {
                    continue;
                }
                let is_whole = received.hash.finish() == hash;
                let wrong = || format!("stdin does not have the BLAKE3 hash {hash}");
                return is_whole.then_some(received.file).ok_or_else(wrong);
            }
            Err(error) => error,
        };
        match Reaction::to(&error) {
            Reaction::Repeat if unreadable.is_repeated(&error, received.bytes) => {}
            Reaction::Reconnect => link.close_idle(),
            _ => return Err(format!("stdin cannot be fetched from agq: {error}")),
        }
        debug!(job_id = %job.job_id, %error, "the input will be requested again");
        sleep(PAUSE).await;
    }
}

fn unstored(unstarted: &Unstarted) -> String {
    match unstarted {
        Unstarted::Stopped => "the job was stopped".into(),
        Unstarted::Failed(error) | Unstarted::TimedOut(error) => {
            format!("stdin cannot be stored in the spool of this worker: {error}")
        }
    }
}

/// Receives the chunk from `offset`. Returns the number of bytes of the blob, and the chunk.
/// Between two chunks, others may use the connection: a job that waits for space in the spool must
/// not keep the uploads from their connections, because an upload releases space.
async fn receive(
    job: &JobDocument,
    hash: BlobHash,
    offset: u64,
    link: &ReportLink,
) -> Result<(u64, Vec<u8>), ClientError> {
    let mut transfer = link.transfer().await?;
    let range = (offset, CHUNK_BYTES);
    let chunk = transfer.connection.job_input((&job.job_id, job.attempt), hash, range).await?;
    link.give_back(transfer);
    match chunk {
        None => Err(ClientError::Unexpected(format!("agq does not know the input {hash} of the job"))),
        Some((total, bytes)) if bytes.is_empty() && offset < total => {
            Err(ClientError::Unexpected(format!("agq has only a part of the input {hash}")))
        }
        Some(chunk) => Ok(chunk),
    }
}

#[cfg(test)]
mod tests {
    use std::{ffi::OsStr, fs::File, sync::Arc};

    use agenix_client::ClientError;

    use super::{BlobHasher, CancelToken, ExecContext, MAX_UNREADABLE, Received, UnreadableChunk, Unstarted};
    use crate::exec::{programs::OfferedPrograms, spool::SpoolFile};

    fn unreadable() -> ClientError {
        ClientError::Rejected("the blob store failed: no such file".into())
    }

    #[test]
    fn download_ends_only_at_a_chunk_that_stays_unreadable() {
        let mut chunk = UnreadableChunk::default();
        let other = [
            ClientError::StoreFailed { address: "a:1".into(), reason: "the store failed: it is away".into() },
            ClientError::Rejected("Too many commands: slow down".into()),
        ];
        for _ in 0..MAX_UNREADABLE {
            assert!(chunk.is_repeated(&unreadable(), 7));
            assert!(other.iter().all(|error| chunk.is_repeated(error, 7)));
        }
        assert!(!chunk.is_repeated(&unreadable(), 7));
        assert!(other.iter().all(|error| chunk.is_repeated(error, 7)), "another node may take over");
        assert!(chunk.is_repeated(&unreadable(), 8), "the download goes on");
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn download_waits_while_the_disk_is_full() {
        let dir = tempfile::tempdir().unwrap();
        let context = ExecContext::for_tests(dir.path(), OfferedPrograms::find(OsStr::new(""), None));
        let full = File::options().write(true).open("/dev/full").unwrap();
        let file = Arc::new(SpoolFile::from(full));
        let mut received = Received { file, hash: BlobHasher::default(), bytes: 0 };
        let cancel = CancelToken::default();
        let lasting = async {
            let reason = context.shortage.wait_until_lasting(|| 1, true).await;
            cancel.cancel();
            reason
        };
        let (added, reason) = tokio::join!(received.add(b"x", &context, &cancel), lasting);
        assert!(matches!(added, Err(Unstarted::Stopped)), "{added:?}");
        assert!(reason.contains("No space left"), "the worker gives its jobs back: {reason}");
    }
}
