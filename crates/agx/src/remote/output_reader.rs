//! Reads a stored stream of a job in chunks, so that its size does not matter. If agq sends the
//! chunks, the next one is on its way while the caller uses the present one.

use agenix_client::{ClientError, Connection};
use agenix_protocol::{blob::OutputStream, ids::JobId};
use bytes::Bytes;
use tokio::task::JoinHandle;

use crate::{
    error::{CliError, Result},
    remote::{local_blob::LocalBlob, retrying_client::RetryingClient},
};

/// Number of bytes that agx asks for at once.
const CHUNK_BYTES: u64 = 1024 * 1024;

/// Reply to a request for a chunk.
type FetchedChunk = Result<Option<Bytes>, ClientError>;

/// Position in a stored stream.
#[derive(Debug)]
pub(crate) struct OutputReader {
    source: TaskStreamId,
    /// File of the stream if agq runs on this machine.
    local: Option<LocalBlob>,
    total: u64,
    offset: u64,
    /// Chunk at `offset`, requested ahead.
    ahead: Option<JoinHandle<FetchedChunk>>,
    /// Latest chunk of the file, whose memory the next one takes once the caller has dropped it.
    latest: Bytes,
    /// True until agq was asked for the file of the stream.
    is_new: bool,
}

/// Stream of a task of a job.
#[derive(Debug, Clone)]
struct TaskStreamId {
    job_id: JobId,
    stream: (u32, OutputStream),
}

impl TaskStreamId {
    /// Asks agq for the chunk at `offset`.
    async fn chunk(&self, agq: &mut Connection, offset: u64) -> FetchedChunk {
        let chunk = agq.job_result(&self.job_id, self.stream, (offset, CHUNK_BYTES)).await?;
        Ok(chunk.map(|(_, bytes)| bytes.into()))
    }

    /// Opens the file of the stream if agq runs on this machine, and the file can be opened.
    async fn file(&self, agq: &RetryingClient) -> Option<LocalBlob> {
        let mut agq = agq.connection().filter(Connection::is_local)?;
        // An older agq does not know the command, and sends the bytes.
        let (total, path) = agq.job_file(&self.job_id, self.stream).await.ok()??;
        LocalBlob::open(&path, total).ok()
    }
}

impl OutputReader {
    /// Returns a reader of a stream of `total` bytes that begins at `offset`.
    pub(crate) fn new(job_id: &JobId, stream: (u32, OutputStream), total: u64, offset: u64) -> Self {
        let source = TaskStreamId { job_id: job_id.clone(), stream };
        Self { source, local: None, total, offset, ahead: None, latest: Bytes::new(), is_new: true }
    }

    /// Returns the next chunk, or `None` at the end of the stream.
    pub(crate) async fn next(&mut self, agq: &mut RetryingClient) -> Result<Option<Bytes>> {
        if self.offset >= self.total {
            return Ok(None);
        }
        if std::mem::take(&mut self.is_new) {
            self.local = self.source.file(agq).await;
        }
        if let Some(chunk) = self.local_chunk() {
            self.offset += chunk.len() as u64;
            return Ok(Some(chunk));
        }
        let ahead = match self.ahead.take() {
            Some(ahead) => ahead.await.ok().and_then(Result::ok),
            None => None,
        };
        let chunk = match ahead {
            Some(chunk) => chunk,
            // The request is repeated, also after a restart of agq.
            None => agq.with_retry(async |agq| self.source.chunk(agq, self.offset).await).await?,
        };
        match chunk {
            Some(bytes) if !bytes.is_empty() => {
                self.offset += bytes.len() as u64;
                self.request_ahead(agq);
                Ok(Some(bytes))
            }
            _ => Err(CliError::Jobs(format!(
                "the output of job {} is lost: agq removed it before agx fetched it",
                self.source.job_id
            ))),
        }
    }

    /// Reads the next chunk from the file. Without a sound file, agq is asked for the rest, and
    /// explains what is wrong.
    fn local_chunk(&mut self) -> Option<Bytes> {
        let local = self.local.take()?;
        let buffer = std::mem::take(&mut self.latest).try_into_mut().unwrap_or_default();
        self.latest = local.chunk(self.offset, buffer)?;
        self.local = Some(local);
        Some(self.latest.clone())
    }

    /// Requests the next chunk from agq, if there is one.
    fn request_ahead(&mut self, agq: &RetryingClient) {
        let connection = agq.connection().filter(|_| self.offset < self.total);
        let (source, offset) = (self.source.clone(), self.offset);
        self.ahead = connection
            .map(|mut connection| tokio::spawn(async move { source.chunk(&mut connection, offset).await }));
    }
}
