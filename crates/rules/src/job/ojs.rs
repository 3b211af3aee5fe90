//! Data that only jobs of the Open Job Spec have.

use agenix_protocol::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Job, JobState, report::cut};
use crate::{
    budget::JobBudget,
    retry::{self, Retry},
};

/// Mean of the random draw, for which a delay equals that of the policy.
const MEAN_JITTER: f64 = 0.5;

/// Maximum number of stored failures of a job. Beyond the maximum, the oldest failure is dropped.
pub const MAX_FAILURES_KEPT: usize = 25;
/// Maximum number of bytes of the details of a failure, and of the data of a progress report.
const MAX_DETAIL_BYTES: usize = 16 * 1024;

/// Failure as a worker reports it, or as agq detects it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ReportedFailure {
    /// Code of the protocol: `handler_error`, `timeout`.
    pub code: String,
    /// Kind of the error, chosen by the worker.
    pub kind: String,
    /// Text for people.
    pub message: String,
    /// False if the worker reports that a retry would not succeed.
    pub retryable: Option<bool>,
    /// Further details, as JSON.
    pub details: Option<String>,
}

impl ReportedFailure {
    /// Returns true if `retry` allows no further attempt after this failure.
    pub fn is_final(&self, retry: &Retry) -> bool {
        self.retryable == Some(false) || retry.is_final([&self.code, &self.kind])
    }

    /// Returns a failure that agq detected.
    pub fn noticed(code: &str, message: impl Into<String>) -> Self {
        Self { code: code.into(), kind: code.into(), message: message.into(), ..Self::default() }
    }
}

/// Stored failure of a job. Durable and positional: append, never reorder.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobFailure {
    /// See [`ReportedFailure`].
    pub code: String,
    /// See [`ReportedFailure`].
    pub kind: String,
    /// See [`ReportedFailure`].
    pub message: String,
    /// True if a further attempt could succeed.
    pub retryable: bool,
    /// See [`ReportedFailure`].
    pub details: Option<String>,
    /// Attempt that failed.
    pub attempt: u32,
    /// Time of the failure.
    pub at: Timestamp,
}

/// Stored progress report. Durable and positional.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Text for people.
    pub message: Option<String>,
    /// Further data, as JSON.
    pub data: Option<String>,
    /// Time of the report.
    pub at: Timestamp,
}

impl Progress {
    /// Returns a report with `message` cut to its maximum, and without `data` that is too large.
    pub fn new(message: Option<&str>, data: Option<String>, at: Timestamp) -> Self {
        let message = message.map(|message| cut(message).to_owned());
        Self { message, data: data.filter(|data| data.len() <= MAX_DETAIL_BYTES), at }
    }
}

/// Stored data of a job of the Open Job Spec. Durable and positional: append, never reorder.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Ojs {
    /// Job type.
    pub job_type: String,
    /// Queue in which the job waits.
    pub queue: String,
    /// Retry policy. `None` means the policy of the plan.
    pub retry: Option<Retry>,
    /// Default visibility timeout, in milliseconds; 0 for a job of an agw, without a lease.
    pub visibility_ms: u64,
    /// Duration of the current lease after each extension, in milliseconds.
    pub lease_ms: u64,
    /// End of the current lease.
    pub leased_until: Option<Timestamp>,
    /// Number of attempts before the last retry by a user.
    pub attempts_before: u32,
    /// Time from which the job must not start any more.
    pub expires_at: Option<Timestamp>,
    /// True if the job was discarded because it expired.
    pub is_expired: bool,
    /// Earliest time of a run, as submitted.
    pub scheduled_at: Option<Timestamp>,
    /// Failures, the oldest first.
    pub failures: Vec<JobFailure>,
    /// Last progress report.
    pub progress: Option<Progress>,
    /// Key of the limit that applies to the job.
    pub limit: Option<String>,
    /// Hash of the uniqueness constraint.
    pub unique: Option<String>,
    /// Workflow of the job.
    pub workflow: Option<String>,
    /// Directive for the worker that runs the job. The submitter sends the directive with the job,
    /// to test workers.
    pub directive: Option<String>,
    /// Submitted fields of a job that runs a plan, as JSON: its input is that of its plan.
    pub document: Option<String>,
    /// Budget that the job is charged to.
    #[serde(default)]
    pub budget: Option<Box<JobBudget>>,
    /// True if the job was submitted as `pending`: it waits until its submitter activates it.
    #[serde(default)]
    pub is_pending: bool,
}

impl Ojs {
    /// Returns the data of a job of this type, without options.
    pub fn of(job_type: impl Into<String>) -> Self {
        Self { job_type: job_type.into(), ..Self::default() }
    }

    /// Returns true if an OJS worker runs the job, instead of an agw.
    pub fn is_reserved(&self) -> bool {
        self.visibility_ms > 0
    }

    /// Returns true if the job was submitted as a job of the Open Job Spec. The job of an action
    /// with bounds has a few of the attributes, too.
    pub fn is_submitted_job(&self) -> bool {
        self.is_reserved() || self.document.is_some()
    }

    /// Returns the well-formed `traceparent` (W3C Trace Context) of a job of a plan.
    pub fn traceparent(&self) -> Option<String> {
        let document: Value = serde_json::from_str(self.document.as_deref()?).ok()?;
        let trace = document.get("meta")?.get("traceparent")?.as_str()?;
        let is_hex = |part: &str, length: usize| {
            part.len() == length && part.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
        };
        let parts: Vec<&str> = trace.split('-').collect();
        let is_trace =
            parts.len() == 4 && parts.iter().zip([2, 32, 16, 2]).all(|(part, length)| is_hex(part, length));
        is_trace.then(|| trace.to_owned())
    }

    /// Stores a failure.
    pub fn remember(&mut self, failure: ReportedFailure, retryable: bool, attempt: u32, at: Timestamp) {
        if self.failures.len() >= MAX_FAILURES_KEPT {
            self.failures.remove(0);
        }
        self.failures.push(JobFailure {
            code: cut(&failure.code).to_owned(),
            kind: cut(&failure.kind).to_owned(),
            message: cut(&failure.message).to_owned(),
            retryable,
            details: failure.details.filter(|details| details.len() <= MAX_DETAIL_BYTES),
            attempt: attempt.saturating_sub(self.attempts_before),
            at,
        });
    }
}

impl Job {
    /// Returns the retry policy of the job, if it is not that of the plan.
    pub(super) fn retry(&self) -> Option<&Retry> {
        self.ojs.as_ref()?.retry.as_ref()
    }

    /// Returns the delay in milliseconds after the last failure; `jitter` is random in 0..1.
    pub(super) fn delay_ms(&self, jitter: f64) -> u64 {
        let own = self.retry().map(|retry| retry.delay_ms(self.failures, jitter));
        own.unwrap_or_else(|| retry::delay_ms(self.failures, jitter))
    }

    /// Returns the progress as a fraction of 1, rounded to six decimals, because the stored
    /// percentage has seven digits.
    pub fn progress(&self) -> Option<f64> {
        self.progress_percent.map(|percent| (f64::from(percent) * 10_000.0).round() / 1_000_000.0)
    }

    /// Returns true if the worker of a running job has reported progress since `before`.
    pub fn has_progressed_since(&self, before: &Self) -> bool {
        let report = |job: &Self| job.ojs.as_ref().and_then(|ojs| ojs.progress.clone());
        self.state == JobState::Active
            && before.state == JobState::Active
            && (self.progress_percent != before.progress_percent || report(self) != report(before))
    }

    /// Returns the delay before the next attempt after a failure, in milliseconds. For a running
    /// attempt, returns the delay of the policy before that attempt, without randomness. Returns
    /// `None` for an attempt without a delay.
    pub fn retry_delay_ms(&self) -> Option<u64> {
        let ojs = self.ojs.as_deref()?;
        let last = ojs.failures.last()?;
        match self.state {
            JobState::Retryable => Some(self.due_at?.ms_since(last.at)),
            JobState::Active if last.attempt + 1 == self.shown_attempt() && !is_loss(&last.code) => {
                Some(self.delay_ms(MEAN_JITTER))
            }
            _ => None,
        }
    }
}

/// Returns true if agq detected the failure; the next attempt may start at once.
fn is_loss(code: &str) -> bool {
    matches!(code, "visibility_timeout" | "worker_death")
}

#[cfg(test)]
mod tests {
    use super::Ojs;

    #[test]
    fn traceparent_is_returned_only_if_well_formed() {
        let traceparent_of = |meta: &str| {
            Ojs { document: Some(format!(r#"{{"meta":{meta}}}"#)), ..Ojs::of("plan.p") }.traceparent()
        };
        let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        assert_eq!(traceparent_of(&format!(r#"{{"traceparent":"{trace}"}}"#)).as_deref(), Some(trace));
        let (upper, longer, broken) =
            (trace.to_uppercase(), format!("{trace}-0"), trace.replace("01", "0\\n"));
        for wrong in ["", "00", &trace[1..], &upper, &longer, &broken] {
            assert_eq!(traceparent_of(&format!(r#"{{"traceparent":"{wrong}"}}"#)), None, "{wrong}");
        }
        assert_eq!(
            (traceparent_of("{}"), traceparent_of(r#"{"traceparent":7}"#), traceparent_of("null")),
            (None, None, None)
        );
        assert_eq!(Ojs::of("plan.p").traceparent(), None);
    }
}
