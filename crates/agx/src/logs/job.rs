//! One job that is followed: while it runs its worker is asked, when it has ended there is what was kept of it.

use std::{collections::HashMap, time::Duration};

use agenix_client::ClientError;
use agenix_protocol::{
    documents::{JobStatus, Status},
    ids::JobId,
};
use tokio::time::Instant;

use crate::{
    error::CliError,
    logs::{position::StreamPositions, printer::LogPrinter},
    output::Output,
    remote::retrying_client::RetryingClient,
};

/// How long a worker is let alone that does not say what its jobs write.
const MUTE: Duration = Duration::from_secs(10);
/// Most pieces of a running job that are asked for in one go, where others wait for their turn: some megabytes.
const PIECES_A_LOOK: usize = 64;
/// The same where it is asked about once: what is there by then, of a job that goes on writing.
const PIECES_AT_MOST: usize = 16 * 1024;

/// The job, and how far it has been shown.
pub(super) struct FollowedJob {
    pub(super) job_id: JobId,
    seen: StreamPositions,
    paper: LogPrinter,
}

/// The workers that did not answer, and until when they are let alone.
pub(super) struct SilentWorkers {
    until: HashMap<String, Instant>,
    output: Output,
}

impl SilentWorkers {
    pub(super) fn new(output: Output) -> Self {
        Self { until: HashMap::new(), output }
    }

    fn has(&self, worker: &str) -> bool {
        self.until.get(worker).is_some_and(|until| Instant::now() < *until)
    }

    /// It did not answer; said once.
    fn add(&mut self, worker: String, reason: &str) {
        if self.until.insert(worker, Instant::now() + MUTE).is_none() {
            self.output.note(&format!("agx: {reason}; what was kept comes when its jobs end"));
        }
    }
}

impl FollowedJob {
    pub(super) fn new(job_id: JobId, prefix: Option<String>, task: Option<u32>, output: Output) -> Self {
        let paper = LogPrinter::new(job_id.clone(), task, prefix, output);
        Self { job_id, seen: StreamPositions::default(), paper }
    }

    /// Prints what is new; whether that was the last of it. `job` was asked for before this.
    pub(super) async fn poll(
        &mut self,
        agq: &mut RetryingClient,
        job: &JobStatus,
        follow: bool,
        mutes: &mut SilentWorkers,
    ) -> Result<bool, CliError> {
        let (is_running, worker) =
            (job.status == Status::Running, job.worker_id.as_deref().unwrap_or_default());
        let was_seen = job.attempt > 0 && self.seen.position().attempt == job.attempt;
        if is_running && !mutes.has(worker) {
            let most = if follow { PIECES_A_LOOK } else { PIECES_AT_MOST };
            self.ask(agq, worker, most, mutes).await?;
        } else if !is_running && was_seen {
            // The last time: its worker still knows what it wrote beyond what was kept.
            self.ask(agq, worker, usize::MAX, mutes).await?;
        }
        if !is_running && job.attempt > 0 {
            let fresh = self.seen.of_results(job.attempt, job.results());
            self.paper.print(fresh)?;
        }
        Ok(job.status.is_ended())
    }

    /// Nothing comes any more.
    pub(super) fn end(&mut self) -> Result<(), CliError> {
        self.paper.end()
    }

    /// Asks the worker until it has said all that there is, or so many pieces of it.
    async fn ask(
        &mut self,
        agq: &mut RetryingClient,
        worker: &str,
        most: usize,
        mutes: &mut SilentWorkers,
    ) -> Result<(), CliError> {
        for _ in 0..most {
            let position = self.seen.position();
            match agq.job_output(&self.job_id, &position).await {
                Ok(Some(output)) => {
                    let more = output.more;
                    let fresh = self.seen.of_output(output);
                    // More that brings nothing would bring nothing for ever.
                    let is_all = !more || fresh.is_empty();
                    self.paper.print(fresh)?;
                    if is_all {
                        return Ok(());
                    }
                }
                Ok(None) => return Ok(()),
                Err(ClientError::Rejected(reason)) if reason.starts_with("Output not available") => {
                    mutes.add(worker.to_owned(), &reason);
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}
