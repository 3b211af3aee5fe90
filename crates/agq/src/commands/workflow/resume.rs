//! A workflow that is taken up again, because a job or an action that failed as a step of it is tried again by hand.

use agenix_protocol::{documents::to_json, ids::ActionId};
use agenix_rules::{job::Job, workflow::Workflow};

use super::{put, read};
use crate::{
    app::House,
    error::CommandError,
    store::{NoteChange, NoteKind},
};

/// Place of a job or an action in a workflow.
#[derive(Debug)]
pub(crate) struct Place {
    workflow_id: String,
    step_id: String,
}

/// Returns the place of a job in a workflow. A job of an action has the place of its action.
pub(crate) async fn place_of(house: &House, job: &Job) -> Result<Option<Place>, CommandError> {
    let Some(ojs) = &job.ojs else { return place_of_action(house, &job.action_id).await };
    let step_id = job.job_id.as_str().to_owned();
    Ok(ojs.workflow.clone().map(|workflow_id| Place { workflow_id, step_id }))
}

/// Returns the place of an action in a workflow.
pub(crate) async fn place_of_action(
    house: &House,
    action_id: &ActionId,
) -> Result<Option<Place>, CommandError> {
    if !house.store.has_notes(NoteKind::Workflow).await? {
        return Ok(None);
    }
    // An action does not know its workflow. To look for the id in the text saves the reading of most
    // workflows.
    let quoted = to_json(action_id);
    for (workflow_id, note) in house.store.notes(NoteKind::Workflow).await? {
        let step_id = action_id.as_str();
        if note.contains(&quoted)
            && read(&workflow_id, &note)?.all().any(|step| step.is_action() && step.id == step_id)
        {
            return Ok(Some(Place { workflow_id, step_id: step_id.to_owned() }));
        }
    }
    Ok(None)
}

/// Takes the workflow up again whose step is at `place`. A caller does so before the job is tried again,
/// because the workflow may refuse, and once more afterwards, because somebody else may have seen the
/// failed job in between.
pub(crate) async fn take_up(house: &House, place: Option<&Place>) -> Result<(), CommandError> {
    let Some(Place { workflow_id: id, step_id }) = place else { return Ok(()) };
    // A workflow that was forgotten holds nobody up.
    let Some(note) = house.store.note(NoteKind::Workflow, id).await? else { return Ok(()) };
    let known = read(id, &note)?;
    if known.resumed(step_id)?.is_none() {
        return Ok(());
    }
    let mark = || put(house, NoteKind::Running, id, known.created_at.0.to_string());
    mark().await?;
    let step_id = step_id.clone();
    let rule = move |known: Option<&str>| {
        let known = known.and_then(|known| serde_json::from_str::<Workflow>(known).ok());
        let next = known.map(|known| known.resumed(&step_id)).transpose()?.flatten();
        Ok(next.map_or(NoteChange::Keep, |next| NoteChange::Put(to_json(&next))))
    };
    house.store.decide_note(NoteKind::Workflow, id, Box::new(rule)).await??;
    // The reaper may have seen the workflow as settled until now, and have taken the mark away.
    mark().await
}
