//! Early end of a map: no further job starts, and the running ones end.

use std::time::Duration;

use agenix_client::ClientError;
use agenix_protocol::{
    documents::{ActionStatus, Status},
    ids::QueueName,
};
use tokio::time::Instant;

use super::Collector;
use crate::{error::Result, map::stop_level::StopLevel};

/// Time for jobs to end before agx cancels them: results may be on their way to agq.
const GRACE: Duration = Duration::from_millis(500);
/// Duration and interval of repeated requests to workers to give up unstarted jobs.
const ASK_FOR: Duration = Duration::from_secs(3);
const ASK_EVERY: Duration = Duration::from_millis(200);

impl Collector<'_> {
    /// Cancels unstarted jobs and, after [`GRACE`] if `stop_level` is `End`, running jobs.
    pub(super) async fn end_early(&mut self, status: &ActionStatus, stop_level: StopLevel) -> Result<()> {
        let now = Instant::now();
        let since = *self.state.ending_since.get_or_insert(now);
        if status.pending + status.running == 0 {
            return Ok(());
        }
        let is_due = self.state.asked_at.is_none_or(|at| now - at >= ASK_EVERY);
        let is_done_by_agq = status.halted.is_some();
        if !is_done_by_agq
            && !self.state.is_cancelled
            && is_due
            && (status.pending > 0 || now - since < ASK_FOR)
        {
            self.agq.with_retry(async |agq| agq.cancel_unstarted(self.action_id).await).await?;
            self.state.asked_at = Some(now);
        }
        if stop_level == StopLevel::End && now - since >= GRACE && !self.state.is_cancelled {
            self.agq.cancel_action(self.action_id).await?;
            self.state.is_cancelled = true;
        }
        Ok(())
    }

    /// Ends a map whose agq and worker end with it. The waiting jobs stay as they are, because the
    /// cancellation of each would take longer, and jobs would start and end meanwhile. Returns true
    /// when no job runs and the results of all ended ones are taken.
    pub(super) async fn end_with_server(&mut self, status: &ActionStatus) -> Result<bool> {
        let now = Instant::now();
        if !self.state.is_drained {
            self.start_no_more(status).await?;
            (self.state.is_drained, self.state.ending_since) = (true, Some(now));
            // The output before one that waits may never come.
            self.state.wait_no_more();
            return Ok(false);
        }
        // The status is younger than the drain, so no job has started since.
        if status.running == 0 && status.ended() <= self.state.collected.taken() {
            return Ok(true);
        }
        let is_due = self.state.ending_since.is_none_or(|since| now - since >= GRACE);
        if is_due && !self.state.is_cancelled {
            for job_id in self.agq.jobs_of(status, Status::Running).await? {
                unless_rejected(self.agq.with_retry(async |agq| agq.cancel_job(&job_id).await).await)?;
            }
            self.state.is_cancelled = true;
        }
        Ok(false)
    }

    /// Pauses the queue, and lets the workers give back the jobs that they have claimed ahead.
    async fn start_no_more(&mut self, status: &ActionStatus) -> Result<()> {
        if let Ok(queue) = QueueName::new(status.queue.as_str()) {
            self.agq.with_retry(async |agq| agq.pause_queue(&queue, true).await).await?;
        }
        for worker in self.agq.with_retry(async |agq| agq.workers().await).await? {
            let drained = self.agq.with_retry(async |agq| agq.drain_worker(&worker.worker_id, None).await);
            unless_rejected(drained.await)?;
        }
        Ok(())
    }
}

/// Ignores a rejection: the job has ended, or the worker has left.
fn unless_rejected(reply: std::result::Result<(), ClientError>) -> Result<()> {
    match reply {
        Err(ClientError::Rejected(_)) => Ok(()),
        other => Ok(other?),
    }
}
