//! ACTION.* (AGQ API spec §4).

use std::collections::BTreeMap;

use agenix_protocol::{documents::ActionSubmission, ids::ActionId, request::Page, resp::Reply};
use agenix_rules::{action, rejection::Rejection};
use serde_json::value::RawValue;

use crate::{
    app::{AppState, Caller},
    resp::outcome::{CommandResult, json as document, object, parsed},
    service::{action_changes, action_submission, actions},
};

pub(crate) async fn submit(app: &AppState, caller: &Caller, json: &[u8]) -> CommandResult {
    let submission: ActionSubmission = object(json, Rejection::InvalidAction)?;
    let (action_id, jobs_created) = action_submission::submit(app, caller.submitter(), submission).await?;
    Ok(Reply::Simple(format!("OK action_id={action_id} jobs_created={jobs_created}")))
}

pub(crate) async fn add(
    app: &AppState,
    caller: &Caller,
    action_id: ActionId,
    json: &[u8],
    at: Option<u64>,
) -> CommandResult {
    let inputs: Vec<Box<RawValue>> = parsed(json, Rejection::InvalidAction)?;
    let jobs_created = inputs.len();
    let total_jobs = action_submission::add_inputs(app, caller.submitter(), &action_id, inputs, at).await?;
    Ok(Reply::Simple(format!("OK action_id={action_id} jobs_created={jobs_created} total_jobs={total_jobs}")))
}

pub(crate) async fn close(app: &AppState, action_id: &ActionId) -> CommandResult {
    action_changes::close(app, action_id).await?;
    Ok(Reply::ok())
}

pub(crate) async fn status(app: &AppState, action_id: &ActionId) -> CommandResult {
    let found = app.store.action(action_id).await?;
    Ok(found.map_or(Reply::Nil, |(action, counts)| document(&action::status(&action, &counts))))
}

pub(crate) async fn list(
    app: &AppState,
    caller: &Caller,
    page: Page,
    labels: BTreeMap<String, String>,
) -> CommandResult {
    let owner = caller.agent().map(|agent| agent.owner.clone());
    Ok(Reply::bulks(app.store.actions(page, labels, owner).await?.into_iter().map(String::from)))
}

pub(crate) async fn cancel(app: &AppState, action_id: &ActionId, unstarted: bool) -> CommandResult {
    let cancelled = if unstarted {
        actions::cancel_unstarted(app, action_id).await?
    } else {
        actions::cancel(app, action_id).await?
    };
    Ok(Reply::Simple(format!("OK cancelled={cancelled}")))
}

pub(crate) async fn retry(app: &AppState, action_id: &ActionId) -> CommandResult {
    let retried = actions::retry(app, action_id).await?;
    Ok(Reply::Simple(format!("OK retried={retried}")))
}
