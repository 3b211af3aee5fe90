//! Output of a job that agx fetches in chunks, because the report has only its first bytes.

use agenix_protocol::{
    blob::OutputStream,
    documents::{CapturedOutput, TaskResult},
    ids::JobId,
};

use crate::{
    error::Result,
    remote::{output_reader::OutputReader, retrying_client::RetryingClient},
};

/// Returns true if a part of the output of any task is in a blob.
pub(crate) fn has_blobs(results: &[TaskResult]) -> bool {
    results.iter().flat_map(|result| [&result.stdout, &result.stderr]).any(|captured| captured.blob.is_some())
}

/// Streams that together are one stream of a job, in their order.
#[derive(Debug)]
pub(crate) struct JobStreams<'r> {
    pub(crate) stdout: Vec<(u32, &'r CapturedOutput)>,
    pub(crate) stderr: Vec<(u32, &'r CapturedOutput)>,
}

impl<'r> JobStreams<'r> {
    /// Returns the stdout of the task `last`, and the stderr of all tasks.
    pub(crate) fn of(results: &'r [TaskResult], last: Option<&'r TaskResult>) -> Self {
        let stdout = last.map(|last| (last.task_number, &last.stdout)).into_iter().collect();
        let stderr = results.iter().map(|result| (result.task_number, &result.stderr)).collect();
        Self { stdout, stderr }
    }

    /// Returns true if a part of a stream is in a blob.
    pub(crate) fn are_large(&self) -> bool {
        self.stdout.iter().chain(&self.stderr).any(|(_, captured)| captured.blob.is_some())
    }

    /// Returns the number of bytes of both streams.
    pub(crate) fn bytes(&self) -> u64 {
        self.stdout.iter().chain(&self.stderr).map(|(_, captured)| captured.total).sum()
    }

    /// Passes all bytes to `take`: stdout, and then stderr. Stops at the first error.
    pub(crate) async fn fetch(
        &self,
        agq: &mut RetryingClient,
        job_id: &JobId,
        mut take: impl FnMut(OutputStream, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let all = [(OutputStream::Stdout, &self.stdout), (OutputStream::Stderr, &self.stderr)];
        for (stream, parts) in all {
            for (task_number, captured) in parts {
                if captured.blob.is_none() {
                    take(stream, &captured.bytes)?;
                    continue;
                }
                let mut reader = OutputReader::new(job_id, (*task_number, stream), captured.total, 0);
                while let Some(chunk) = reader.next(agq).await? {
                    take(stream, &chunk)?;
                }
            }
        }
        Ok(())
    }
}
