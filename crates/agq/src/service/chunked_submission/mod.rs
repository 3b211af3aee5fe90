//! A submission of many inputs, stored in pieces, because a write that is long keeps all others waiting (ADR 19).
//!
//! One write stores the action with the jobs of the first piece, and the texts of the other pieces as notes. From then on the
//! submission is certain. Each further write makes the jobs of one piece. Anybody may make them, and may begin again after a crash,
//! because a piece that is there already adds nothing.

mod pieces;

#[cfg(test)]
mod tests;

use std::{cmp::Ordering, collections::HashMap, mem::take};

use agenix_protocol::{
    documents::{Plan, to_json},
    ids::ActionId,
};
use agenix_rules::{
    action::{self, Action},
    job::{JobParams, NewJob},
    plan,
    rejection::Rejection,
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::lookup;
use crate::{
    app::AppState,
    error::CommandError,
    store::{ActionRule, AddOutcome, AppendJobs, DocumentChange, DocumentKind, NewAction, StoreError},
};
pub(crate) use pieces::pieces;
use pieces::{InputChunk, inputs_of, name};

/// Number of pieces that one round of the reaper stores of a submission that nobody else stores.
const PIECES_A_ROUND: usize = 100;

/// Note on a submission of which inputs are still to be stored.
#[derive(Serialize, Deserialize)]
struct PendingSubmission {
    /// Whether the action is to be open afterwards.
    open: bool,
    /// Places of the pieces behind the first piece.
    places: Vec<u64>,
}

/// Stores an action of which `pieces` are the inputs, `count` in all, and returns the number of its jobs. That is less than
/// `count` if the action halts meanwhile. The same submission again stores nothing.
pub(crate) async fn store(
    app: &AppState,
    action: Action,
    plan: &Plan,
    pieces: &[InputChunk],
    count: usize,
) -> Result<usize, CommandError> {
    let added = app.store.add_action(begun(app, &action, plan, pieces)?).await??;
    finish(app, &action.action_id).await?;
    let known = app.store.action(&action.action_id).await?.map(|(known, _)| known);
    let stored = match known.as_ref().filter(|known| known.halted.is_some()) {
        Some(halted) => count.min(usize::try_from(halted.total_jobs).unwrap_or(usize::MAX)),
        None => count,
    };
    let is_stored = match known {
        _ if added == AddOutcome::New => true,
        Some(known) => is_stored(app, &known, &action, plan, pieces, count).await?,
        None => false,
    };
    if is_stored { Ok(stored) } else { Err(Rejection::ActionExists(action.action_id).into()) }
}

/// Returns what the first write stores: the jobs of the first piece, and notes on the others.
fn begun(
    app: &AppState,
    action: &Action,
    plan: &Plan,
    pieces: &[InputChunk],
) -> Result<NewAction, CommandError> {
    let places = pieces.iter().skip(1).map(|piece| piece.place).collect();
    let note = to_json(&PendingSubmission { open: action.is_open, places });
    let mut notes = vec![(DocumentKind::Arriving, action.action_id.to_string(), note)];
    notes.extend(
        pieces
            .iter()
            .skip(1)
            .map(|piece| (DocumentKind::Inputs, name(&action.action_id, piece.place), piece.json.clone())),
    );
    Ok(NewAction {
        needs: plan::needs(plan),
        terms: JobParams::of(action, plan, app.settings.job_timeout_ms, action.created_at),
        jobs: pieces
            .first()
            .map_or(Ok(Vec::new()), |piece| inputs_of(&piece.json))
            .map(|inputs| new_jobs(app, inputs))?,
        // It stays so until its last input is stored.
        action: Action { is_open: true, ..action.clone() },
        notes,
    })
}

/// Returns whether the action `known` came from the same submission as `action`.
async fn is_stored(
    app: &AppState,
    known: &Action,
    action: &Action,
    plan: &Plan,
    pieces: &[InputChunk],
    count: usize,
) -> Result<bool, CommandError> {
    let count = count as u64;
    // An open action may have grown since, and a halted one has not taken the last pieces.
    let fits = match known.total_jobs.cmp(&count) {
        Ordering::Less => known.halted.is_some(),
        Ordering::Equal => true,
        Ordering::Greater => known.wishes.open,
    };
    if !fits || !action::is_same(known, action) {
        return Ok(false);
    }
    for piece in pieces.iter().filter(|piece| piece.place < known.total_jobs) {
        // Nothing is added, because the action has an input at each of these places.
        match add_piece(app, known, plan, piece).await {
            Ok(_) => {}
            Err(CommandError::Rejected(_)) => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// Stores what is left of the submission of an action, if anything is left.
pub(crate) async fn finish(app: &AppState, action_id: &ActionId) -> Result<(), CommandError> {
    store_pieces(app, action_id, usize::MAX).await
}

/// Stores what is left of all submissions.
pub(crate) async fn finish_all(app: &AppState) -> Result<(), CommandError> {
    for action_id in arriving(app).await? {
        finish(app, &action_id).await?;
    }
    Ok(())
}

/// Submissions that had inputs left at the last round of the reaper, with the number of jobs that their actions had then.
#[derive(Default)]
pub(crate) struct StalledSubmissions(HashMap<ActionId, u64>);

impl StalledSubmissions {
    /// Stores the next pieces of the submissions that have not grown since the last round: whoever stored them has ended.
    pub(crate) async fn look_after(&mut self, app: &AppState) -> Result<(), CommandError> {
        let before = take(&mut self.0);
        for action_id in arriving(app).await? {
            let found = app.store.action(&action_id).await?;
            let total_jobs = found.map_or(0, |(action, _)| action.total_jobs);
            if before.get(&action_id) == Some(&total_jobs) {
                store_pieces(app, &action_id, PIECES_A_ROUND).await?;
            }
            self.0.insert(action_id, total_jobs);
        }
        Ok(())
    }
}

/// Returns the actions of which inputs are still to be stored.
async fn arriving(app: &AppState) -> Result<Vec<ActionId>, CommandError> {
    if !app.store.has_documents(DocumentKind::Arriving).await? {
        return Ok(Vec::new());
    }
    let notes = app.store.documents(DocumentKind::Arriving).await?;
    Ok(notes.into_iter().filter_map(|(id, _)| ActionId::new(id).ok()).collect())
}

async fn store_pieces(app: &AppState, action_id: &ActionId, most: usize) -> Result<(), CommandError> {
    let Some(note) = app.store.document(DocumentKind::Arriving, action_id.as_str()).await? else {
        return Ok(());
    };
    let arriving: PendingSubmission = serde_json::from_str(&note)
        .map_err(|error| StoreError(format!("the submission of {action_id} cannot be read: {error}")))?;
    let Some((action, _)) = app.store.action(action_id).await? else {
        return settle(app, action_id, &arriving).await;
    };
    if action.halted.is_some() {
        // A halted action takes no more inputs.
        return settle(app, action_id, &arriving).await;
    }
    let left: Vec<u64> =
        arriving.places.iter().copied().filter(|place| *place >= action.total_jobs).collect();
    for &place in left.iter().take(most) {
        let Some(json) = app.store.document(DocumentKind::Inputs, &name(action_id, place)).await? else {
            // Somebody else has stored all of it meanwhile.
            return Ok(());
        };
        let plan = lookup::plan(app, &action.plan_id).await?;
        match add_piece(app, &action, &plan, &InputChunk { place, json }).await {
            Err(CommandError::Rejected(Rejection::ActionHalted { .. })) => break,
            added => added?,
        };
    }
    if left.len() > most { Ok(()) } else { settle(app, action_id, &arriving).await }
}

/// Adds the inputs of a piece to an action, unless they are there.
async fn add_piece(
    app: &AppState,
    action: &Action,
    plan: &Plan,
    piece: &InputChunk,
) -> Result<u64, CommandError> {
    let now = app.clock.now();
    let more = AppendJobs {
        at: Some(piece.place),
        needs: plan::needs(plan),
        terms: JobParams::of(action, plan, app.settings.job_timeout_ms, now),
        jobs: new_jobs(app, inputs_of(&piece.json)?),
        now,
        action_id: action.action_id.clone(),
    };
    Ok(app.store.add_jobs(more).await??)
}

/// Ends a submission. The note on it goes last, so that what a crash leaves is done again.
async fn settle(
    app: &AppState,
    action_id: &ActionId,
    arriving: &PendingSubmission,
) -> Result<(), CommandError> {
    if !arriving.open {
        let rule: ActionRule = Box::new(|action: Option<&Action>| Ok(action.and_then(action::closed)));
        app.store.decide_action(action_id, rule).await??;
    }
    let remove =
        |kind, id: &str| app.store.update_document(kind, id, Box::new(|_| Ok(DocumentChange::Remove)));
    let pieces: Vec<_> =
        arriving.places.iter().map(|place| remove(DocumentKind::Inputs, &name(action_id, *place))).collect();
    for answer in pieces {
        answer.await??;
    }
    Ok(remove(DocumentKind::Arriving, action_id.as_str()).await??)
}

/// Returns the jobs of `inputs`, each with a new id.
pub(crate) fn new_jobs(app: &AppState, inputs: Vec<Box<RawValue>>) -> Vec<NewJob> {
    let new = |input: Box<RawValue>| NewJob { job_id: app.clock.job_id(), input: input.into(), own: None };
    inputs.into_iter().map(new).collect()
}
