//! Reads a stored stream of a job in pieces, so that its size does not matter. The next piece is on
//! its way while the caller uses the present one.

use agenix_client::{ClientError, Connection};
use agenix_protocol::{blob::OutputStream, ids::JobId};
use tokio::task::JoinHandle;

use crate::{
    error::{CliError, Result},
    remote::retrying_client::RetryingClient,
};

/// Number of bytes that agx asks for at once.
const PIECE_BYTES: u64 = 1024 * 1024;

/// Reply to a request for a piece.
type Piece = Result<Option<(u64, Vec<u8>)>, ClientError>;

/// Position in a stored stream.
#[derive(Debug)]
pub(crate) struct OutputReader {
    source: Source,
    total: u64,
    offset: u64,
    /// Request for the piece at `offset`, sent ahead.
    ahead: Option<JoinHandle<Piece>>,
}

/// Stream of a task of a job.
#[derive(Debug, Clone)]
struct Source {
    job_id: JobId,
    task_number: u32,
    stream: OutputStream,
}

impl Source {
    async fn piece(&self, agq: &mut Connection, offset: u64) -> Piece {
        agq.job_result(&self.job_id, (self.task_number, self.stream), (offset, PIECE_BYTES)).await
    }
}

impl OutputReader {
    /// Returns a reader of a stream of `total` bytes that begins at `offset`.
    pub(crate) fn new(
        job_id: &JobId,
        (task_number, stream): (u32, OutputStream),
        total: u64,
        offset: u64,
    ) -> Self {
        let source = Source { job_id: job_id.clone(), task_number, stream };
        Self { source, total, offset, ahead: None }
    }

    /// Returns the next piece, or `None` at the end of the stream.
    pub(crate) async fn next(&mut self, agq: &mut RetryingClient) -> Result<Option<Vec<u8>>> {
        if self.offset >= self.total {
            return Ok(None);
        }
        let ahead = match self.ahead.take() {
            Some(ahead) => ahead.await.ok().and_then(Result::ok),
            None => None,
        };
        let piece = match ahead {
            Some(piece) => piece,
            // The request is repeated, also after a restart of agq.
            None => agq.with_retry(async |agq| self.source.piece(agq, self.offset).await).await?,
        };
        match piece {
            Some((_, bytes)) if !bytes.is_empty() => {
                self.offset += bytes.len() as u64;
                self.send_ahead(agq);
                Ok(Some(bytes))
            }
            _ => Err(CliError::Jobs(format!(
                "the output of job {} is lost: agq removed it before agx fetched it",
                self.source.job_id
            ))),
        }
    }

    /// Requests the next piece, if there is one.
    fn send_ahead(&mut self, agq: &RetryingClient) {
        let connection = agq.connection().filter(|_| self.offset < self.total);
        let (source, offset) = (self.source.clone(), self.offset);
        self.ahead = connection
            .map(|mut connection| tokio::spawn(async move { source.piece(&mut connection, offset).await }));
    }
}
