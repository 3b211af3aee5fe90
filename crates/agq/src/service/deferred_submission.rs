//! Deferred submission: a schedule or a workflow submits a document later. The document is a job of
//! the Open Job Spec, or an action.
//!
//! The id of the job or action is decided before the submission, so that a submission that is
//! repeated after a crash is idempotent.

use std::mem::take;

use agenix_protocol::{
    documents::{ActionSubmission, OjsDocument, Status, parse_object},
    ids::{ActionId, JobId},
};
use agenix_rules::{
    action, blob,
    cron::is_action,
    job::JobState,
    ojs::{self, JobSubmission},
    owner::Owner,
    rejection::Rejection,
    unique_jobs,
    workflow::{StepInputs, StepObservation, StepState, WorkflowStep},
};
use serde_json::value::RawValue;

use super::{
    action_changes,
    action_submission::{self, add_inputs},
    lookup,
    ojs_submission::submit_named,
    step_outputs::{StepResults, jobs_of, output_of, producers},
};
use crate::{
    app::{AppState, Submitter},
    error::{CommandError, Result},
};

/// Size at which `submit_outputs` submits a chunk. The last output may go beyond it.
const CHUNK_BYTES: usize = 1024 * 1024;
const CHUNK_INPUTS: usize = 1000;

#[derive(Debug, Default)]
pub(crate) struct SubmissionContext<'c> {
    pub(crate) workflow: Option<&'c str>,
    /// Owner of the schedule or the workflow.
    pub(crate) owner: Option<&'c Owner>,
    /// Earlier steps, whose results are inputs.
    pub(crate) before: Option<StepInputs<'c>>,
}

/// Checks a document of an owner. `takes_inputs` is true if an action without inputs gets the
/// outputs of the step before.
pub(crate) async fn check(
    app: &AppState,
    owner: Option<&Owner>,
    document: &RawValue,
    takes_inputs: bool,
) -> Result<()> {
    if !is_action(document) {
        return read_job(app, document).map(drop);
    }
    let mut submission = read_action(document)?;
    app.shares.terms().check_named(submission.share.as_ref(), owner)?;
    let plan = lookup::plan(app, &submission.plan_id).await?;
    if takes_inputs && submission.inputs.is_empty() {
        // The inputs are the outputs of the step before, which do not exist yet.
        submission.open = true;
        action::check_takes_outputs(&plan)?;
        action::check_key_takes_outputs(&submission)?;
    }
    blob::check_reads_none(&plan)?;
    unique_jobs::check(&submission, app.settings.inputs_at_once)?;
    Ok(action::check(&submission, &plan, &app.settings.limits)?)
}

/// Checks that a submission of the document stores it, because the next step waits for its end.
pub(crate) fn check_is_stored(document: &RawValue) -> Result<()> {
    if is_action(document) && action::may_leave_out(&read_action(document)?) {
        return Err(Rejection::InvalidAction(
            "unique.on_conflict is ignore, and the next steps would wait for an action that nobody stores: use reject or \
             replace"
                .into(),
        )
        .into());
    }
    Ok(())
}

/// Checks that an action of the document is closed. The action of a run of a schedule has an id
/// that nobody chose, so nobody would close it, and the run would never end.
pub(crate) fn check_is_closed(document: &RawValue) -> Result<()> {
    if is_action(document) && read_action(document)?.open {
        let text = "action.open is true, and nobody would close the action of a run: leave open out";
        return Err(Rejection::InvalidSchedule(text.into()).into());
    }
    Ok(())
}

fn read_job(app: &AppState, document: &RawValue) -> Result<JobSubmission> {
    let fields: OjsDocument =
        parse_object(document.get().as_bytes()).map_err(|error| Rejection::InvalidJob(error.to_string()))?;
    Ok(ojs::read(fields, app.clock.now())?)
}

fn read_action(document: &RawValue) -> Result<ActionSubmission, Rejection> {
    parse_object(document.get().as_bytes()).map_err(|error| Rejection::InvalidAction(error.to_string()))
}

pub(crate) fn new_id(app: &AppState) -> String {
    app.clock.uuid()
}

/// A job or action that already has the id is not changed. Returns the id of an equal job that
/// stands for a unique job.
pub(crate) async fn submit(
    app: &AppState,
    document: &RawValue,
    id: &str,
    context: SubmissionContext<'_>,
) -> Result<Option<String>> {
    if is_action(document) {
        return submit_later_action(app, document, id, context).await.map(|()| None);
    }
    let job_id = JobId::new(id).map_err(|error| Rejection::InvalidJob(error.to_string()))?;
    match submit_job(app, document, &job_id, context).await {
        // The job is stored already, whatever the reason for which it cannot be stored again.
        Err(CommandError::Rejected(_)) if app.store.job_record(&job_id).await?.is_some() => Ok(None),
        Err(CommandError::Rejected(Rejection::JobExists(_))) => Ok(None),
        other => other.map(|by| by.map(String::from)),
    }
}

/// Returns the id of an equal job that stands for a unique job.
async fn submit_job(
    app: &AppState,
    document: &RawValue,
    job_id: &JobId,
    context: SubmissionContext<'_>,
) -> Result<Option<JobId>> {
    let mut submitted = read_job(app, document)?;
    submitted.job_id = Some(job_id.clone());
    submitted.ojs.workflow = context.workflow.map(str::to_owned);
    if let Some(before) = context.before {
        submitted = submitted.with_parents(&StepResults::read(app, before).await?.of(before));
    }
    submit_named(app, context.owner, submitted).await
}

async fn submit_later_action(
    app: &AppState,
    document: &RawValue,
    id: &str,
    context: SubmissionContext<'_>,
) -> Result<()> {
    let action_id = ActionId::new(id).map_err(|error| Rejection::InvalidAction(error.to_string()))?;
    let by = Submitter { owner: context.owner, agent: None, identity: None };
    let mut submission = read_action(document)?;
    submission.action_id = Some(action_id.clone());
    if let Some(before) = context.before.filter(|_| submission.inputs.is_empty()) {
        return submit_outputs(app, by, submission, &action_id, before).await;
    }
    if app.store.action(&action_id).await?.is_some() {
        return Ok(());
    }
    match action_submission::submit(app, by, submission).await {
        // The inputs of the action are not stored whole, because a client has ended it meanwhile.
        Err(CommandError::Rejected(rejection @ Rejection::ActionNotOpen(_))) => Err(rejection.into()),
        // Another node has stored the action after the query.
        Err(CommandError::Rejected(_)) if app.store.action(&action_id).await?.is_some() => Ok(()),
        other => other.map(drop),
    }
}

/// Submits the outputs of the step before in chunks, because all of them may not fit into memory.
/// Continues an action that an earlier call has begun to submit.
async fn submit_outputs(
    app: &AppState,
    by: Submitter<'_>,
    submission: ActionSubmission,
    action_id: &ActionId,
    before: StepInputs<'_>,
) -> Result<()> {
    let is_begun = match app.store.action(action_id).await? {
        Some((action, _)) if !action.is_open => return Ok(()),
        known => known.is_some(),
    };
    match submit_all_outputs(app, by, &submission, action_id, (before, is_begun)).await {
        Err(CommandError::Rejected(rejection)) => cancel_rejected(app, action_id, rejection).await,
        other => other,
    }
}

/// Each chunk names its index, so that a repeated chunk is not added again.
async fn submit_all_outputs(
    app: &AppState,
    by: Submitter<'_>,
    submission: &ActionSubmission,
    action_id: &ActionId,
    (before, mut is_begun): (StepInputs<'_>, bool),
) -> Result<()> {
    let (mut chunk, mut bytes, mut at) = (Vec::new(), 0, 0);
    let mut job_ids = Vec::new();
    for producer in producers(before) {
        job_ids.extend(jobs_of(app, producer).await?);
    }
    for job_id in job_ids {
        let input = output_of(app, &job_id).await?;
        bytes += input.get().len();
        chunk.push(input);
        if bytes >= CHUNK_BYTES || chunk.len() >= CHUNK_INPUTS {
            let count = chunk.len() as u64;
            submit_output_chunk(app, by, submission, (take(&mut chunk), at), is_begun).await?;
            (bytes, at, is_begun) = (0, at + count, true);
        }
    }
    if !chunk.is_empty() || !is_begun {
        submit_output_chunk(app, by, submission, (chunk, at), is_begun).await?;
    }
    if submission.open { Ok(()) } else { action_changes::close(app, action_id).await }
}

/// Cancels the action, unless another node has passed on inputs, or the action was cancelled.
async fn cancel_rejected(app: &AppState, action_id: &ActionId, rejection: Rejection) -> Result<()> {
    match app.store.action(action_id).await? {
        Some((action, _)) if !action.is_open || matches!(rejection, Rejection::ActionExists(_)) => Ok(()),
        Some(_) => {
            action_changes::cancel(app, action_id).await.map(drop)?;
            Err(rejection.into())
        }
        None => Err(rejection.into()),
    }
}

/// Returns true for an action that is open only because some inputs are not passed on yet.
pub(crate) async fn is_partly_submitted(app: &AppState, step: &WorkflowStep) -> Result<bool> {
    let (true, Ok(action_id)) = (step.is_action(), ActionId::new(step.id.as_str())) else { return Ok(false) };
    let Ok(submission) = read_action(&step.document) else { return Ok(false) };
    if submission.open || !submission.inputs.is_empty() {
        return Ok(false);
    }
    Ok(app.store.action(&action_id).await?.is_some_and(|(action, _)| action.is_open))
}

/// Adds `inputs` at the place `at` if `is_begun`, and submits the action otherwise.
async fn submit_output_chunk(
    app: &AppState,
    by: Submitter<'_>,
    submission: &ActionSubmission,
    (inputs, at): (Vec<Box<RawValue>>, u64),
    is_begun: bool,
) -> Result<()> {
    match &submission.action_id {
        Some(action_id) if is_begun => add_inputs(app, by, action_id, inputs, Some(at)).await.map(drop),
        _ => {
            // Without inputs the action stays closed, so that `action_submission::submit` rejects
            // it.
            let open = submission.open || !inputs.is_empty();
            let submission = ActionSubmission { inputs, open, ..submission.clone() };
            action_submission::submit(app, by, submission).await.map(drop)
        }
    }
}

pub(crate) async fn observe(app: &AppState, is_action: bool, id: &str) -> Result<StepObservation> {
    if is_action {
        let Ok(action_id) = ActionId::new(id) else { return Ok(StepObservation::Nothing) };
        let Some((action, counts)) = app.store.action(&action_id).await? else {
            return Ok(StepObservation::Nothing);
        };
        let count = |status: Status| counts.jobs[status as usize];
        if action.is_open || count(Status::Pending) + count(Status::Running) > 0 {
            return Ok(StepObservation::Underway);
        }
        let is_well = count(Status::Completed) == action.total_jobs;
        return Ok(StepObservation::Ended(if is_well { StepState::Completed } else { StepState::Failed }));
    }
    let Ok(job_id) = JobId::new(id) else { return Ok(StepObservation::Nothing) };
    Ok(match app.store.job_record(&job_id).await?.map(|job| job.state) {
        None => StepObservation::Nothing,
        Some(JobState::Completed) => StepObservation::Ended(StepState::Completed),
        Some(JobState::Cancelled) => StepObservation::Ended(StepState::Cancelled),
        Some(JobState::Discarded) => StepObservation::Ended(StepState::Failed),
        Some(_) => StepObservation::Underway,
    })
}
