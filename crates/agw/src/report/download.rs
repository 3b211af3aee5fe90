//! Download of the blobs that the input of a job names, before the job starts (ADR 20).

use std::{future::ready, io, os::unix::fs::FileExt, sync::Arc, time::Duration};

use agenix_client::ClientError;
use agenix_protocol::{
    blob::{BlobHash, BlobHasher},
    documents::JobDocument,
    errors::ErrorKind,
};
use rustix::io::Errno;
use tokio::{sync::watch, time::sleep};
use tracing::debug;

use crate::{
    exec::{
        cancel::CancelToken,
        input_space::ReservedSpace,
        output_quota::DiskSpace,
        resource_wait::{RESOURCE_TIMEOUT, Unstarted, is_shortage, retry_on_shortage},
        spool::SpoolFile,
        start::ExecContext,
    },
    report::{link::ReportLink, upload::Reaction},
};

const CHUNK_BYTES: u64 = 1024 * 1024;
/// Pause before agq is asked again after an error.
const PAUSE: Duration = Duration::from_secs(1);
/// Maximum number of repeated requests for a chunk that the storage of agq cannot read.
const MAX_UNREADABLE: u32 = 5;
/// Maximum number of new beginnings of a download after a full disk.
const MAX_RESTARTS: u32 = 5;

/// Received part of a blob.
struct Received {
    file: Arc<SpoolFile>,
    hash: BlobHasher,
    bytes: u64,
    /// Space for the rest, once the length of the blob is known.
    space: Option<ReservedSpace>,
    restarts: u32,
}

impl Received {
    fn new(file: SpoolFile) -> Self {
        Self { file: Arc::new(file), hash: BlobHasher::default(), bytes: 0, space: None, restarts: 0 }
    }

    /// Appends bytes to the file, and adds them to the hash. `total` is the length of the blob,
    /// whose space is reserved first. Waits out a shortage of resources, and takes no space
    /// meanwhile: after a full disk, nothing has been received. Lanes may block on spool files.
    async fn add(
        &mut self,
        (bytes, total): (&[u8], u64),
        context: &ExecContext,
        cancel: &CancelToken,
    ) -> Result<(), Unstarted> {
        if self.space.is_none() {
            let reserve = || {
                // A disk without readable statistics counts as unlimited.
                let room = context.spool.room().unwrap_or(DiskSpace::UNLIMITED);
                ready(context.unwritten_inputs.reserve(total, &context.quota, room))
            };
            let reserved = retry_on_shortage(reserve, RESOURCE_TIMEOUT, &context.shortage, cancel).await?;
            self.space = Some(reserved);
        }
        let mut was_full = false;
        let write = || {
            let written = self.file.write_all_at(bytes, self.bytes);
            if written.as_ref().is_err_and(is_shortage) {
                // Other jobs need the space. If the file cannot be emptied, the job still waits.
                let _is_emptied = self.file.set_len(0);
                (self.space, was_full) = (None, true);
            }
            ready(written)
        };
        retry_on_shortage(write, RESOURCE_TIMEOUT, &context.shortage, cancel).await?;
        if was_full {
            return self.restart().map_err(Unstarted::Failed);
        }
        self.hash.update(bytes);
        self.bytes += bytes.len() as u64;
        if let Some(space) = &mut self.space {
            space.release(bytes.len() as u64);
        }
        Ok(())
    }

    /// Forgets all received bytes. Returns an error if the disk was full too often.
    fn restart(&mut self) -> io::Result<()> {
        if self.restarts == MAX_RESTARTS {
            return Err(Errno::NOSPC.into());
        }
        self.file.set_len(0)?;
        (self.hash, self.bytes, self.space) = (BlobHasher::default(), 0, None);
        self.restarts += 1;
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
    let mut received = Received::new(file.map_err(|unstarted| unstored(&unstarted))?);
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
                let added = received.add((&bytes, total), context, cancel).await;
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
        Unstarted::Failed(error) => format!("stdin cannot be stored in the spool of this worker: {error}"),
        Unstarted::TimedOut(error) => {
            let seconds = RESOURCE_TIMEOUT.as_secs();
            format!(
                "stdin could not be stored in the spool of this worker for {seconds} s: {error}; check the free \
                 space of the spool and `ulimit -n`"
            )
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
    use std::{ffi::OsStr, os::unix::fs::FileExt, path::Path};

    use agenix_client::ClientError;

    use super::{
        CancelToken, DiskSpace, ExecContext, MAX_RESTARTS, MAX_UNREADABLE, Received, UnreadableChunk,
        Unstarted,
    };
    use crate::exec::programs::OfferedPrograms;

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

    fn context(spool: &Path) -> ExecContext {
        ExecContext::for_tests(spool, OfferedPrograms::find(OsStr::new(""), None))
    }

    /// Checks that a chunk of a blob waits for space until the worker gives its jobs back.
    async fn waits(received: &mut Received, context: &ExecContext) {
        let cancel = CancelToken::default();
        let lasting = async {
            let reason = context.shortage.wait_until_lasting(|| 1, true).await;
            cancel.cancel();
            reason
        };
        let (added, reason) = tokio::join!(received.add((b"x", 2), context, &cancel), lasting);
        assert!(matches!(added, Err(Unstarted::Stopped)), "{added:?}");
        assert!(reason.contains("No space left"), "the worker gives its jobs back: {reason}");
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn download_waits_while_the_disk_is_full_and_reserves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let mut received = Received::new(full.into());
        waits(&mut received, &context(dir.path())).await;
        assert!(received.space.is_none());
    }

    #[tokio::test]
    async fn download_waits_for_space_before_it_writes() {
        let dir = tempfile::tempdir().unwrap();
        let context = context(dir.path());
        let large = DiskSpace { free: 1 << 60, total: 1 << 60 };
        let _of_others = context.unwritten_inputs.reserve(1 << 60, &context.quota, large).unwrap();
        let mut received = Received::new(context.spool.file().unwrap());
        waits(&mut received, &context).await;
        assert_eq!(received.file.length(), 0);
    }

    #[tokio::test]
    async fn download_of_a_blob_that_is_larger_than_the_disk_fails_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let context = context(dir.path());
        let mut received = Received::new(context.spool.file().unwrap());
        let added = received.add((b"x", 1 << 62), &context, &CancelToken::default()).await;
        assert!(matches!(added, Err(Unstarted::Failed(_))), "{added:?}");
        assert_eq!(received.file.length(), 0);
    }

    #[test]
    fn download_begins_again_after_a_full_disk_but_not_for_ever() {
        let dir = tempfile::tempdir().unwrap();
        let mut received = Received::new(context(dir.path()).spool.file().unwrap());
        for _ in 0..MAX_RESTARTS {
            received.file.write_all_at(b"after a hole", 100).unwrap();
            received.bytes = 100;
            received.restart().unwrap();
            assert_eq!((received.bytes, received.file.length()), (0, 0));
        }
        assert!(received.restart().unwrap_err().to_string().contains("No space left"));
    }
}
