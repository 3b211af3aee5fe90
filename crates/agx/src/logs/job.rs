//! Follows one job: asks its worker while it runs, and prints the kept output when it has ended.

use std::{collections::HashMap, time::Duration};

use agenix_client::ClientError;
use agenix_protocol::{
    blob::OutputStream,
    documents::{JobStatus, OutputChunk, Status, TaskResult},
    errors::ErrorKind,
    ids::JobId,
};
use tokio::time::Instant;

use crate::{
    error::Result,
    logs::{
        position::StreamPositions,
        printer::{LineForm, LogPrinter},
    },
    output::OutputFormat,
    remote::{output_reader::OutputReader, retrying_client::RetryingClient},
};

/// Time without requests for a worker that did not answer.
const MUTE: Duration = Duration::from_secs(10);
/// Maximum number of chunks of a running job per poll while other jobs wait for their turn.
const CHUNKS_PER_POLL: usize = 64;
/// Maximum number of chunks without `--follow`, because a running job could write forever.
const MAX_CHUNKS: usize = 16 * 1024;

/// A followed job, and the position of its printed output.
pub(crate) struct FollowedJob {
    pub(super) job_id: JobId,
    positions: StreamPositions,
    printer: LogPrinter,
}

/// Workers that did not answer, with the time of the next request to each.
pub(crate) struct SilentWorkers {
    until: HashMap<String, Instant>,
    output: OutputFormat,
}

impl SilentWorkers {
    pub(crate) fn new(output: OutputFormat) -> Self {
        Self { until: HashMap::new(), output }
    }

    fn has(&self, worker: &str) -> bool {
        self.until.get(worker).is_some_and(|until| Instant::now() < *until)
    }

    /// Adds a worker that did not answer. Notifies the user once.
    fn add(&mut self, worker: String, reason: &str) {
        if self.until.insert(worker, Instant::now() + MUTE).is_none() {
            self.output.note(&format!("agx: {reason}; agx prints the kept output when its jobs end"));
        }
    }
}

impl FollowedJob {
    pub(crate) fn new(job_id: JobId, form: LineForm, task: Option<u32>, output: OutputFormat) -> Self {
        let printer = LogPrinter::new(job_id.clone(), task, form, output);
        Self { job_id, positions: StreamPositions::default(), printer }
    }

    /// Prints new output. Returns true if the output is complete. `job` is the state before this
    /// call.
    pub(crate) async fn poll(
        &mut self,
        agq: &mut RetryingClient,
        job: &JobStatus,
        follow: bool,
        silent: &mut SilentWorkers,
    ) -> Result<bool> {
        let (is_running, worker) =
            (job.status == Status::Running, job.worker_id.as_deref().unwrap_or_default());
        let was_followed = job.attempt > 0 && self.positions.position().attempt == job.attempt;
        if is_running && !silent.has(worker) {
            let most = if follow { CHUNKS_PER_POLL } else { MAX_CHUNKS };
            self.ask(agq, (job.attempt, worker), most, silent).await?;
        } else if !is_running && was_followed {
            // On the last poll, the worker still has output beyond the part that agq keeps.
            self.ask(agq, (job.attempt, worker), usize::MAX, silent).await?;
        }
        if !is_running && job.attempt > 0 {
            let results = job.results();
            self.print_stored(agq, job.attempt, &results).await?;
            let fresh = self.positions.of_results(job.attempt, results);
            self.printer.print(fresh)?;
        }
        Ok(job.status.is_ended())
    }

    /// Prints the streams that agq has stored whole, from the positions on.
    async fn print_stored(
        &mut self,
        agq: &mut RetryingClient,
        attempt: u32,
        results: &[TaskResult],
    ) -> Result<()> {
        for result in results {
            for stream in [OutputStream::Stdout, OutputStream::Stderr] {
                let captured = result.stream(stream);
                if captured.blob.is_none() {
                    continue;
                }
                let stream = (result.task_number, stream);
                let mut from = self.positions.printed(attempt, stream.0, stream.1);
                let mut reader = OutputReader::new(&self.job_id, stream, captured.total, from);
                while let Some(bytes) = reader.next(agq).await? {
                    let end = from + bytes.len() as u64;
                    let fresh =
                        self.positions.of_chunk(attempt, stream, OutputChunk { from, bytes: bytes.into() });
                    self.printer.print(fresh.into_iter().collect())?;
                    from = end;
                }
            }
        }
        Ok(())
    }

    /// Ends the output, and prints its incomplete lines.
    pub(crate) fn end(&mut self) -> Result<()> {
        self.printer.end()
    }

    /// Requests output of an attempt from its worker until the worker has sent everything, or at
    /// most `most` chunks.
    async fn ask(
        &mut self,
        agq: &mut RetryingClient,
        (attempt, worker): (u32, &str),
        most: usize,
        silent: &mut SilentWorkers,
    ) -> Result<()> {
        for _ in 0..most {
            let position = self.positions.position();
            match agq.with_retry(async |agq| agq.job_output(&self.job_id, Some(&position)).await).await {
                Ok(Some(output)) => {
                    let more = output.more;
                    let fresh = self.positions.of_output(attempt, output);
                    // A worker that announces more and sends nothing would do so forever.
                    let is_all = !more || fresh.is_empty();
                    self.printer.print(fresh)?;
                    if is_all {
                        return Ok(());
                    }
                }
                Ok(None) => return Ok(()),
                Err(ClientError::Rejected(reason))
                    if ErrorKind::of(&reason) == ErrorKind::OutputNotAvailable =>
                {
                    silent.add(worker.to_owned(), &reason);
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}
