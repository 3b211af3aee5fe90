//! Workflows: submits the next steps when a step has ended.
//!
//! [`advance`] is idempotent: it reads the states of the steps in flight, computes the next state
//! of the workflow with the rules, stores that state with a compare-and-swap, and submits the steps
//! that have become ready. Several tasks and nodes may advance a workflow concurrently. The reaper
//! advances all workflows that have not ended, so that a crash interrupts none for good.

mod resume;
mod retention;
mod view;

use agenix_protocol::{
    documents::to_json,
    ids::{ActionId, JobId},
    time::Timestamp,
};
use agenix_rules::{
    owner::Owner,
    rejection::Rejection,
    workflow::{PlacedStep, StepInputs, StepObservation, StepState, Workflow, WorkflowRequest, WorkflowStep},
};
use futures_util::{StreamExt, stream};
use tracing::{debug, error};

pub(crate) use self::{
    resume::{place_of, place_of_action, resume, resume_after_retry},
    retention::WorkflowRetention,
    view::workflow_view,
};

use super::{
    action_changes,
    deferred_submission::{self, SubmissionContext},
    job_changes, lookup,
};
use crate::{
    app::AppState,
    error::{CommandError, Result},
    store::{DocumentChange, DocumentKind, StoreError},
};

/// States that one [`advance`] passes. The reaper continues afterwards.
const MAX_MOVES: usize = 100;
/// Maximum number of workflows that advance at the same time.
const MAX_AT_ONCE: usize = 16;
/// Time within which a workflow that is being submitted has to be stored, in milliseconds.
const UNFINISHED_MS: u64 = 60_000;

/// Parses a stored workflow.
pub(crate) fn read(id: &str, json: &str) -> Result<Workflow, StoreError> {
    lookup::parse("workflow", id, json)
}

pub(crate) async fn submit(
    app: &AppState,
    owner: Option<&Owner>,
    request: WorkflowRequest,
) -> Result<Workflow> {
    let workflow = Workflow::new(request, || deferred_submission::new_id(app), app.clock.now())?;
    let workflow = Workflow { owner: owner.cloned(), ..workflow };
    for PlacedStep { step, place, before } in workflow.placed() {
        let takes_outputs = matches!(before, Some(StepInputs::Step(_)));
        let checked = deferred_submission::check(app, owner, &step.document, takes_outputs).await;
        let checked = checked.and_then(|()| deferred_submission::check_is_stored(&step.document));
        checked.map_err(|error| placed(error, &place))?;
    }
    let id = workflow.id.clone();
    // The entry of running workflows is stored first, so that the reaper finds the workflow after a
    // crash.
    put(app, DocumentKind::Running, &id, workflow.created_at.0.to_string()).await?;
    put(app, DocumentKind::Workflow, &id, to_json(&workflow)).await?;
    advance_stored(app, &id).await;
    // The client must not submit a stored workflow again, so a failed read is no error.
    Ok(get(app, &id).await.unwrap_or(workflow))
}

/// Advances a workflow after its durable change. After an error, the reaper advances the workflow.
async fn advance_stored(app: &AppState, id: &str) {
    if let Err(error) = advance(app, id).await {
        error!(workflow = id, %error, "a workflow could not be advanced; the next round tries again");
    }
}

fn placed(error: CommandError, place: &str) -> CommandError {
    match error {
        CommandError::Rejected(
            Rejection::InvalidJob(text) | Rejection::InvalidAction(text) | Rejection::InvalidRetry(text),
        ) => Rejection::InvalidWorkflow(format!("{place}: {text}")).into(),
        other => other,
    }
}

async fn put(app: &AppState, kind: DocumentKind, id: &str, json: String) -> Result<()> {
    let rule = move |_: Option<&str>| Ok(DocumentChange::Put(json.clone()));
    Ok(app.store.update_document(kind, id, Box::new(rule)).await??)
}

pub(crate) async fn get(app: &AppState, id: &str) -> Result<Workflow> {
    let is_id = !id.contains('\0');
    let json = if is_id { app.store.document(DocumentKind::Workflow, id).await? } else { None };
    let json = json.ok_or_else(|| Rejection::WorkflowNotFound(id.to_owned()))?;
    Ok(read(id, &json)?)
}

/// Returns the ids and documents of all workflows, the newest first.
pub(crate) async fn documents(app: &AppState) -> Result<Vec<(String, String)>> {
    let mut documents = app.store.documents(DocumentKind::Workflow).await?;
    documents.reverse();
    Ok(documents)
}

/// Cancels a workflow and its steps in flight, and returns the workflow.
pub(crate) async fn cancel(app: &AppState, id: &str) -> Result<Workflow> {
    let (now, workflow_id) = (app.clock.now(), id.to_owned());
    if id.contains('\0') {
        return Err(Rejection::WorkflowNotFound(workflow_id).into());
    }
    let rule = move |known: Option<&str>| {
        let known = known.and_then(|known| serde_json::from_str::<Workflow>(known).ok());
        let known = known.ok_or_else(|| Rejection::WorkflowNotFound(workflow_id.clone()))?;
        known.cancelled(now).map(|next| DocumentChange::Put(to_json(&next)))
    };
    app.store.update_document(DocumentKind::Workflow, id, Box::new(rule)).await??;
    advance_stored(app, id).await;
    get(app, id).await
}

/// A stand-in job continues, because it does not belong to the workflow.
async fn cancel_step(app: &AppState, step: &WorkflowStep) -> Result<()> {
    if step.is_stand_in {
        return Ok(());
    }
    let outcome = if step.is_action() {
        let Ok(action_id) = ActionId::new(step.id.as_str()) else { return Ok(()) };
        action_changes::cancel(app, &action_id).await.map(drop)
    } else {
        let Ok(job_id) = JobId::new(step.id.as_str()) else { return Ok(()) };
        job_changes::cancel(app, &job_id, false).await.map(drop)
    };
    match outcome {
        // The step has ended, or was not submitted.
        Err(CommandError::Rejected(_)) => Ok(()),
        other => other,
    }
}

/// Advances the workflow if the end of the job can make a difference. After an error, the reaper
/// advances the workflow.
pub(crate) async fn step_ended(app: &AppState, id: &str) {
    if app.unended_steps.ended(id) {
        advance_stored(app, id).await;
    }
}

/// Advances a workflow past all steps that have ended by now, and returns the workflow. Returns the
/// stored workflow if it cannot be advanced at the moment.
pub(crate) async fn observe_step(app: &AppState, id: &str) -> Result<Workflow> {
    let known = get(app, id).await?;
    if known.has_all_ended() {
        return Ok(known);
    }
    if let Err(error) = advance(app, id).await {
        debug!(workflow = id, %error, "a workflow could not be advanced; its stored state is shown");
    }
    get(app, id).await
}

/// Submits the next steps of a workflow as far as its earlier steps have ended. Idempotent.
pub(crate) async fn advance(app: &AppState, id: &str) -> Result<()> {
    for _move in 0..MAX_MOVES {
        let Some(stored) = app.store.document(DocumentKind::Workflow, id).await? else { return Ok(()) };
        let known = read(id, &stored)?;
        if known.stage == StepState::Cancelled {
            // Cancels the steps again, because another task may have submitted one meanwhile.
            for step in known.all().filter(|step| step.stage == StepState::Cancelled) {
                cancel_step(app, step).await?;
            }
        }
        if known.has_all_ended() {
            return finalize(app, id).await;
        }
        let seen = observe(app, &known).await?;
        let seen: Vec<(&str, StepObservation)> = seen.iter().map(|(id, seen)| (id.as_str(), *seen)).collect();
        let next = known.moved(&seen, app.clock.now());
        app.unended_steps.set(id, next.steps_together());
        let json = to_json(&next);
        if json != stored {
            let before = stored.clone();
            let rule = move |known: Option<&str>| {
                // Another task may have advanced the workflow first.
                let is_same = known == Some(before.as_str());
                Ok(if is_same { DocumentChange::Put(json.clone()) } else { DocumentChange::Keep })
            };
            app.store.update_document(DocumentKind::Workflow, id, Box::new(rule)).await??;
            continue;
        }
        if !submit_steps(app, &next).await? {
            return Ok(());
        }
    }
    Ok(())
}

async fn observe(app: &AppState, workflow: &Workflow) -> Result<Vec<(String, StepObservation)>> {
    let mut seen = Vec::new();
    for step in workflow.all().filter(|step| step.stage == StepState::Running) {
        let mut state = deferred_submission::observe(app, step.is_action(), &step.id).await?;
        let is_new = state == StepObservation::Underway && !step.is_submitted;
        if is_new && deferred_submission::is_partly_submitted(app, step).await? {
            // The step is submitted with its last input. The node that began to submit it may have
            // ended.
            state = StepObservation::Nothing;
        }
        seen.push((step.id.clone(), state));
    }
    Ok(seen)
}

/// Returns true if there were steps to submit. An error of one step is returned after the others
/// were submitted.
async fn submit_steps(app: &AppState, workflow: &Workflow) -> Result<bool> {
    let (mut has_any, mut failed) = (false, None);
    for placed in workflow.placed() {
        let step = placed.step;
        if step.stage != StepState::Running || step.is_submitted {
            continue;
        }
        // Another task of this node submits the step, and advances the workflow afterwards.
        let Some(_lock) = app.step_locks.try_lock(&step.id) else { continue };
        has_any = true;
        if let Err(error) = submit_step(app, workflow, &placed).await {
            failed.get_or_insert(error);
        }
    }
    // Meanwhile a client may have cancelled the workflow, or another node may have failed a step
    // that it could not submit.
    let now = get(app, &workflow.id).await?;
    let was_running = workflow.all().map(|step| step.stage == StepState::Running).collect::<Vec<_>>();
    for (step, _) in now.all().zip(was_running).filter(|(_, was_running)| *was_running) {
        let was_failed = step.stage == StepState::Failed && !step.is_submitted;
        if now.stage == StepState::Cancelled || was_failed {
            cancel_step(app, step).await?;
        }
    }
    failed.map_or(Ok(has_any), Err)
}

/// Submits a step, or stores why it failed.
async fn submit_step(app: &AppState, workflow: &Workflow, placed: &PlacedStep<'_>) -> Result<()> {
    let step = placed.step;
    // A callback that is an action has inputs of its own.
    let before = placed.before.filter(|_| !(placed.is_callback() && step.is_action()));
    let context = SubmissionContext { workflow: Some(&workflow.id), owner: workflow.owner.as_ref(), before };
    match deferred_submission::submit(app, &step.document, &step.id, context).await {
        Err(CommandError::Rejected(rejection)) => {
            // The step was valid: its plan has been deleted since, its queue is full, or an output
            // before it is lost or no longer kept.
            error!(workflow = workflow.id, step = step.id, %rejection, "a step could not be submitted");
            let reason = rejection.to_string();
            let fail = move |step: &mut WorkflowStep| {
                (step.stage, step.error) = (StepState::Failed, Some(reason.clone()));
            };
            change_step(app, workflow, &step.id, fail).await
        }
        // An equal job stands for the new job.
        Ok(Some(by)) => {
            let stand_in = move |step: &mut WorkflowStep| {
                step.id.clone_from(&by);
                step.is_stand_in = true;
            };
            change_step(app, workflow, &step.id, stand_in).await
        }
        other => other.map(drop),
    }
}

/// Changes a running step that is not known to have been submitted.
async fn change_step(
    app: &AppState,
    workflow: &Workflow,
    step_id: &str,
    change: impl Fn(&mut WorkflowStep) + Send + Sync + 'static,
) -> Result<()> {
    let step_id = step_id.to_owned();
    let rule = move |known: Option<&str>| {
        let Some(mut known) = known.and_then(|known| serde_json::from_str::<Workflow>(known).ok()) else {
            return Ok(DocumentChange::Keep);
        };
        known.each_mut(|step| {
            if step.id == step_id && step.stage == StepState::Running && !step.is_submitted {
                change(step);
            }
        });
        Ok(DocumentChange::Put(to_json(&known)))
    };
    Ok(app.store.update_document(DocumentKind::Workflow, &workflow.id, Box::new(rule)).await??)
}

/// Removes a workflow that has ended with its callbacks from the list of running workflows, unless
/// a retry has resumed the workflow meanwhile.
async fn finalize(app: &AppState, id: &str) -> Result<()> {
    app.unended_steps.set(id, 0);
    remove_running(app, id).await?;
    let Some(json) = app.store.document(DocumentKind::Workflow, id).await? else { return Ok(()) };
    let now = read(id, &json)?;
    if now.has_all_ended() {
        Ok(())
    } else {
        put(app, DocumentKind::Running, id, now.created_at.0.to_string()).await
    }
}

/// Removes a workflow without remaining steps from the list of running workflows.
async fn remove_running(app: &AppState, id: &str) -> Result<()> {
    let rule = |_: Option<&str>| Ok(DocumentChange::Remove);
    Ok(app.store.update_document(DocumentKind::Running, id, Box::new(rule)).await??)
}

/// Advances all running workflows, some at a time, because a workflow that passes on large outputs
/// takes long.
pub(crate) async fn advance_all(app: &AppState) -> Result<()> {
    let running = stream::iter(app.store.documents(DocumentKind::Running).await?);
    let advanced = running.for_each_concurrent(MAX_AT_ONCE, async |(id, since)| {
        let outcome = match forget_unfinished(app, &id, &since).await {
            Ok(()) => advance(app, &id).await,
            failed => failed,
        };
        if let Err(error) = outcome {
            error!(workflow = id, %error, "a workflow could not be advanced; the next round tries again");
        }
    });
    advanced.await;
    Ok(())
}

/// Removes the entry of a workflow whose submission was interrupted before the workflow was stored.
async fn forget_unfinished(app: &AppState, id: &str, since: &str) -> Result<()> {
    let since = Timestamp(since.parse().unwrap_or_default());
    let is_old = app.clock.now().ms_since(since) > UNFINISHED_MS;
    if is_old && app.store.document(DocumentKind::Workflow, id).await?.is_none() {
        remove_running(app, id).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
