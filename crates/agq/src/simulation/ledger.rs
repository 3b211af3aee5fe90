//! Ledger: records all acknowledged replies and all events of jobs, and checks the state of agq
//! against them.

use std::collections::{BTreeMap, BTreeSet};

use agenix_protocol::{blob::BlobHash, documents::Status, ids::ActionId};
use agenix_rules::job::{Job, JobState, MAX_LOSSES};
use serde::Deserialize;

use super::actors::CommittedBlob;

/// Result of a check. The error names the defect.
pub(super) type CheckResult = Result<(), String>;

/// Job as its last event has shown it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct ObservedJob {
    pub(super) job_id: String,
    action_id: String,
    pub(super) state: String,
    pub(super) attempt: u32,
    #[serde(rename = "worker_id")]
    pub(super) holder: Option<String>,
}

impl ObservedJob {
    fn of(job: &Job) -> Self {
        Self {
            job_id: job.job_id.as_str().to_owned(),
            action_id: job.action_id.as_str().to_owned(),
            state: job.state.as_str().to_owned(),
            attempt: job.attempt,
            holder: job.holder.clone(),
        }
    }

    /// Checks that the lifecycle of jobs permits the step from this state to `to`.
    fn check_step(&self, to: &Self, is_retried: bool) -> CheckResult {
        let (same, same_holder) = (to.attempt == self.attempt, to.holder == self.holder);
        let fine = match (self.state.as_str(), to.state.as_str()) {
            ("scheduled" | "retryable", "available" | "cancelled") => same,
            // The clock was set back, and the time of the job was recomputed.
            ("scheduled", "scheduled") | ("retryable", "retryable") => same,
            ("available", "active") => to.attempt == self.attempt + 1 && to.holder.is_some(),
            ("available", "cancelled" | "discarded") => same,
            ("active", "active" | "completed" | "discarded" | "retryable" | "scheduled" | "cancelled") => {
                same && same_holder
            }
            ("active", "available") => same,
            ("discarded" | "cancelled", "available") => same && is_retried,
            _ => false,
        };
        if fine { Ok(()) } else { Err(format!("no job goes from {self:?} to {to:?}")) }
    }
}

#[derive(Debug, Clone, Default)]
pub(super) struct ExpectedAction {
    pub(super) plan_id: String,
    /// Document of the submission.
    pub(super) json: String,
    /// All inputs that were sent for the action, in order.
    pub(super) inputs: Vec<String>,
    /// Number of acknowledged inputs.
    pub(super) acknowledged: usize,
    /// Set if the action is acknowledged.
    pub(super) is_there: bool,
}

#[derive(Debug, Clone)]
struct AcknowledgedEnd {
    status: Status,
    holder: Option<String>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Ledger {
    /// Documents of all plans that were sent.
    pub(super) plan_documents: BTreeMap<String, String>,
    /// Acknowledged plans, and plans whose deletion was requested.
    pub(super) plans: BTreeSet<String>,
    pub(super) unwanted_plans: BTreeSet<String>,
    /// Plans whose deletion is acknowledged, and actions whose closing is acknowledged.
    pub(super) deleted: BTreeSet<String>,
    pub(super) closed: BTreeSet<String>,
    pub(super) actions: BTreeMap<String, ExpectedAction>,
    pub(super) jobs: BTreeMap<String, ObservedJob>,
    ends: BTreeMap<String, AcknowledgedEnd>,
    /// Jobs and actions whose retry was requested.
    retried: BTreeSet<String>,
    /// Acknowledged states of queues. `None` if a reply is outstanding.
    pub(super) paused: BTreeMap<String, Option<bool>>,
    /// Set if agq may prune ended jobs.
    pub(super) forgets: bool,
    /// Set if plans need a sandbox profile, which one worker offers.
    pub(super) has_sandboxes: bool,
    /// Set if plans and actions have limits.
    pub(super) has_limits: bool,
    /// Jobs whose removal is acknowledged.
    pub(super) forgotten: BTreeSet<String>,
    /// Acknowledged uploads that no report has named, by job and attempt. `None` if reports may
    /// name a blob that another worker has uploaded, because they then count its upload as named.
    pub(super) uploads: Option<BTreeMap<(String, u32), BlobHash>>,
}

impl Ledger {
    pub(super) fn new(forgets: bool, has_sandboxes: bool, has_limits: bool) -> Self {
        Self { forgets, has_sandboxes, has_limits, ..Self::default() }
    }

    pub(super) fn record_event(&mut self, event: ObservedJob) -> CheckResult {
        match self.jobs.get(&event.job_id) {
            None if event.attempt == 0 && matches!(event.state.as_str(), "available" | "scheduled") => {}
            None => return Err(format!("a job begins as {event:?}")),
            Some(known) => known.check_step(&event, self.is_retried(&event))?,
        }
        self.jobs.insert(event.job_id.clone(), event);
        Ok(())
    }

    /// Records an acknowledged upload, whose blob must exist until a report names it.
    pub(super) fn uploaded(&mut self, blob: &CommittedBlob, hash: BlobHash) {
        if let Some(uploads) = &mut self.uploads {
            uploads.insert((blob.job_id.clone(), blob.attempt), hash);
        }
    }

    /// Records that a report names the upload of `blob`.
    pub(super) fn named(&mut self, blob: &CommittedBlob) {
        if let Some(uploads) = &mut self.uploads {
            uploads.remove(&(blob.job_id.clone(), blob.attempt));
        }
    }

    fn is_retried(&self, job: &ObservedJob) -> bool {
        self.retried.contains(&job.job_id) || self.retried.contains(&job.action_id)
    }

    /// Records the request to retry a job or an action, after which an acknowledged end may change.
    pub(super) fn retry(&mut self, id: &str) {
        self.retried.insert(id.to_owned());
    }

    pub(super) fn ended(&mut self, job_id: &str, status: Status, holder: Option<&str>) {
        self.ends.insert(job_id.to_owned(), AcknowledgedEnd { status, holder: holder.map(str::to_owned) });
    }

    /// Checks an acknowledged completion: `holder` must have held the job, in `attempt` if given.
    pub(super) fn check_completed(&self, job_id: &str, holder: &str, attempt: Option<u32>) -> CheckResult {
        let Some(seen) = self.jobs.get(job_id).filter(|seen| !self.is_retried(seen)) else { return Ok(()) };
        let is_its = seen.state == "completed"
            && seen.holder.as_deref() == Some(holder)
            && attempt.is_none_or(|attempt| attempt == seen.attempt);
        if is_its {
            Ok(())
        } else {
            Err(format!("{holder} was told that it completed attempt {attempt:?} of {seen:?}"))
        }
    }

    /// Checks the jobs after a restart of agq. Acknowledged changes must exist; changes that were
    /// only visible may be lost.
    pub(super) fn check_restart(&mut self, jobs: &[Job]) -> CheckResult {
        self.jobs = jobs.iter().map(|job| (job.job_id.as_str().to_owned(), ObservedJob::of(job))).collect();
        if let Some(job_id) = self.forgotten.iter().find(|job_id| self.jobs.contains_key(*job_id)) {
            return Err(format!("job {job_id} was forgotten, and is there"));
        }
        for (job_id, end) in &self.ends {
            let Some(seen) = self.jobs.get(job_id) else {
                if self.forgets {
                    continue;
                }
                return Err(format!(
                    "job {job_id} is gone, and a client was told that it is {:?}",
                    end.status
                ));
            };
            if self.is_retried(seen) {
                continue;
            }
            let job = jobs.iter().find(|job| job.job_id.as_str() == job_id);
            let holds = job.is_some_and(|job| {
                job.status() == end.status && (end.holder.is_none() || job.holder == end.holder)
            });
            if !holds {
                return Err(format!("a client was told that job {job_id} is {end:?}, and it is {seen:?}"));
            }
        }
        Ok(())
    }

    pub(super) fn check_job(&self, job: &Job) -> CheckResult {
        let wrong = |problem: &str| Err(format!("{problem}: {job:?}"));
        if self.jobs.get(job.job_id.as_str()) != Some(&ObservedJob::of(job)) {
            return wrong("a job changed and nobody was told");
        }
        if job.failures > job.max_retries + 1 || job.losses > MAX_LOSSES {
            return wrong("a job was tried too often");
        }
        if job.state == JobState::Active && job.holder.is_none() {
            return wrong("an active job has no holder");
        }
        if job.is_ended() != job.ended_at.is_some() {
            return wrong("a job has an end or has ended, not both");
        }
        Ok(())
    }

    /// Checks that an action has all acknowledged inputs, and none that were not sent.
    pub(super) fn check_action(
        &self,
        action_id: &ActionId,
        inputs: &[Option<String>],
        total: usize,
    ) -> CheckResult {
        let Some(submitted) = self.actions.get(action_id.as_str()) else {
            return Err(format!("nobody submitted action {action_id}"));
        };
        if total < submitted.acknowledged || total > submitted.inputs.len() {
            let (told, sent) = (submitted.acknowledged, submitted.inputs.len());
            return Err(format!(
                "action {action_id} has {total} jobs; {told} are acknowledged and {sent} were sent"
            ));
        }
        for (at, (found, sent)) in inputs.iter().zip(&submitted.inputs).enumerate() {
            match found {
                Some(found) if found == sent => {}
                None if self.forgets => {}
                _ => {
                    return Err(format!(
                        "input {at} of action {action_id} is {found:?}, and was sent as {sent}"
                    ));
                }
            }
        }
        Ok(())
    }
}
