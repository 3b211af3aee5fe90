//! Results of the steps of a workflow, as inputs of the next step.

use std::{borrow::Cow, collections::HashMap};

use agenix_protocol::{
    byte_escape,
    documents::{CapturedOutput, TaskResult},
    ids::{ActionId, JobId},
    limits::exceeds,
    request::Slice,
};
use agenix_rules::{
    rejection::Rejection,
    workflow::{Nested, StepInputs, StepState, WorkflowKind, WorkflowStep},
};
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use super::blobs;
use crate::{
    app::AppState,
    blobs::BlobError,
    error::{CommandError, Result},
};

/// Maximum number of bytes of a large output that the next step can get, because the output becomes
/// a part of an input.
pub(super) const MAX_HANDED_ON_BYTES: usize = 1024 * 1024;

/// Returns the jobs of a step. The error is [`Rejection::NotKept`] if the step is an action that
/// completed, and some of its jobs are removed.
pub(super) async fn jobs_of(app: &AppState, step: &WorkflowStep) -> Result<Vec<JobId>> {
    if !step.is_action() {
        return Ok(JobId::new(step.id.as_str()).into_iter().collect());
    }
    let Ok(action_id) = ActionId::new(step.id.as_str()) else { return Ok(Vec::new()) };
    let jobs = app.store.jobs_of(&action_id, Vec::new(), Slice::ALL).await?;
    if step.stage != StepState::Completed {
        return Ok(jobs);
    }
    let (kept, action) = (jobs.len() as u64, app.store.action(&action_id).await?);
    let gone = match action.map(|(action, _)| action.total_jobs) {
        Some(total) if total <= kept => return Ok(jobs),
        Some(total) => format!("{} of {total} outputs of action {action_id} are", total - kept),
        None => format!("the outputs of action {action_id} are"),
    };
    Err(Rejection::NotKept(gone).into())
}

fn output_not_kept(job_id: &JobId) -> Rejection {
    Rejection::NotKept(format!("the output of job {job_id} is"))
}

/// Returns the jobs and the actions among the steps before, in order.
pub(super) fn producers(before: StepInputs<'_>) -> Vec<&WorkflowStep> {
    match before {
        StepInputs::Step(step) => step.producers(),
        StepInputs::Steps(steps) => steps.iter().flat_map(WorkflowStep::producers).collect(),
    }
}

/// Results of jobs and actions, each as JSON, by the ids of the steps.
pub(super) struct StepResults(HashMap<String, Vec<String>>);

impl StepResults {
    /// Refuses results that exceed `max_message_bytes` together, because they go into one document.
    /// The error is [`Rejection::NotKept`] if a result of a step that completed is removed.
    pub(super) async fn read(app: &AppState, before: StepInputs<'_>) -> Result<Self> {
        let (mut all, mut bytes) = (HashMap::new(), 0);
        let max = app.settings.limits.max_message_bytes;
        for producer in producers(before) {
            let mut results = Vec::new();
            for job_id in jobs_of(app, producer).await? {
                let job = app.store.job(&job_id).await?;
                if job.is_none() && producer.stage == StepState::Completed {
                    return Err(output_not_kept(&job_id).into());
                }
                let result = job.and_then(|job| job.results).unwrap_or_else(|| "null".into());
                bytes += result.len();
                if exceeds(bytes, max) {
                    let text = format!(
                        "the results of the step before have more than {max} bytes together, the maximum of one job: let \
                         its jobs return the locations of their results, or make this step an action of a plan"
                    );
                    return Err(Rejection::InvalidJob(text).into());
                }
                results.push(result);
            }
            all.insert(producer.id.clone(), results);
        }
        Ok(Self(all))
    }

    /// Returns the results of the jobs of a step. For a group, and before a callback, returns a
    /// result for each step.
    pub(super) fn of(&self, before: StepInputs<'_>) -> Vec<String> {
        match before {
            StepInputs::Steps(steps) => steps.iter().map(|step| self.value(step)).collect(),
            StepInputs::Step(step) => match step.nested.as_deref() {
                None => self.0.get(&step.id).cloned().unwrap_or_default(),
                Some(Nested { kind: WorkflowKind::Chain, steps, .. }) => {
                    steps.last().map_or_else(Vec::new, |last| self.of(StepInputs::Step(last)))
                }
                Some(nested) => self.of(StepInputs::Steps(&nested.steps)),
            },
        }
    }

    /// Returns the result of a job, or of the last step of a chain; a list for all others.
    fn value(&self, step: &WorkflowStep) -> String {
        match step.nested.as_deref() {
            None if !step.is_action() => {
                let result = self.0.get(&step.id).and_then(|results| results.first());
                result.cloned().unwrap_or_else(|| "null".into())
            }
            Some(Nested { kind: WorkflowKind::Chain, steps, .. }) => {
                steps.last().map_or_else(|| "null".into(), |last| self.value(last))
            }
            _ => format!("[{}]", self.of(StepInputs::Step(step)).join(",")),
        }
    }
}

#[derive(Serialize)]
struct StepOutput<'o> {
    input: &'o RawValue,
    job_id: &'o JobId,
    output: JobOutputValue<'o>,
}

/// Stdout of the last task, or the value that a worker of the Open Job Spec returned.
#[derive(Serialize)]
#[serde(untagged)]
enum JobOutputValue<'o> {
    Text(Cow<'o, str>),
    Returned(&'o RawValue),
}

/// Checks that the next step can get the whole stdout of a job. A stream into a file of the user
/// has no bytes here. The error is [`Rejection::InvalidAction`].
fn check_is_whole(job_id: &JobId, stdout: &CapturedOutput) -> Result<(), Rejection> {
    let (kept, total) = (stdout.bytes.len(), stdout.total);
    if stdout.is_cut() && kept > 0 {
        return Err(Rejection::InvalidAction(format!(
            "only {kept} of the {total} bytes of the output of job {job_id} are stored: start agq with --blob-dir, or \
             let the job write its output to a file and print the name"
        )));
    }
    if stdout.blob.is_some() && total > MAX_HANDED_ON_BYTES as u64 {
        return Err(Rejection::InvalidAction(format!(
            "the output of job {job_id} has {total} bytes, and the next step gets at most {MAX_HANDED_ON_BYTES}: let \
             the job write its output to a file and print the name"
        )));
    }
    Ok(())
}

/// Returns the stdout of a job as text with byte escapes (ADR 22). The error is
/// [`Rejection::InvalidAction`] for an output that cannot be read later either.
async fn text_of<'c>(app: &AppState, job_id: &JobId, stdout: &'c CapturedOutput) -> Result<Cow<'c, str>> {
    let Some(hash) = stdout.blob else { return Ok(byte_escape::encode(&stdout.bytes)) };
    match blobs::read(app, hash, (0, MAX_HANDED_ON_BYTES)).await {
        Ok(bytes) => Ok(Cow::Owned(byte_escape::encode(&bytes).into_owned())),
        Err(CommandError::Blob(error @ (BlobError::Lost(_) | BlobError::Disabled))) => {
            let text = format!("the output of job {job_id} cannot be read: {error}");
            Err(Rejection::InvalidAction(text).into())
        }
        Err(error) => Err(error),
    }
}

/// Returns the job's id, output and own input. The error is [`Rejection::NotKept`] if the job is
/// removed.
pub(super) async fn output_of(app: &AppState, job_id: &JobId) -> Result<Box<RawValue>> {
    let job = app.store.job(job_id).await?.ok_or_else(|| output_not_kept(job_id))?;
    let results = job.results.as_deref().unwrap_or("null");
    let tasks: Vec<TaskResult> = serde_json::from_str(results).unwrap_or_default();
    let raw = |json| serde_json::from_str::<&RawValue>(json).unwrap_or(RawValue::NULL);
    let output = match tasks.last() {
        Some(last) => {
            check_is_whole(job_id, &last.stdout)?;
            JobOutputValue::Text(text_of(app, job_id, &last.stdout).await?)
        }
        None => JobOutputValue::Returned(raw(results)),
    };
    let input = to_raw_value(&StepOutput { input: raw(&job.input), job_id, output });
    Ok(input.map_err(|error| Rejection::InvalidAction(error.to_string()))?)
}

#[cfg(test)]
mod tests {
    use agenix_protocol::{blob::BlobHash, documents::CapturedOutput, ids::JobId};

    use super::{MAX_HANDED_ON_BYTES, check_is_whole};

    #[test]
    fn output_for_the_next_step_has_all_its_bytes_and_a_maximum() {
        let job_id = JobId::new("j").unwrap();
        let refusal = |bytes: &[u8], total: u64, blob: Option<BlobHash>| {
            let stdout = CapturedOutput { bytes: bytes.to_vec(), total, blob };
            check_is_whole(&job_id, &stdout).err().map(|rejection| rejection.to_string())
        };
        let (blob, max) = (Some(BlobHash([7; 32])), MAX_HANDED_ON_BYTES as u64);
        assert_eq!((refusal(b"abc", 3, None), refusal(b"abc", max, blob)), (None, None));
        assert_eq!(refusal(b"", 10, None), None, "a stream into a file");
        let large = refusal(b"abc", max + 1, blob).unwrap();
        assert!(
            large.contains("the output of job j has 1048577 bytes, and the next step gets at most"),
            "{large}"
        );
        let cut = refusal(b"abc", 4, None).unwrap();
        assert!(cut.contains("only 3 of the 4 bytes of the output of job j are stored"), "{cut}");
    }
}
