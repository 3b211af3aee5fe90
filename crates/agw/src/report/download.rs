//! Download of the blobs that the input of a job names, before the job starts (ADR 20).

use std::{io, os::unix::fs::FileExt, sync::Arc, time::Duration};

use agenix_client::ClientError;
use agenix_protocol::{
    blob::{BlobHash, BlobHasher},
    documents::JobDocument,
};
use tokio::{sync::watch, time::sleep};
use tracing::debug;

use crate::{
    exec::spool::{Spool, SpoolFile},
    report::{link::ReportLink, upload::Reaction},
};

/// Number of bytes of a piece.
const PIECE_BYTES: u64 = 1024 * 1024;
/// Pause before agq is asked again after an error.
const PAUSE: Duration = Duration::from_secs(1);
/// Maximum number of requests for a piece that the storage of agq cannot read.
const MAX_FAILED: u32 = 5;

/// Received part of a blob.
struct Received {
    file: Arc<SpoolFile>,
    hash: BlobHasher,
    bytes: u64,
}

impl Received {
    /// Appends bytes to the file, and adds them to the hash. Lanes may block on spool files.
    fn add(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, self.bytes)?;
        self.hash.update(bytes);
        self.bytes += bytes.len() as u64;
        Ok(())
    }
}

/// Fetches a blob into a spool file. Waits for the connection to agq as long as necessary. The
/// error is the reason for which the job fails.
pub(crate) async fn fetch(
    job: &JobDocument,
    hash: BlobHash,
    spool: &Spool,
    mut current: watch::Receiver<Option<ReportLink>>,
) -> Result<Arc<SpoolFile>, String> {
    let file = spool.file().map_err(|error| format!("stdin cannot be stored: {error}"))?;
    let mut received = Received { file: Arc::new(file), hash: BlobHasher::default(), bytes: 0 };
    let mut failed = 0;
    loop {
        let link = current.borrow_and_update().clone();
        let Some(link) = link else {
            if current.changed().await.is_err() {
                return Err("the worker ends".into());
            }
            continue;
        };
        let error = match receive(job, hash, &mut received, &link).await {
            Ok(()) if received.hash.clone().finish() == hash => return Ok(received.file),
            Ok(()) => return Err(format!("stdin does not have the BLAKE3 hash {hash}")),
            Err(error) => error,
        };
        match Reaction::to(&error) {
            Reaction::Repeat if failed < MAX_FAILED => failed += 1,
            Reaction::Reconnect => link.close_idle(),
            _ => return Err(format!("stdin cannot be fetched from agq: {error}")),
        }
        debug!(job_id = %job.job_id, %error, "the input will be requested again");
        sleep(PAUSE).await;
    }
}

/// Receives the rest of the blob.
async fn receive(
    job: &JobDocument,
    hash: BlobHash,
    received: &mut Received,
    link: &ReportLink,
) -> Result<(), ClientError> {
    let mut transfer = link.transfer().await?;
    loop {
        let range = (received.bytes, PIECE_BYTES);
        let piece = transfer.connection.job_input((&job.job_id, job.attempt), hash, range).await?;
        let Some((total, bytes)) = piece else {
            return Err(ClientError::Unexpected(format!("agq does not know the input {hash} of the job")));
        };
        if bytes.is_empty() && received.bytes < total {
            return Err(ClientError::Unexpected(format!("agq has only a part of the input {hash}")));
        }
        received.add(&bytes).map_err(|error| {
            ClientError::Unexpected(format!("the spool of the worker cannot store it: {error}"))
        })?;
        if received.bytes >= total {
            link.give_back(transfer);
            return Ok(());
        }
    }
}
