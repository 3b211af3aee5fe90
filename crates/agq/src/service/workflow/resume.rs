//! Resumption of an ended workflow when a failed job or action of one of its steps is retried.

use agenix_protocol::{documents::to_json, ids::ActionId};
use agenix_rules::{job::Job, rejection::Rejection, workflow::Workflow};

use super::{put, read};
use crate::{
    app::AppState,
    error::Result,
    store::{DocumentChange, DocumentKind},
};

#[derive(Debug)]
pub(crate) struct WorkflowPosition {
    workflow_id: String,
    step_id: String,
}

/// Returns the place of a job that is a step, or else that of its action.
pub(crate) async fn place_of(app: &AppState, job: &Job) -> Result<Option<WorkflowPosition>> {
    if let Some(workflow_id) = job.ojs.as_ref().and_then(|ojs| ojs.workflow.clone()) {
        return Ok(Some(WorkflowPosition { workflow_id, step_id: job.job_id.as_str().to_owned() }));
    }
    // The jobs of an action with bounds have attributes of the Open Job Spec, but no document of
    // their own, and name no workflow.
    let is_of_action = job.ojs.as_ref().is_none_or(|ojs| ojs.document.is_none());
    if is_of_action { place_of_action(app, &job.action_id).await } else { Ok(None) }
}

pub(crate) async fn place_of_action(
    app: &AppState,
    action_id: &ActionId,
) -> Result<Option<WorkflowPosition>> {
    if !app.store.has_documents(DocumentKind::Workflow).await? {
        return Ok(None);
    }
    // An action does not name its workflow. The search in the text saves the parsing of most
    // workflows.
    let quoted = to_json(action_id);
    for (workflow_id, json) in app.store.documents(DocumentKind::Workflow).await? {
        let step_id = action_id.as_str();
        if json.contains(&quoted)
            && read(&workflow_id, &json)?.all().any(|step| step.is_action() && step.id == step_id)
        {
            return Ok(Some(WorkflowPosition { workflow_id, step_id: step_id.to_owned() }));
        }
    }
    Ok(None)
}

/// Change of a workflow by a retry of a step, by the id of the step; `None` if nothing changes.
type StepRule = fn(&Workflow, &str) -> Result<Option<Workflow>, Rejection>;

/// Resumes a workflow before a retry, because the workflow may reject the retry.
pub(crate) async fn resume(app: &AppState, place: Option<&WorkflowPosition>) -> Result<()> {
    change(app, place, Workflow::resumed).await
}

/// Resumes a workflow after a retry, because another task may have observed the failed job in
/// between.
pub(crate) async fn resume_after_retry(app: &AppState, place: Option<&WorkflowPosition>) -> Result<()> {
    change(app, place, Workflow::retried).await
}

async fn change(app: &AppState, place: Option<&WorkflowPosition>, rule: StepRule) -> Result<()> {
    let Some(WorkflowPosition { workflow_id: id, step_id }) = place else { return Ok(()) };
    // A workflow that has been deleted does not prevent the retry.
    let Some(json) = app.store.document(DocumentKind::Workflow, id).await? else { return Ok(()) };
    let known = read(id, &json)?;
    if rule(&known, step_id)?.is_none() {
        return Ok(());
    }
    let mark = || put(app, DocumentKind::Running, id, known.created_at.0.to_string());
    mark().await?;
    let step_id = step_id.clone();
    let rule = move |known: Option<&str>| {
        let known = known.and_then(|known| serde_json::from_str::<Workflow>(known).ok());
        let next = known.map(|known| rule(&known, &step_id)).transpose()?.flatten();
        Ok(next.map_or(DocumentChange::Keep, |next| DocumentChange::Put(to_json(&next))))
    };
    app.store.update_document(DocumentKind::Workflow, id, Box::new(rule)).await??;
    // The reaper may have removed the entry of the workflow before this change, because the
    // workflow had ended.
    mark().await
}
