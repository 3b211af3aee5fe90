//! Reporter of one job: sends progress and the end of the job over the current connection. Jobs
//! outlive registrations, so the connection may change meanwhile.

use std::{convert::Infallible, sync::Arc, time::Duration};

use agenix_client::ClientError;
use agenix_protocol::{
    documents::{JobDocument, JobUpdate, Status, to_json},
    errors::ErrorKind,
    ids::JobId,
    limits::MAX_UPDATE_BYTES,
    request::UploadKey,
};
use tokio::{
    sync::{Notify, watch},
    task::JoinHandle,
    time::sleep,
};
use tracing::{debug, error, warn};

use crate::{
    exec::{cancel::CancelToken, job_report, live_output::LargeOutput, stages::JobProgress},
    report::{
        link::ReportLink,
        upload::{Uploaded, upload},
    },
};

/// Size limit below which a report leaves out the task results.
const MIN_UPDATE_BYTES: usize = 4096;
/// Pause after an error of agq's store, because a full disk may be temporary.
const STORE_PAUSE: Duration = Duration::from_secs(1);
/// Delay of the first progress report. agq shows every claimed job as running before it.
const RUNNING_REPORT_DELAY: Duration = Duration::from_millis(20);
/// Pause before a repeated report of progress that did not reach agq.
const REPEAT_PAUSE: Duration = Duration::from_secs(2);
/// Pause between two progress reports.
const PROGRESS_PAUSE: Duration = Duration::from_secs(1);

/// Maximum number of repeated reports that agq refuses for a reason that this worker does not know.
const MAX_REFUSED: u32 = 3;

/// A progress report in flight.
pub(crate) type StartReport = JoinHandle<Result<(), ClientError>>;

pub(crate) struct JobReporter {
    current: watch::Receiver<Option<ReportLink>>,
    lost: Arc<Notify>,
}

/// Outcome of the report of an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reported {
    /// agq has accepted or refused the report.
    Done,
    /// agq does not have a blob that the report names.
    BlobMissing,
}

/// Kind of an error of the report of an end, by the reaction that helps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReportErrorKind {
    /// The job has ended, or belongs to another claim.
    NotOurs,
    /// agq does not have a blob that the report names.
    BlobMissing,
    /// The connection is lost, or agq no longer knows the worker.
    Disconnected,
    /// The message limit of this agq is lower. agq closes the connection.
    TooLarge,
    /// The same report may succeed later.
    Temporary,
    Other,
}

impl ReportErrorKind {
    fn of(error: &ClientError) -> Self {
        let kind = match error {
            ClientError::Rejected(reason) if is_not_ours(reason) => return Self::NotOurs,
            ClientError::Rejected(reason) => ErrorKind::of(reason),
            ClientError::StoreFailed { .. } => return Self::Temporary,
            ClientError::Unexpected(_) => return Self::Other,
            ClientError::Unreachable { .. }
            | ClientError::Tls { .. }
            | ClientError::Unauthenticated { .. } => return Self::Disconnected,
        };
        match kind {
            ErrorKind::BlobNotFound => Self::BlobMissing,
            ErrorKind::WorkerNotRegistered => Self::Disconnected,
            ErrorKind::MessageTooLarge => Self::TooLarge,
            ErrorKind::TooManyCommands | ErrorKind::BlobStoreFailed => Self::Temporary,
            _ => Self::Other,
        }
    }
}

impl JobReporter {
    /// Creates a reporter for the connection in `current`. The reporter notifies `lost` when the
    /// connection is dead, because without a claim in flight only the next heartbeat would notice.
    pub(crate) fn new(current: watch::Receiver<Option<ReportLink>>, lost: Arc<Notify>) -> Self {
        Self { current, lost }
    }

    /// Reports the end of a job, and repeats the report until agq has accepted or refused it.
    /// Returns the reason if the report has to be made again after an upload.
    pub(crate) async fn report(&mut self, job_id: &JobId, mut update: JobUpdate) -> Reported {
        let (mut json, mut most, mut refused) = (to_json(&update), MAX_UPDATE_BYTES, 0);
        loop {
            // After a failure, only a newer connection is worth another try.
            let link = self.current.borrow_and_update().clone();
            if let Some(ReportLink { reports: mut connection, .. }) = link {
                let Err(error) = connection.update_job_json(job_id, json.clone()).await else {
                    return Reported::Done;
                };
                match ReportErrorKind::of(&error) {
                    ReportErrorKind::NotOurs => {
                        warn!(%job_id, %error, "agq refused the report, and the job no longer belongs to this worker");
                        return Reported::Done;
                    }
                    ReportErrorKind::BlobMissing => {
                        warn!(%job_id, %error, "agq lacks an output that it has stored");
                        return Reported::BlobMissing;
                    }
                    ReportErrorKind::Disconnected => {
                        debug!(%job_id, %error, "the report waits for a new connection");
                        self.report_lost_job();
                    }
                    ReportErrorKind::TooLarge if most > 0 => {
                        most = if most > MIN_UPDATE_BYTES { most / 4 } else { 0 };
                        warn!(%job_id, %error, most, "the report is too large for agq; sending it again with shorter output");
                        update = job_report::shrunk(update, most);
                        json = to_json(&update);
                        self.report_lost_job();
                    }
                    ReportErrorKind::Temporary => {
                        warn!(%job_id, %error, "the report will be sent again");
                        sleep(STORE_PAUSE).await;
                        continue;
                    }
                    ReportErrorKind::TooLarge | ReportErrorKind::Other if refused == MAX_REFUSED => {
                        error!(%job_id, %error, "agq does not accept the report, and the result of the job is lost");
                        return Reported::Done;
                    }
                    ReportErrorKind::TooLarge | ReportErrorKind::Other => {
                        refused += 1;
                        warn!(%job_id, %error, "agq refused the report, which will be sent again");
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
            match upload(&key, output, &mut self.current).await {
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

/// Returns true if the refusal means that the job has ended or belongs to another claim.
fn is_not_ours(reason: &str) -> bool {
    let kind = ErrorKind::of(reason);
    reason.starts_with("Invalid status transition: ")
        || matches!(
            kind,
            ErrorKind::StaleAttempt | ErrorKind::JobNotFound | ErrorKind::JobNotActive | ErrorKind::NotHolder
        )
}

#[cfg(test)]
mod tests {
    use agenix_client::ClientError;

    use super::{ReportErrorKind, is_not_ours};

    #[test]
    fn report_is_dropped_only_if_the_job_is_not_ours() {
        let of = |text: &str| ReportErrorKind::of(&ClientError::Rejected(text.into()));
        assert_eq!(of("Job not found: job-1"), ReportErrorKind::NotOurs);
        assert_eq!(of("Blob not found: d749"), ReportErrorKind::BlobMissing);
        assert_eq!(of("Worker not registered: w1"), ReportErrorKind::Disconnected);
        assert_eq!(of("Message too large: 9 bytes, and the maximum is 8"), ReportErrorKind::TooLarge);
        assert_eq!(of("Too many commands: slow down"), ReportErrorKind::Temporary);
        assert_eq!(of("the blob store failed: the disk is full"), ReportErrorKind::Temporary);
        assert_eq!(of("Invalid job update: task_results is not an array"), ReportErrorKind::Other);
        let lost = ClientError::Unreachable { address: "a:1".into(), reason: "closed".into() };
        assert_eq!(ReportErrorKind::of(&lost), ReportErrorKind::Disconnected);
        let away = ClientError::StoreFailed { address: "a:1".into(), reason: "it is away".into() };
        assert_eq!(ReportErrorKind::of(&away), ReportErrorKind::Temporary);
        assert_eq!(ReportErrorKind::of(&ClientError::Unexpected("a number".into())), ReportErrorKind::Other);
    }

    #[test]
    fn reporter_recognises_refusals_of_an_invalid_claim() {
        assert!(is_not_ours("Invalid status transition: cancelled -> running"));
        assert!(is_not_ours("Stale attempt: attempt 1 of job job-1 is over, it is at attempt 2"));
        assert!(is_not_ours("Worker w1 cannot update job claimed by w2"));
        assert!(is_not_ours("Job not found: job-1"));
        assert!(!is_not_ours("Invalid job update: task_results is not an array"));
        assert!(!is_not_ours("Worker not registered: w1"));
    }
}
