//! Upload of the large outputs of a job, before the report of its end (ADR 20).

use std::{
    io,
    os::{
        fd::AsRawFd,
        unix::fs::{FileExt, MetadataExt},
    },
    sync::Arc,
    time::Duration,
};

use agenix_client::{ClientError, Connection};
use agenix_protocol::{
    blob::{BlobHash, BlobHasher},
    errors::ErrorKind,
    request::{OpenFile, UploadKey},
};
use bytes::Bytes;
use tokio::{
    sync::{OwnedSemaphorePermit, watch},
    task::spawn_blocking,
    time::sleep,
};
use tracing::{debug, warn};

use crate::{
    exec::live_output::LargeOutput,
    report::{link::ReportLink, storage_failures::StorageFailures},
};

const CHUNK_BYTES: u64 = 1024 * 1024;
/// Pause before agq is asked again after an error of its storage, and after a lost connection.
const PAUSE: Duration = Duration::from_secs(1);
/// Maximum number of uploads of a stream whose bytes agq does not accept.
const MAX_REFUSED: u32 = 3;

/// Output streams of a job that do not fit into its report.
#[derive(Default)]
pub(crate) struct LargeOutputs {
    pub(crate) streams: Vec<LargeOutput>,
    /// Permit for the upload. Few jobs upload at the same time, because their files take disk.
    pub(crate) _permit: Option<OwnedSemaphorePermit>,
}

/// Result of the upload of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Uploaded {
    Blob(BlobHash),
    /// agq stores no blobs, or does not accept the bytes. The result keeps the first bytes.
    Refused,
    /// The job no longer belongs to this worker.
    NotOurs,
}

/// Reaction to the error of an upload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reaction {
    /// Sends the same request again after a pause.
    Repeat,
    /// Begins again at offset 0, because agq has lost the upload.
    Restart,
    /// Begins again at offset 0, at most [`MAX_REFUSED`] times.
    Refused,
    /// Opens another connection, and begins again.
    Reconnect,
    /// Keeps the first bytes only.
    GiveUp,
    /// Drops the job.
    Drop,
}

impl Reaction {
    /// Returns the reaction to an error of agq or of the connection.
    pub(crate) fn to(error: &ClientError) -> Self {
        let text = match error {
            ClientError::StoreFailed { .. } => return Self::Repeat,
            ClientError::Rejected(text) => text,
            ClientError::Unexpected(_) => return Self::GiveUp,
            _ => return Self::Reconnect,
        };
        match ErrorKind::of(text) {
            ErrorKind::BlobStoreFailed | ErrorKind::TooManyCommands => Self::Repeat,
            ErrorKind::UploadOffset => Self::Restart,
            ErrorKind::InvalidUpload => Self::Refused,
            // An admin may give the key its role again.
            ErrorKind::WorkerNotRegistered | ErrorKind::TooManyConnections | ErrorKind::NotPermitted => {
                Self::Reconnect
            }
            ErrorKind::NotHolder
            | ErrorKind::StaleAttempt
            | ErrorKind::JobNotActive
            | ErrorKind::JobNotFound => Self::Drop,
            // agq is older, its message limit is lower than a chunk, or it has no --blob-dir.
            _ => Self::GiveUp,
        }
    }
}

/// Uploads one stream, and repeats the upload until agq has stored or refused it, or until
/// `failures` are too many.
pub(super) async fn upload(
    key: &UploadKey,
    output: &LargeOutput,
    current: &mut watch::Receiver<Option<ReportLink>>,
    mut failures: StorageFailures,
) -> Uploaded {
    let (job_id, mut refused) = (&key.job_id, 0);
    loop {
        let link = current.borrow_and_update().clone();
        let Some(link) = link else {
            if current.changed().await.is_err() {
                return Uploaded::NotOurs;
            }
            continue;
        };
        let error = match send(key, output, &link, &mut failures).await {
            Ok(hash) => return Uploaded::Blob(hash),
            Err(error) => error,
        };
        match Reaction::to(&error) {
            Reaction::Drop => {
                debug!(%job_id, %error, "the job no longer belongs to this worker, and its output is not needed");
                return Uploaded::NotOurs;
            }
            Reaction::GiveUp => {
                warn!(%job_id, %error, "agq does not store the whole output; the result keeps its first bytes");
                return Uploaded::Refused;
            }
            Reaction::Repeat if failures.are_too_many() => {
                warn!(%job_id, %error, "agq has had no room for the whole output for minutes; the result keeps its first bytes");
                return Uploaded::Refused;
            }
            Reaction::Refused if refused == MAX_REFUSED => return Uploaded::Refused,
            Reaction::Refused => refused += 1,
            Reaction::Reconnect => link.close_idle(),
            Reaction::Repeat | Reaction::Restart => {}
        }
        debug!(%job_id, %error, "the output will be sent again");
        sleep(PAUSE).await;
    }
}

/// Sends a stream from its beginning to its end.
async fn send(
    key: &UploadKey,
    output: &LargeOutput,
    link: &ReportLink,
    failures: &mut StorageFailures,
) -> Result<BlobHash, ClientError> {
    let mut transfer = link.transfer().await?;
    let sent = send_on(&mut transfer.connection, key, output, failures).await?;
    link.give_back(transfer);
    Ok(sent)
}

async fn send_on(
    connection: &mut Connection,
    key: &UploadKey,
    output: &LargeOutput,
    failures: &mut StorageFailures,
) -> Result<BlobHash, ClientError> {
    if connection.is_local() {
        match hand_over(connection, key, output, failures).await {
            Err(error) if needs_bytes(&error) => {
                debug!(job_id = %key.job_id, %error, "agq gets the bytes of the output instead of its file");
            }
            done => return done,
        }
    }
    send_bytes(connection, key, output, failures).await
}

async fn send_bytes(
    connection: &mut Connection,
    key: &UploadKey,
    output: &LargeOutput,
    failures: &mut StorageFailures,
) -> Result<BlobHash, ClientError> {
    let (mut hash, mut offset) = (BlobHasher::default(), 0);
    let mut next = Some(read(output, offset, hash).await?);
    while let Some((chunk, with_chunk)) = next {
        let end = offset + chunk.len() as u64;
        // The next chunk is read while agq writes this one.
        let reading = async {
            if end < output.length { read(output, end, with_chunk.clone()).await.map(Some) } else { Ok(None) }
        };
        let (written, read) = tokio::join!(write(connection, key, (offset, chunk), failures), reading);
        written?;
        (next, hash, offset) = (read?, with_chunk, end);
        if next.is_none() {
            let hash = hash.finish();
            commit(connection, key, (output.length, hash), failures).await?;
            return Ok(hash);
        }
    }
    Err(ClientError::Unexpected("the output has no bytes".into()))
}

/// Lets an agq on this machine copy a stream from its open file. agq can do so only with
/// `CAP_SYS_PTRACE`, because this process is not dumpable.
async fn hand_over(
    connection: &mut Connection,
    key: &UploadKey,
    output: &LargeOutput,
    failures: &mut StorageFailures,
) -> Result<BlobHash, ClientError> {
    let metadata = output.file.metadata().map_err(|error| unreadable(&error))?;
    let descriptor = output.file.as_raw_fd().cast_unsigned();
    let (device, inode) = (metadata.dev(), metadata.ino());
    let file = OpenFile { descriptor, device, inode, may_be_kept: output.file.give(output.length) };
    let mut done = 0;
    loop {
        let copied = connection.copy_output(key, (done, output.length - done), file).await;
        if must_repeat(key, &copied, failures).await {
            continue;
        }
        if file.may_be_kept && copied.as_ref().is_err_and(needs_bytes) {
            output.file.take_back();
        }
        let (total, hash) = copied?;
        done = total;
        if done >= output.length {
            commit(connection, key, (output.length, hash), failures).await?;
            return Ok(hash);
        }
    }
}

/// Returns true if agq cannot read files of this process, or does not know the command.
fn needs_bytes(error: &ClientError) -> bool {
    let ClientError::Rejected(text) = error else { return false };
    matches!(ErrorKind::of(text), ErrorKind::UnreadableFile | ErrorKind::Other)
}

/// Writes a chunk.
async fn write(
    connection: &mut Connection,
    key: &UploadKey,
    (offset, chunk): (u64, Bytes),
    failures: &mut StorageFailures,
) -> Result<(), ClientError> {
    loop {
        let written = connection.write_output(key, offset, chunk.clone()).await;
        if !must_repeat(key, &written, failures).await {
            return written;
        }
    }
}

async fn commit(
    connection: &mut Connection,
    key: &UploadKey,
    (length, hash): (u64, BlobHash),
    failures: &mut StorageFailures,
) -> Result<(), ClientError> {
    loop {
        let committed = connection.commit_output(key, length, hash).await;
        if !must_repeat(key, &committed, failures).await {
            return committed;
        }
    }
}

/// Returns true after a pause if the storage of agq failed, for example because its disk is full,
/// and if `failures` permit another request.
async fn must_repeat<T>(
    key: &UploadKey,
    reply: &Result<T, ClientError>,
    failures: &mut StorageFailures,
) -> bool {
    let Err(error) = reply else { return false };
    let is_due = Reaction::to(error) == Reaction::Repeat && failures.permit_another(error);
    if is_due {
        warn!(job_id = %key.job_id, %error, "the request will be sent again");
        sleep(PAUSE).await;
    }
    is_due
}

fn unreadable(error: &io::Error) -> ClientError {
    ClientError::Unexpected(format!("the output cannot be read: {error}"))
}

/// Reads the chunk from `offset`, and adds it to the hash.
async fn read(
    output: &LargeOutput,
    offset: u64,
    mut hash: BlobHasher,
) -> Result<(Bytes, BlobHasher), ClientError> {
    let (file, length) = (Arc::clone(&output.file), CHUNK_BYTES.min(output.length - offset));
    let read = spawn_blocking(move || {
        let mut bytes = vec![0; usize::try_from(length).unwrap_or_default()];
        file.read_exact_at(&mut bytes, offset)?;
        hash.update(&bytes);
        Ok::<_, io::Error>((Bytes::from(bytes), hash))
    });
    let read = read.await.map_err(io::Error::other).and_then(|read| read);
    read.map_err(|error| unreadable(&error))
}

#[cfg(test)]
mod tests {
    use agenix_client::ClientError;

    use super::Reaction;

    /// Starts an agq at a Unix socket that cannot read files of its clients.
    #[cfg(target_os = "linux")]
    fn agq_without_files(socket: &std::path::Path) {
        use std::io::{BufRead, BufReader, Write};

        let listener = std::os::unix::net::UnixListener::bind(socket).unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let lines = BufReader::new(stream.try_clone().unwrap()).lines();
            for line in lines.map_while(Result::ok) {
                let reply = match line.as_str() {
                    "AUTH" | "OUTPUT.COMMIT" => "+OK\r\n",
                    "OUTPUT.COPY" => "-ERR Unreadable file: Permission denied (os error 13)\r\n",
                    "OUTPUT.WRITE" => ":3\r\n",
                    _ => continue,
                };
                stream.write_all(reply.as_bytes()).unwrap();
            }
        });
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn file_that_agq_cannot_read_is_sent_in_chunks_and_recycled() {
        use std::{
            os::unix::fs::{FileExt, MetadataExt},
            sync::Arc,
        };

        use agenix_client::{Connection, Server};
        use agenix_protocol::{blob::OutputStream, request::UploadKey};

        use super::{LargeOutput, StorageFailures, send_on};
        use crate::exec::spool::Spool;

        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("agq.sock");
        agq_without_files(&socket);
        let server = Server::new(&format!("unix:{}", socket.display()), "k".into()).unwrap();
        let mut connection = Connection::open(&server).await.unwrap();
        let spool = Spool::new(dir.path());
        let file = spool.file().unwrap();
        file.write_all_at(b"abc", 0).unwrap();
        // While the copy is open, no other file gets the number of its descriptor.
        let (open, stream) = (file.try_clone().unwrap(), OutputStream::Stdout);
        let key = UploadKey { job_id: "job-1".parse().unwrap(), attempt: 1, task_number: 1, stream };
        let output = LargeOutput { task_number: 1, stream, file: Arc::new(file), length: 3 };
        send_on(&mut connection, &key, &output, &mut StorageFailures::new(false)).await.unwrap();
        drop(output);
        let next = spool.file().unwrap();
        assert_eq!(next.metadata().unwrap().ino(), open.metadata().unwrap().ino());
    }

    #[test]
    fn upload_reacts_to_the_kind_of_an_error() {
        let to = |text: &str| Reaction::to(&ClientError::Rejected(text.into()));
        assert_eq!(to("the blob store failed: the disk is full"), Reaction::Repeat);
        assert_eq!(to("Invalid upload: offset is 5, but the upload has 0 bytes"), Reaction::Restart);
        assert_eq!(to("Invalid upload: it has 0 bytes, not 5"), Reaction::Restart);
        assert_eq!(to("Invalid upload: its BLAKE3 hash is a, not b"), Reaction::Refused);
        assert_eq!(to("Worker w1 cannot update job claimed by w2"), Reaction::Drop);
        assert_eq!(to("Stale attempt: attempt 1 of job j is over, it is at attempt 2"), Reaction::Drop);
        assert_eq!(to("Job is not active: j is cancelled"), Reaction::Drop);
        assert_eq!(to("Blobs are disabled: start agq with --blob-dir"), Reaction::GiveUp);
        assert_eq!(to("Unknown command 'OUTPUT.WRITE'"), Reaction::GiveUp);
        assert_eq!(to("Too many connections from 192.0.2.1: max 100"), Reaction::Reconnect);
        assert_eq!(to("NOPERM This key is a client's and may not use OUTPUT.WRITE"), Reaction::Reconnect);
    }
}
