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
    workflow::{Nested, StepInputs, WorkflowKind, WorkflowStep},
};
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use super::blobs;
use crate::{app::AppState, error::Result};

/// Maximum number of bytes of a large output that the next step gets.
const MAX_HANDED_ON_BYTES: usize = 1024 * 1024;

pub(super) async fn jobs_of(app: &AppState, step: &WorkflowStep) -> Result<Vec<JobId>> {
    if step.is_action() {
        let Ok(action_id) = ActionId::new(step.id.as_str()) else { return Ok(Vec::new()) };
        return Ok(app.store.jobs_of(&action_id, Vec::new(), Slice::ALL).await?);
    }
    Ok(JobId::new(step.id.as_str()).into_iter().collect())
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
    pub(super) async fn read(app: &AppState, before: StepInputs<'_>) -> Result<Self> {
        let (mut all, mut bytes) = (HashMap::new(), 0);
        let max = app.settings.limits.max_message_bytes;
        for producer in producers(before) {
            let mut results = Vec::new();
            for job_id in jobs_of(app, producer).await? {
                let job = app.store.job(&job_id).await?;
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

    /// Returns the results of the jobs of a step, or, of a group or before a callback, of each
    /// step.
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

/// Returns the bytes of a stream that the next step gets, as text with byte escapes (ADR 22).
async fn first_bytes<'c>(app: &AppState, captured: &'c CapturedOutput) -> Result<Cow<'c, str>> {
    let Some(hash) = captured.blob else { return Ok(byte_escape::encode(&captured.bytes)) };
    let bytes = blobs::read(app, hash, (0, MAX_HANDED_ON_BYTES)).await?;
    Ok(Cow::Owned(byte_escape::encode(&bytes).into_owned()))
}

/// Returns the job's id, output and own input.
pub(super) async fn output_of(app: &AppState, job_id: &JobId) -> Result<Option<Box<RawValue>>> {
    let Some(job) = app.store.job(job_id).await? else { return Ok(None) };
    let results = job.results.as_deref().unwrap_or("null");
    let tasks: Vec<TaskResult> = serde_json::from_str(results).unwrap_or_default();
    let raw = |json| serde_json::from_str::<&RawValue>(json).unwrap_or(RawValue::NULL);
    let output = match tasks.last() {
        Some(last) => JobOutputValue::Text(first_bytes(app, &last.stdout).await?),
        None => JobOutputValue::Returned(raw(results)),
    };
    let input = to_raw_value(&StepOutput { input: raw(&job.input), job_id, output });
    Ok(Some(input.map_err(|error| Rejection::InvalidAction(error.to_string()))?))
}
