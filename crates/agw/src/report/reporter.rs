//! Reporter of one job: sends progress and the end of the job over the current connection. Jobs
//! outlive registrations, so the connection may change meanwhile.

use std::{convert::Infallible, sync::Arc, time::Duration};

use agenix_client::ClientError;
use agenix_protocol::{
    documents::{JobDocument, JobUpdate, Status},
    ids::JobId,
    request::UploadKey,
};
use tokio::{
    sync::{Notify, watch},
    task::JoinHandle,
    time::sleep,
};
use tracing::{debug, warn};

use crate::{
    exec::{cancel::CancelToken, job_report, live_output::LargeOutput, stages::JobProgress},
    report::{
        end_report::{EndReport, ReportReaction, Reported, is_not_ours},
        link::ReportLink,
        storage_failures::StorageFailures,
        upload::{Uploaded, upload},
    },
};

/// Pause after an error of agq's store, because a full disk may be temporary.
const STORE_PAUSE: Duration = Duration::from_secs(1);
/// Delay of the first progress report. agq shows every claimed job as running before the report.
const RUNNING_REPORT_DELAY: Duration = Duration::from_millis(20);
/// Pause before a repeated report of progress that did not reach agq.
const REPEAT_PAUSE: Duration = Duration::from_secs(2);
/// Pause between two progress reports.
const PROGRESS_PAUSE: Duration = Duration::from_secs(1);

/// A progress report in flight.
pub(crate) type StartReport = JoinHandle<Result<(), ClientError>>;

pub(crate) struct JobReporter {
    current: watch::Receiver<Option<ReportLink>>,
    lost: Arc<Notify>,
    /// True if an output that agq cannot store for minutes is given up.
    gives_up_outputs: bool,
}

impl JobReporter {
    /// Creates a reporter for the connection in `current`. The reporter notifies `lost` when the
    /// connection is dead, because without a claim in flight only the next heartbeat would notice.
    pub(crate) fn new(current: watch::Receiver<Option<ReportLink>>, lost: Arc<Notify>) -> Self {
        Self { current, lost, gives_up_outputs: false }
    }

    /// Returns a reporter that gives up outputs which agq cannot store for minutes, if it is to.
    pub(crate) fn giving_up_outputs(self, gives_up_outputs: bool) -> Self {
        Self { gives_up_outputs, ..self }
    }

    /// Reports the end of a job, and repeats the report until agq has accepted or refused it.
    pub(crate) async fn report(&mut self, job_id: &JobId, update: JobUpdate) -> Reported {
        let mut report = EndReport::new(job_id, update);
        loop {
            // After a failure, only a newer connection is worth another try.
            let link = self.current.borrow_and_update().clone();
            if let Some(ReportLink { reports: mut connection, .. }) = link {
                let Err(error) = connection.update_job_json(job_id, report.json().to_owned()).await else {
                    return Reported::Done;
                };
                match report.react(&error) {
                    ReportReaction::Stop(reported) => return reported,
                    ReportReaction::Reconnect => self.report_lost_job(),
                    ReportReaction::Repeat => {
                        sleep(STORE_PAUSE).await;
                        continue;
                    }
                }
            }
            if self.current.changed().await.is_err() {
                return Reported::Done;
            }
        }
    }

    /// Lets the worker register again, so that agq takes back a job whose run has ended without an
    /// accepted report.
    pub(crate) fn give_back(&self) {
        // A worker that registers at this moment gets the notification afterwards.
        self.lost.notify_one();
    }

    /// Uploads the large outputs of a job, and names their blobs in `update`. Returns false if the
    /// job no longer belongs to this worker.
    pub(crate) async fn upload(
        &mut self,
        job_id: &JobId,
        outputs: &[LargeOutput],
        update: &mut JobUpdate,
    ) -> bool {
        let mut blobs = Vec::with_capacity(outputs.len());
        for output in outputs {
            let (task_number, stream) = (output.task_number, output.stream);
            let attempt = update.attempt.unwrap_or_default();
            let key = UploadKey { job_id: job_id.clone(), attempt, task_number, stream };
            let failures = StorageFailures::new(self.gives_up_outputs);
            match upload(&key, output, &mut self.current, failures).await {
                Uploaded::Blob(hash) => blobs.push((task_number, stream, output.length, hash)),
                Uploaded::Refused => {}
                Uploaded::NotOurs => return false,
            }
        }
        job_report::name_blobs(update, &blobs);
        true
    }

    /// Notifies `lost` that the connection is dead, unless a newer connection exists.
    fn report_lost_job(&self) {
        if !self.current.has_changed().unwrap_or(true) {
            self.lost.notify_waiters();
        }
    }

    /// Reports that a job runs, and its progress from time to time. Never returns.
    ///
    /// A report in flight is stored in `under_way` and continues after a drop of this future: the
    /// redis crate does not send commands that no task awaits, and the report must precede the end
    /// of the job. Progress that cannot be sent is skipped. `cancel` is cancelled if agq replies
    /// that the claim is no longer valid.
    pub(crate) async fn report_progress(
        &self,
        job: &JobDocument,
        mut progress: watch::Receiver<Option<JobProgress>>,
        cancel: &CancelToken,
        under_way: &mut Option<StartReport>,
    ) -> Infallible {
        let job_id = &job.job_id;
        // The status is sent until agq has received it once.
        let mut status = Some(Status::Running);
        let mut is_heard = true;
        sleep(RUNNING_REPORT_DELAY).await;
        loop {
            // A report that did not reach agq is repeated without a change of progress.
            if is_heard && progress.changed().await.is_err() {
                return std::future::pending().await;
            }
            let now = *progress.borrow_and_update();
            let link = self.current.borrow().clone();
            let (Some(now), Some(ReportLink { reports: mut connection, .. })) = (now, link) else {
                is_heard = now.is_none();
                sleep(REPEAT_PAUSE).await;
                continue;
            };
            let update = JobUpdate {
                status,
                attempt: Some(job.attempt),
                current_task: Some(now.current_task),
                progress_percent: Some(now.percent),
                ..JobUpdate::default()
            };
            let id = job_id.clone();
            let report =
                under_way.insert(tokio::spawn(async move { connection.update_job(&id, &update).await }));
            let Ok(told) = report.await else { return std::future::pending().await };
            *under_way = None;
            is_heard = true;
            match told {
                Ok(()) => status = None,
                Err(ClientError::Rejected(reason)) if is_not_ours(&reason) => {
                    warn!(%job_id, "the job no longer belongs to this worker, and its processes are being ended: {reason}");
                    cancel.cancel();
                }
                Err(error) => {
                    debug!(%job_id, %error, "progress could not be reported and will be reported again");
                    is_heard = false;
                    sleep(REPEAT_PAUSE).await;
                }
            }
            sleep(PROGRESS_PAUSE).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures_util::FutureExt;
    use tokio::sync::{Notify, watch};

    use super::JobReporter;

    #[test]
    fn job_that_goes_back_is_not_missed_by_a_worker_that_registers_at_this_moment() {
        let lost = Arc::new(Notify::new());
        let reporter = JobReporter::new(watch::Sender::new(None).subscribe(), Arc::clone(&lost));
        reporter.give_back();
        assert!(lost.notified().now_or_never().is_some());
        assert!(lost.notified().now_or_never().is_none(), "the worker registers once");
    }
}
