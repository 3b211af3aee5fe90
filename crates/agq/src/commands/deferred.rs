//! What is submitted later, for whoever asked for it before: by a schedule, or as a step of a workflow. It is a job of the Open Job
//! Spec, or an action of a plan.

use agenix_protocol::{
    documents::{ActionSubmission, OjsDocument, Status, TaskResult, parse_object},
    ids::{ActionId, JobId},
    request::Slice,
};
use agenix_rules::{
    action,
    cron::is_action,
    job::State,
    ojs::{self, Submitted},
    rejection::Rejection,
    workflow::{Seen, Stage},
};
use serde_json::{Value, json, value::RawValue};

use super::{action::submit_action, ojs::submit_named, plan::find};
use crate::{error::CommandError, house::House};

/// Where a submission belongs, and what comes before it.
#[derive(Debug, Default)]
pub(super) struct Context<'c> {
    /// The workflow that it is a step of.
    pub(super) workflow: Option<&'c str>,
    /// The step before it: its results go along.
    pub(super) before: Option<&'c agenix_rules::workflow::Step>,
}

/// Whether a document could be submitted now.
pub(super) async fn check(
    house: &House,
    document: &RawValue,
    takes_inputs: bool,
) -> Result<(), CommandError> {
    if !is_action(document) {
        return read_job(house, document).map(drop);
    }
    let mut submission = read_action(document)?;
    let plan = find(house, &submission.plan_id).await?;
    if takes_inputs && submission.inputs.is_empty() {
        // They are the outputs of the step before, which nobody knows yet.
        submission.open = true;
        action::check_takes_outputs(&plan)?;
    }
    Ok(action::check(&submission, &plan, &house.settings.limits)?)
}

fn read_job(house: &House, document: &RawValue) -> Result<Submitted, CommandError> {
    let fields: OjsDocument =
        parse_object(document.get().as_bytes()).map_err(|error| Rejection::InvalidJob(error.to_string()))?;
    Ok(ojs::read(fields, house.clock.now())?)
}

fn read_action(document: &RawValue) -> Result<ActionSubmission, Rejection> {
    parse_object(document.get().as_bytes()).map_err(|error| Rejection::InvalidAction(error.to_string()))
}

/// An id for what is submitted later.
pub(super) fn new_id(house: &House) -> String {
    house.clock.uuid()
}

/// Submits a document under an id: what was submitted before under it stays as it is. The id of the job that stands for it, where
/// another one does.
pub(super) async fn submit(
    house: &House,
    document: &RawValue,
    id: &str,
    context: Context<'_>,
) -> Result<Option<String>, CommandError> {
    if is_action(document) {
        return submit_later_action(house, document, id, context).await.map(|()| None);
    }
    let mut submitted = read_job(house, document)?;
    submitted.job_id = Some(JobId::new(id).map_err(|error| Rejection::InvalidJob(error.to_string()))?);
    submitted.ojs.workflow = context.workflow.map(str::to_owned);
    if let Some(before) = context.before {
        submitted = submitted.with_parents(&results_of(house, before).await?);
    }
    match submit_named(house, submitted).await {
        Err(CommandError::Rejected(Rejection::JobExists(_))) => Ok(None),
        other => other.map(|by| by.map(String::from)),
    }
}

async fn submit_later_action(
    house: &House,
    document: &RawValue,
    id: &str,
    context: Context<'_>,
) -> Result<(), CommandError> {
    let action_id = ActionId::new(id).map_err(|error| Rejection::InvalidAction(error.to_string()))?;
    let mut submission = read_action(document)?;
    if house.store.action(&action_id).await?.is_some() {
        return Ok(());
    }
    if let Some(before) = context.before.filter(|_| submission.inputs.is_empty()) {
        submission.inputs = outputs_of(house, before).await?;
    }
    submission.action_id = Some(action_id);
    submit_action(house, submission).await.map(drop)
}

/// How what was submitted under an id stands.
pub(super) async fn look(house: &House, is_action: bool, id: &str) -> Result<Seen, CommandError> {
    if is_action {
        let Ok(action_id) = ActionId::new(id) else { return Ok(Seen::Nothing) };
        let Some((action, tally)) = house.store.action(&action_id).await? else { return Ok(Seen::Nothing) };
        let count = |status: Status| tally.jobs[status as usize];
        if action.is_open || count(Status::Pending) + count(Status::Running) > 0 {
            return Ok(Seen::Underway);
        }
        let is_well = count(Status::Completed) == action.total_jobs;
        return Ok(Seen::Ended(if is_well { Stage::Completed } else { Stage::Failed }));
    }
    let Ok(job_id) = JobId::new(id) else { return Ok(Seen::Nothing) };
    Ok(match house.store.job_record(&job_id).await?.map(|job| job.state) {
        None => Seen::Nothing,
        Some(State::Completed) => Seen::Ended(Stage::Completed),
        Some(State::Cancelled) => Seen::Ended(Stage::Cancelled),
        Some(State::Discarded) => Seen::Ended(Stage::Failed),
        Some(_) => Seen::Underway,
    })
}

/// The jobs of a step, in the order of its inputs.
async fn jobs_of(house: &House, step: &agenix_rules::workflow::Step) -> Result<Vec<JobId>, CommandError> {
    if step.is_action() {
        let Ok(action_id) = ActionId::new(step.id.as_str()) else { return Ok(Vec::new()) };
        return Ok(house.store.jobs_of(&action_id, Vec::new(), Slice::ALL).await?);
    }
    Ok(JobId::new(step.id.as_str()).into_iter().collect())
}

/// What came of the jobs of a step, JSON each.
async fn results_of(house: &House, step: &agenix_rules::workflow::Step) -> Result<Vec<String>, CommandError> {
    let mut results = Vec::new();
    for job_id in jobs_of(house, step).await? {
        let job = house.store.job(&job_id).await?;
        results.push(job.and_then(|job| job.results).unwrap_or_else(|| "null".into()));
    }
    Ok(results)
}

/// The inputs that the jobs of a step make for the next: what the last task of each wrote, and what it was given.
async fn outputs_of(
    house: &House,
    step: &agenix_rules::workflow::Step,
) -> Result<Vec<Box<RawValue>>, CommandError> {
    let mut inputs = Vec::new();
    for job_id in jobs_of(house, step).await? {
        let Some(job) = house.store.job(&job_id).await? else { continue };
        let results = job.results.as_deref().unwrap_or("null");
        let tasks: Vec<TaskResult> = serde_json::from_str(results).unwrap_or_default();
        let given: Value = serde_json::from_str(&job.input).unwrap_or_default();
        let input = match tasks.last() {
            Some(last) => {
                let output = String::from_utf8_lossy(&last.stdout.bytes).into_owned();
                json!({"output": output, "input": given, "job_id": job_id})
            }
            None => {
                let result: Value = serde_json::from_str(results).unwrap_or_default();
                json!({"output": result, "input": given, "job_id": job_id})
            }
        };
        let input = serde_json::value::to_raw_value(&input);
        inputs.push(input.map_err(|error| Rejection::InvalidAction(error.to_string()))?);
    }
    Ok(inputs)
}
