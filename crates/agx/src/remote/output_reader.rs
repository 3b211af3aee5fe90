//! Reads a stored stream of a job in pieces, so that its size does not matter.

use agenix_protocol::{blob::OutputStream, ids::JobId};

use crate::{
    error::{CliError, Result},
    remote::retrying_client::RetryingClient,
};

/// Number of bytes that agx asks for at once.
const PIECE_BYTES: u64 = 1024 * 1024;

/// Position in a stored stream.
#[derive(Debug)]
pub(crate) struct OutputReader {
    job_id: JobId,
    task_number: u32,
    stream: OutputStream,
    total: u64,
    offset: u64,
}

impl OutputReader {
    /// Returns a reader of a stream of `total` bytes that begins at `offset`.
    pub(crate) fn new(
        job_id: &JobId,
        (task_number, stream): (u32, OutputStream),
        total: u64,
        offset: u64,
    ) -> Self {
        Self { job_id: job_id.clone(), task_number, stream, total, offset }
    }

    /// Returns the next piece, or `None` at the end of the stream.
    pub(crate) async fn next(&mut self, agq: &mut RetryingClient) -> Result<Option<Vec<u8>>> {
        if self.offset >= self.total {
            return Ok(None);
        }
        let (job_id, stream, range) =
            (&self.job_id, (self.task_number, self.stream), (self.offset, PIECE_BYTES));
        let piece = agq.with_retry(async |agq| agq.job_result(job_id, stream, range).await).await?;
        match piece {
            Some((_, bytes)) if !bytes.is_empty() => {
                self.offset += bytes.len() as u64;
                Ok(Some(bytes))
            }
            _ => Err(CliError::Jobs(format!(
                "the output of job {} is lost: agq removed it before agx fetched it",
                self.job_id
            ))),
        }
    }
}
