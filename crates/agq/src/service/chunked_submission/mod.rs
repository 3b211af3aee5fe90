//! Submission of many inputs in chunks, because other writes wait for a long write (ADR 19).
//!
//! The first write stores the action with the jobs of the first chunk, and the other chunks as
//! documents. From then on the submission is durable. Each further write makes the jobs of one
//! chunk. Any task or node may make the jobs, and may begin again after a crash, because adding a
//! chunk is idempotent.

mod chunks;

#[cfg(test)]
mod tests;

use std::{cmp::Ordering, collections::HashMap, mem::take};

use agenix_protocol::{
    documents::{Plan, to_json},
    ids::{ActionId, PlanId},
};
use agenix_rules::{
    action::{self, Action},
    action_bounds,
    budget::SubmissionCharge,
    job::{JobParams, NewJob},
    rejection::Rejection,
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tracing::{error, warn};

use super::{approvals, lookup};
use crate::{
    app::AppState,
    error::{CommandError, Result},
    store::{ActionRule, AddOutcome, AppendJobs, DocumentChange, DocumentKind, NewAction},
};
pub(crate) use chunks::chunks;
use chunks::{InputChunk, inputs_of, name};

/// Maximum number of chunks of a stalled submission that one round of the reaper stores.
const CHUNKS_A_ROUND: usize = 100;

/// Document of a submission with inputs that are not jobs yet.
#[derive(Serialize, Deserialize)]
struct PendingSubmission {
    /// True if the action stays open after the submission.
    open: bool,
    /// Places of the chunks behind the first chunk.
    places: Vec<u64>,
}

/// Returns the number of jobs, and true if they are staged. The number is less than `count` if the
/// action halts meanwhile, or if its plan is rejected. Idempotent. `charge` returns the charge of
/// the first write for all jobs, given the number of jobs of later writes. After the first write, a
/// failure of the store is no error, because the client must not submit the inputs again.
pub(crate) async fn store(
    app: &AppState,
    action: Action,
    plan: &Plan,
    chunks: &[InputChunk],
    count: usize,
    charge: impl FnOnce(u64) -> Option<SubmissionCharge>,
) -> Result<(usize, bool)> {
    let of_plan = (&action.plan_id, &action.action_id);
    let owner = action.owner.as_ref();
    let is_staged = approvals::is_submission_staged(app, owner, of_plan, count as u64).await?;
    let first = begun(app, (&action, is_staged), plan, chunks)?;
    let later = (count as u64).saturating_sub(first.jobs.len() as u64);
    let added = app.store.add_action(NewAction { charge: charge(later), ..first }).await??;
    if added != AddOutcome::New {
        return Ok((stored_again(app, action, plan, chunks, count).await?, is_staged));
    }
    match stored_count(app, &action.action_id, (count, is_staged)).await {
        Err(CommandError::Store(error)) => {
            error!(action_id = %action.action_id, %error, "inputs are not jobs yet; the reaper stores them");
            Ok((count, is_staged))
        }
        stored => Ok((stored?, is_staged)),
    }
}

/// Stores the later chunks of a new action, and returns the number of its first `count` jobs.
async fn stored_count(
    app: &AppState,
    action_id: &ActionId,
    (count, is_staged): (usize, bool),
) -> Result<usize> {
    finish(app, action_id).await?;
    let Some((known, _)) = app.store.action(action_id).await? else { return Ok(count) };
    let stored = first_jobs(&known, count);
    if stored < count && known.halted.is_none() && !is_staged {
        return Err(Rejection::ActionNotOpen(known.action_id).into());
    }
    Ok(stored)
}

/// Returns the number of jobs of a submission that was stored before, perhaps not to its end.
async fn stored_again(
    app: &AppState,
    action: Action,
    plan: &Plan,
    chunks: &[InputChunk],
    count: usize,
) -> Result<usize> {
    finish(app, &action.action_id).await?;
    if let Some((known, _)) = app.store.action(&action.action_id).await?
        && is_stored(app, &known, &action, plan, chunks, count).await?
    {
        return Ok(first_jobs(&known, count));
    }
    Err(Rejection::ActionExists(action.action_id).into())
}

/// Returns how many of the first `count` jobs an action has.
fn first_jobs(action: &Action, count: usize) -> usize {
    count.min(usize::try_from(action.total_jobs).unwrap_or(usize::MAX))
}

/// Returns the first write: the jobs of the first chunk, and documents of the other chunks.
fn begun(
    app: &AppState,
    (action, is_staged): (&Action, bool),
    plan: &Plan,
    chunks: &[InputChunk],
) -> Result<NewAction> {
    let places = chunks.iter().skip(1).map(|chunk| chunk.place).collect();
    let json = to_json(&PendingSubmission { open: action.is_open, places });
    let mut documents = vec![(DocumentKind::Arriving, action.action_id.to_string(), json)];
    let document =
        |chunk: &InputChunk| (DocumentKind::Inputs, name(&action.action_id, chunk.place), chunk.json.clone());
    documents.extend(chunks.iter().skip(1).map(document));
    let first = chunks.first().map_or(Ok(Vec::new()), |chunk| inputs_of(&chunk.json))?;
    let terms = JobParams::of(action, plan, app.settings.job_timeout_ms, action.created_at);
    let terms = JobParams { is_staged, ..terms };
    Ok(NewAction {
        needs: action_bounds::needs(action, plan),
        jobs: new_jobs(app, (action, plan, &terms), first)?,
        terms,
        // The action is open until its last input is stored.
        action: Action { is_open: true, ..action.clone() },
        documents,
        input_blobs: Vec::new(),
        charge: None,
    })
}

async fn is_stored(
    app: &AppState,
    known: &Action,
    action: &Action,
    plan: &Plan,
    chunks: &[InputChunk],
    count: usize,
) -> Result<bool> {
    let count = count as u64;
    // An open action may have more jobs since, and a halted action does not have the last chunks.
    let fits = match known.total_jobs.cmp(&count) {
        Ordering::Less => known.halted.is_some(),
        Ordering::Equal => true,
        Ordering::Greater => known.wishes.open,
    };
    if !fits || !action::is_same(known, action) {
        return Ok(false);
    }
    for chunk in chunks.iter().filter(|chunk| chunk.place < known.total_jobs) {
        // Nothing is added, because the action has an input at each of these places.
        match add_chunk(app, known, plan, chunk).await {
            Ok(_) => {}
            Err(CommandError::Rejected(_)) => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

pub(crate) async fn finish(app: &AppState, action_id: &ActionId) -> Result<()> {
    store_chunks(app, action_id, usize::MAX).await
}

/// Returns an action after the last chunk of its submission. The action is read first, because one
/// write stores an action and the documents of its chunks: an action that is found has them.
pub(crate) async fn finished_action(app: &AppState, action_id: &ActionId) -> Result<Action> {
    let (action, _) = lookup::action(app, action_id).await?;
    if app.store.document(DocumentKind::Arriving, action_id.as_str()).await?.is_none() {
        return Ok(action);
    }
    finish(app, action_id).await?;
    Ok(lookup::action(app, action_id).await?.0)
}

/// Stores the remaining chunks of all actions of a plan.
pub(crate) async fn finish_all_of(app: &AppState, plan_id: &PlanId) -> Result<()> {
    for action_id in pending_submissions(app).await? {
        let found = app.store.action(&action_id).await?;
        if found.is_some_and(|(action, _)| action.plan_id == *plan_id) {
            finish(app, &action_id).await?;
        }
    }
    Ok(())
}

/// Numbers of jobs of unfinished submissions at the last round of the reaper.
#[derive(Default)]
pub(crate) struct StalledSubmissions(HashMap<ActionId, u64>);

impl StalledSubmissions {
    /// Continues the submissions that have not grown since the last round, because they have lost
    /// their tasks. A submission that cannot be continued does not stop the others.
    pub(crate) async fn continue_stalled(&mut self, app: &AppState) -> Result<()> {
        let before = take(&mut self.0);
        for action_id in pending_submissions(app).await? {
            let found = app.store.action(&action_id).await?;
            let total_jobs = found.map_or(0, |(action, _)| action.total_jobs);
            if before.get(&action_id) == Some(&total_jobs)
                && let Err(error) = store_chunks(app, &action_id, CHUNKS_A_ROUND).await
            {
                error!(
                    %action_id,
                    %error,
                    "the remaining inputs could not be stored; the next round tries again"
                );
            }
            self.0.insert(action_id, total_jobs);
        }
        Ok(())
    }
}

async fn pending_submissions(app: &AppState) -> Result<Vec<ActionId>> {
    if !app.store.has_documents(DocumentKind::Arriving).await? {
        return Ok(Vec::new());
    }
    let documents = app.store.documents(DocumentKind::Arriving).await?;
    Ok(documents.into_iter().filter_map(|(id, _)| ActionId::new(id).ok()).collect())
}

async fn store_chunks(app: &AppState, action_id: &ActionId, limit: usize) -> Result<()> {
    let Some(json) = app.store.document(DocumentKind::Arriving, action_id.as_str()).await? else {
        return Ok(());
    };
    let pending: PendingSubmission = lookup::parse("submission of", action_id.as_str(), &json)?;
    let Some((action, _)) = app.store.action(action_id).await? else {
        return complete(app, action_id, &pending).await;
    };
    if action.halted.is_some() {
        // A halted action does not accept inputs.
        return complete(app, action_id, &pending).await;
    }
    let left: Vec<u64> = pending.places.iter().copied().filter(|place| *place >= action.total_jobs).collect();
    for &place in left.iter().take(limit) {
        let Some(json) = app.store.document(DocumentKind::Inputs, &name(action_id, place)).await? else {
            // Another task has stored all chunks meanwhile.
            return Ok(());
        };
        match store_chunk(app, &action, &InputChunk { place, json }).await {
            // The chunk would be rejected for ever.
            Err(CommandError::Rejected(rejection)) => {
                log_end(action_id, &rejection);
                return complete(app, action_id, &pending).await;
            }
            added => added?,
        };
    }
    if left.len() > limit { Ok(()) } else { complete(app, action_id, &pending).await }
}

async fn store_chunk(app: &AppState, action: &Action, chunk: &InputChunk) -> Result<u64> {
    let plan = lookup::plan(app, &action.plan_id).await?;
    add_chunk(app, action, &plan, chunk).await
}

/// Logs that a submission ends before its last chunk, unless a halt policy or a person decided so,
/// or retention has removed the whole action.
fn log_end(action_id: &ActionId, rejection: &Rejection) {
    use Rejection::{ActionHalted, ActionNotFound, ApprovalDecided};
    if !matches!(rejection, ActionHalted { .. } | ApprovalDecided { .. } | ActionNotFound(_)) {
        warn!(
            %action_id,
            %rejection,
            "the remaining inputs of an action were dropped; submit them as another action"
        );
    }
}

async fn add_chunk(app: &AppState, action: &Action, plan: &Plan, chunk: &InputChunk) -> Result<u64> {
    let inputs = inputs_of(&chunk.json)?;
    let has_new = action::count_new(action, Some(chunk.place), inputs.len() as u64) > 0;
    // The first write has charged all chunks, and has asked about their number.
    let of_plan = (&action.plan_id, &action.action_id);
    let is_staged = has_new && approvals::is_staged(app, None, of_plan, 0).await?;
    let inputs = NewInputs { inputs, at: Some(chunk.place), is_staged };
    append(app, action, plan, inputs, None).await
}

/// Inputs that an action gets.
pub(crate) struct NewInputs {
    pub(crate) inputs: Vec<Box<RawValue>>,
    /// Index of the first input, if it is named.
    pub(crate) at: Option<u64>,
    /// True if the jobs wait for the approval of the plan.
    pub(crate) is_staged: bool,
}

/// Adds inputs to an action, and returns the number of its jobs. Inputs that the action already has
/// after the place `at` are not added again.
pub(crate) async fn append(
    app: &AppState,
    action: &Action,
    plan: &Plan,
    NewInputs { inputs, at, is_staged }: NewInputs,
    charge: Option<SubmissionCharge>,
) -> Result<u64> {
    let now = app.clock.now();
    let terms = JobParams::of(action, plan, app.settings.job_timeout_ms, now);
    let terms = JobParams { is_staged, ..terms };
    let more = AppendJobs {
        at,
        needs: action_bounds::needs(action, plan),
        jobs: new_jobs(app, (action, plan, &terms), inputs)?,
        terms,
        now,
        action_id: action.action_id.clone(),
        charge,
    };
    Ok(app.store.add_jobs(more).await??)
}

/// Removes the document of the submission last, so that an interrupted end is repeated.
async fn complete(app: &AppState, action_id: &ActionId, pending: &PendingSubmission) -> Result<()> {
    if !pending.open {
        let rule: ActionRule = Box::new(|action: Option<&Action>| Ok(action.and_then(action::closed)));
        app.store.decide_action(action_id, rule).await??;
    }
    let remove =
        |kind, id: &str| app.store.update_document(kind, id, Box::new(|_| Ok(DocumentChange::Remove)));
    let chunks: Vec<_> =
        pending.places.iter().map(|place| remove(DocumentKind::Inputs, &name(action_id, *place))).collect();
    for answer in chunks {
        answer.await??;
    }
    Ok(remove(DocumentKind::Arriving, action_id.as_str()).await??)
}

/// Returns a job for each of the inputs that an action gets.
pub(crate) fn new_jobs(
    app: &AppState,
    (action, plan, terms): (&Action, &Plan, &JobParams),
    inputs: Vec<Box<RawValue>>,
) -> Result<Vec<NewJob>> {
    let own = action_bounds::overrides(action, plan, terms, &inputs)?;
    let new =
        |(input, own): (Box<RawValue>, _)| NewJob { job_id: app.clock.job_id(), input: input.into(), own };
    Ok(inputs.into_iter().zip(own).map(new).collect())
}
