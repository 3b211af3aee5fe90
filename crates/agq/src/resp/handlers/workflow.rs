//! WORKFLOW.*

use agenix_protocol::{request::Page, resp::Reply};
use agenix_rules::{rejection::Rejection, workflow::WorkflowRequest};

use crate::{
    app::{AppState, Caller},
    error::CommandError,
    resp::outcome::{CommandResult, json as document, object},
    service::workflow::{self, workflow_view},
    store::DocumentKind,
};

pub(crate) async fn submit(app: &AppState, caller: &Caller, json: &[u8]) -> CommandResult {
    let request: WorkflowRequest = object(json, Rejection::InvalidWorkflow)?;
    let workflow = workflow::submit(app, caller.submitter().owner, request).await?;
    Ok(Reply::Simple(format!("OK workflow_id={} steps={}", workflow.id, workflow.steps.len())))
}

pub(crate) async fn status(app: &AppState, id: &str) -> CommandResult {
    match workflow::observe_step(app, id).await {
        Ok(workflow) => Ok(document(&workflow_view(&workflow))),
        Err(CommandError::Rejected(Rejection::WorkflowNotFound(_))) => Ok(Reply::Nil),
        Err(error) => Err(error),
    }
}

pub(crate) async fn list(app: &AppState, page: &Page) -> CommandResult {
    let documents = app.store.documents(DocumentKind::Workflow).await?;
    Ok(Reply::bulks(page.of(documents.into_iter().map(|(id, _)| id))))
}

pub(crate) async fn cancel(app: &AppState, id: &str) -> CommandResult {
    workflow::cancel(app, id).await.map(drop)?;
    Ok(Reply::Simple("OK workflow cancelled".into()))
}
