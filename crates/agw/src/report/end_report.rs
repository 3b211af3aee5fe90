//! Report of the end of a job, and the reactions to the errors of agq. A report that agq refuses
//! again and again becomes a short one, so that the job does not stay active without an end.

use agenix_client::ClientError;
use agenix_protocol::{
    documents::{JobUpdate, Status, to_json},
    errors::ErrorKind,
    ids::JobId,
    limits::MAX_UPDATE_BYTES,
};
use tracing::{debug, error, warn};

use crate::exec::job_report;

/// Size limit below which a report leaves out the task results.
const MIN_UPDATE_BYTES: usize = 4096;
/// Maximum number of repeated reports that agq refuses for a reason that this worker does not know.
const MAX_REFUSED: u32 = 3;
/// Maximum number of characters of agq's reason in a short report.
const MAX_REASON_CHARS: usize = 300;

/// Report of the end of a job.
pub(super) struct EndReport<'j> {
    job_id: &'j JobId,
    update: JobUpdate,
    json: String,
    /// Maximum number of bytes of the report. If 0, the report has no task results.
    most: usize,
    /// Number of repetitions since agq has refused the report.
    refused: u32,
    /// True if the report is the short one.
    is_short: bool,
}

/// Outcome of the report of an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reported {
    /// agq has accepted the report, or the job no longer belongs to this worker.
    Done,
    /// agq does not have a blob that the report names.
    BlobMissing,
    /// agq refuses every report of the end, and has to take the job back.
    Refused,
}

/// Reaction to the error of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReportReaction {
    /// Sends the report again after a pause.
    Repeat,
    /// Sends the report again on a new connection.
    Reconnect,
    /// Sends no further report.
    Stop(Reported),
}

/// Kind of an error of the report of an end, by the reaction that helps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReportErrorKind {
    /// The job has ended, or belongs to another claim.
    NotOurs,
    /// agq does not have a blob that the report names.
    BlobMissing,
    /// The connection is lost, or agq no longer knows or permits the worker.
    Disconnected,
    /// The report exceeds the message limit of this agq. agq closes the connection.
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
            ErrorKind::WorkerNotRegistered | ErrorKind::NotPermitted => Self::Disconnected,
            ErrorKind::MessageTooLarge => Self::TooLarge,
            ErrorKind::TooManyCommands | ErrorKind::BlobStoreFailed => Self::Temporary,
            _ => Self::Other,
        }
    }
}

impl<'j> EndReport<'j> {
    pub(super) fn new(job_id: &'j JobId, update: JobUpdate) -> Self {
        let json = to_json(&update);
        Self { job_id, update, json, most: MAX_UPDATE_BYTES, refused: 0, is_short: false }
    }

    /// Returns the report in JSON.
    pub(super) fn json(&self) -> &str {
        &self.json
    }

    /// Returns the reaction to an error of agq or of the connection. The report may change.
    pub(super) fn react(&mut self, error: &ClientError) -> ReportReaction {
        let job_id = self.job_id;
        match ReportErrorKind::of(error) {
            ReportErrorKind::NotOurs => {
                warn!(%job_id, %error, "agq refused the report, and the job no longer belongs to this worker");
                ReportReaction::Stop(Reported::Done)
            }
            ReportErrorKind::BlobMissing => {
                warn!(%job_id, %error, "agq lacks an output that it has stored");
                ReportReaction::Stop(Reported::BlobMissing)
            }
            ReportErrorKind::Disconnected => {
                debug!(%job_id, %error, "the report waits for a new connection");
                ReportReaction::Reconnect
            }
            ReportErrorKind::TooLarge if self.most > 0 => {
                let most = if self.most > MIN_UPDATE_BYTES { self.most / 4 } else { 0 };
                warn!(%job_id, %error, most, "the report is too large for agq; sending it again with shorter output");
                let update = job_report::shrunk(std::mem::take(&mut self.update), most);
                self.replace(update, most);
                ReportReaction::Reconnect
            }
            ReportErrorKind::Temporary => {
                warn!(%job_id, %error, "the report will be sent again");
                ReportReaction::Repeat
            }
            ReportErrorKind::TooLarge | ReportErrorKind::Other if self.refused < MAX_REFUSED => {
                self.refused += 1;
                warn!(%job_id, %error, "agq refused the report, which will be sent again");
                ReportReaction::Repeat
            }
            ReportErrorKind::TooLarge | ReportErrorKind::Other if !self.is_short => {
                error!(%job_id, %error, "agq does not accept the report, and the result is lost; the worker reports the job as failed. Is agq of the same version?");
                self.shorten(error);
                ReportReaction::Repeat
            }
            ReportErrorKind::TooLarge | ReportErrorKind::Other => {
                error!(%job_id, %error, "agq accepts no report of the job; the worker registers again without the job, so that agq takes it back");
                ReportReaction::Stop(Reported::Refused)
            }
        }
    }

    /// Replaces the report by a failure without results, for the reason that `error` gives.
    fn shorten(&mut self, error: &ClientError) {
        let reason: String = error.to_string().chars().take(MAX_REASON_CHARS).collect();
        let update = JobUpdate {
            status: Some(Status::Failed),
            attempt: self.update.attempt,
            error: Some(format!("agq refused the report of the worker, and the result is lost: {reason}")),
            ..JobUpdate::default()
        };
        self.replace(update, 0);
        (self.refused, self.is_short) = (0, true);
    }

    fn replace(&mut self, update: JobUpdate, most: usize) {
        self.json = to_json(&update);
        (self.update, self.most) = (update, most);
    }
}

/// Returns true if the refusal means that the job has ended or belongs to another claim.
pub(super) fn is_not_ours(reason: &str) -> bool {
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
    use agenix_protocol::{
        documents::{JobUpdate, Status, parse},
        ids::JobId,
    };

    use super::{EndReport, MAX_REFUSED, ReportErrorKind, ReportReaction, Reported, is_not_ours};

    #[test]
    fn report_is_dropped_only_if_the_job_is_not_ours() {
        let of = |text: &str| ReportErrorKind::of(&ClientError::Rejected(text.into()));
        assert_eq!(of("Job not found: job-1"), ReportErrorKind::NotOurs);
        assert_eq!(of("Blob not found: d749"), ReportErrorKind::BlobMissing);
        assert_eq!(of("Worker not registered: w1"), ReportErrorKind::Disconnected);
        let role = "NOPERM This key is a client's and may not use JOB.UPDATE";
        assert_eq!(of(role), ReportErrorKind::Disconnected);
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
    fn report_that_agq_refuses_becomes_a_short_failure_before_the_job_goes_back() {
        let job_id: JobId = "job-1".parse().unwrap();
        let json = r#"{"status":"completed","attempt":2,"task_results":[]}"#;
        let mut report = EndReport::new(&job_id, parse(json.as_bytes()).unwrap());
        let refusal = ClientError::Rejected("a defect".into());
        for _ in 0..MAX_REFUSED {
            assert_eq!(report.react(&refusal), ReportReaction::Repeat);
            assert_eq!(report.json(), json);
        }
        assert_eq!(report.react(&refusal), ReportReaction::Repeat);
        let short: JobUpdate = parse(report.json().as_bytes()).unwrap();
        assert_eq!((short.status, short.attempt), (Some(Status::Failed), Some(2)));
        assert!(short.error.unwrap().ends_with("and the result is lost: a defect"));
        assert!(short.task_results.is_none());
        for _ in 0..MAX_REFUSED {
            assert_eq!(report.react(&refusal), ReportReaction::Repeat);
        }
        assert_eq!(report.react(&refusal), ReportReaction::Stop(Reported::Refused));
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
