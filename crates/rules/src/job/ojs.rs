//! What a job that came by the Open Job Spec has beside what every job has.

use agenix_protocol::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Job, JobState, report::cut};
use crate::retry::{self, Retry};

/// Mean of the random draw, for which a delay equals that of the policy.
const MEAN: f64 = 0.5;

/// Most failures that a job remembers; the oldest are forgotten first.
pub const MAX_FAILURES_KEPT: usize = 25;
/// Most bytes of a failure's details, of a progress report's data.
const MAX_DETAIL_BYTES: usize = 16 * 1024;

/// A failure as it is reported.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ReportedFailure {
    /// The word of the protocol: `handler_error`, `timeout`.
    pub code: String,
    /// What kind of error it was, in the words of whoever had it.
    pub kind: String,
    /// For people.
    pub message: String,
    /// Whether it is worth another attempt, where that was said.
    pub retryable: Option<bool>,
    /// Anything else about it, JSON.
    pub details: Option<String>,
}

impl ReportedFailure {
    /// Whether no other attempt is worth it.
    pub fn is_final(&self, retry: &Retry) -> bool {
        self.retryable == Some(false) || retry.is_final([&self.code, &self.kind])
    }

    /// A failure that agq itself has noticed.
    pub fn noticed(code: &str, message: impl Into<String>) -> Self {
        Self { code: code.into(), kind: code.into(), message: message.into(), ..Self::default() }
    }
}

/// A failure as a job remembers it. Durable and positional: append, never reorder.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobFailure {
    /// See [`ReportedFailure`].
    pub code: String,
    /// See [`ReportedFailure`].
    pub kind: String,
    /// See [`ReportedFailure`].
    pub message: String,
    /// Whether it was worth another attempt.
    pub retryable: bool,
    /// See [`ReportedFailure`].
    pub details: Option<String>,
    /// The attempt that failed.
    pub attempt: u32,
    /// When.
    pub at: Timestamp,
}

/// What a worker said of its progress, beside the number. Durable and positional.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// For people.
    pub message: Option<String>,
    /// Anything, JSON.
    pub data: Option<String>,
    /// When.
    pub at: Timestamp,
}

impl Progress {
    /// A report; what is too long is cut or left out.
    pub fn new(message: Option<&str>, data: Option<String>, at: Timestamp) -> Self {
        let message = message.map(|message| cut(message).to_owned());
        Self { message, data: data.filter(|data| data.len() <= MAX_DETAIL_BYTES), at }
    }
}

/// What a job that came by the Open Job Spec has beside what every job has. Durable and positional: append, never reorder.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ojs {
    /// Its type.
    pub job_type: String,
    /// The queue it waits in.
    pub queue: String,
    /// How it is tried again; `None` as its plan says.
    pub retry: Option<Retry>,
    /// How long a claim of it holds where its worker does not say, in milliseconds; 0 where an agw runs it, whose claims hold
    /// otherwise.
    pub visibility_ms: u64,
    /// For how long the claim of the moment is renewed each time, in milliseconds.
    pub lease_ms: u64,
    /// Until when the claim of the moment holds.
    pub leased_until: Option<Timestamp>,
    /// The attempts before somebody asked for it to be tried again from the beginning.
    pub attempts_before: u32,
    /// When it is too late to begin with it.
    pub expires_at: Option<Timestamp>,
    /// Whether it was too late.
    pub is_expired: bool,
    /// When it was to run at the earliest, as it was submitted.
    pub scheduled_at: Option<Timestamp>,
    /// How it failed, the oldest first.
    pub failures: Vec<JobFailure>,
    /// What its worker last said of its progress.
    pub progress: Option<Progress>,
    /// The key of the limit that it stands under.
    pub limit: Option<String>,
    /// The hash of the kind of which it is to be the only one.
    pub unique: Option<String>,
    /// The workflow that it is a part of.
    pub workflow: Option<String>,
    /// What its worker is told while it runs it: a directive that was submitted with it, for tests of workers.
    pub directive: Option<String>,
    /// Of a job that runs a plan, what else was submitted, JSON: its input is the plan's.
    pub document: Option<String>,
}

impl Ojs {
    /// A job of this type that says nothing else.
    pub fn of(job_type: impl Into<String>) -> Self {
        Self {
            job_type: job_type.into(),
            queue: String::new(),
            retry: None,
            visibility_ms: 0,
            lease_ms: 0,
            leased_until: None,
            attempts_before: 0,
            expires_at: None,
            is_expired: false,
            scheduled_at: None,
            failures: Vec::new(),
            progress: None,
            limit: None,
            unique: None,
            workflow: None,
            directive: None,
            document: None,
        }
    }

    /// Whether a worker of the Open Job Spec runs it, rather than an agw.
    pub fn is_reserved(&self) -> bool {
        self.visibility_ms > 0
    }

    /// The trace that it was submitted with, where it runs a plan: whatever else stood there is not passed on (W3C Trace Context,
    /// `traceparent`).
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

    /// Remembers a failure.
    pub fn remember(&mut self, fault: ReportedFailure, retryable: bool, attempt: u32, at: Timestamp) {
        if self.failures.len() >= MAX_FAILURES_KEPT {
            self.failures.remove(0);
        }
        self.failures.push(JobFailure {
            code: cut(&fault.code).to_owned(),
            kind: cut(&fault.kind).to_owned(),
            message: cut(&fault.message).to_owned(),
            retryable,
            details: fault.details.filter(|details| details.len() <= MAX_DETAIL_BYTES),
            attempt: attempt.saturating_sub(self.attempts_before),
            at,
        });
    }
}

impl Job {
    /// Tells whether the worker of a running job has reported progress since `before`.
    pub fn has_progressed_since(&self, before: &Self) -> bool {
        let report = |job: &Self| job.ojs.as_ref().and_then(|ojs| ojs.progress.clone());
        self.state == JobState::Active
            && before.state == JobState::Active
            && (self.progress_percent != before.progress_percent || report(self) != report(before))
    }

    /// Returns the delay of the next attempt after a failure. For a running attempt, returns the
    /// delay of the policy before that attempt, without randomness. Returns `None` for an attempt
    /// without a delay.
    pub fn retry_delay_ms(&self) -> Option<u64> {
        let ojs = self.ojs.as_deref()?;
        let last = ojs.failures.last()?;
        match self.state {
            JobState::Retryable => Some(self.due_at?.ms_since(last.at)),
            JobState::Active if last.attempt + 1 == self.shown_attempt() && !is_loss(&last.code) => {
                let own = ojs.retry.as_ref().map(|retry| retry.delay_ms(self.failures, MEAN));
                Some(own.unwrap_or_else(|| retry::delay_ms(self.failures, MEAN)))
            }
            _ => None,
        }
    }
}

/// Tells whether agq detected the failure itself. After such a failure the next attempt may start
/// at once.
fn is_loss(code: &str) -> bool {
    matches!(code, "visibility_timeout" | "worker_death")
}

#[cfg(test)]
mod tests {
    use super::Ojs;

    #[test]
    fn only_a_trace_is_a_trace() {
        let told = |meta: &str| {
            Ojs { document: Some(format!(r#"{{"meta":{meta}}}"#)), ..Ojs::of("plan.p") }.traceparent()
        };
        let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        assert_eq!(told(&format!(r#"{{"traceparent":"{trace}"}}"#)).as_deref(), Some(trace));
        for wrong in [
            "",
            "00",
            &trace[1..],
            &trace.to_uppercase(),
            &format!("{trace}-0"),
            &trace.replace("01", "0\\n"),
        ] {
            assert_eq!(told(&format!(r#"{{"traceparent":"{wrong}"}}"#)), None, "{wrong}");
        }
        assert_eq!((told("{}"), told(r#"{"traceparent":7}"#), told("null")), (None, None, None));
        assert_eq!(Ojs::of("plan.p").traceparent(), None);
    }
}
