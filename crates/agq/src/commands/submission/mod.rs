//! A submission of many inputs, stored in pieces, because a write that is long keeps all others waiting (ADR 19).
//!
//! One write stores the action with the jobs of the first piece, and the texts of the other pieces as notes. From then on the
//! submission is certain. Each further write makes the jobs of one piece. Anybody may make them, and may begin again after a crash,
//! because a piece that is there already adds nothing.

mod pieces;

use std::{cmp::Ordering, collections::HashMap, mem::take};

use agenix_protocol::{
    documents::{Plan, to_json},
    ids::ActionId,
};
use agenix_rules::{
    action::{self, Action},
    job::JobParams,
    plan,
    rejection::Rejection,
};
use serde::{Deserialize, Serialize};

use super::{action::new_jobs, plan::find};
use crate::{
    app::House,
    error::CommandError,
    store::{ActionRule, Added, MoreJobs, NewAction, NoteChange, NoteKind, StoreError},
};
pub(super) use pieces::pieces;
use pieces::{Piece, inputs_of, name};

/// Number of pieces that one round of the reaper stores of a submission that nobody else stores.
const PIECES_A_ROUND: usize = 100;

/// Note on a submission of which inputs are still to be stored.
#[derive(Serialize, Deserialize)]
struct Arriving {
    /// Whether the action is to be open afterwards.
    open: bool,
    /// Places of the pieces behind the first piece.
    places: Vec<u64>,
}

/// Stores an action of which `pieces` are the inputs, `count` in all, and returns the number of its jobs. That is less than
/// `count` if the action halts meanwhile. The same submission again stores nothing.
pub(super) async fn store(
    house: &House,
    action: Action,
    plan: &Plan,
    pieces: &[Piece],
    count: usize,
) -> Result<usize, CommandError> {
    let added = house.store.add_action(begun(house, &action, plan, pieces)?).await??;
    finish(house, &action.action_id).await?;
    let known = house.store.action(&action.action_id).await?.map(|(known, _)| known);
    let stored = match known.as_ref().filter(|known| known.halted.is_some()) {
        Some(halted) => count.min(usize::try_from(halted.total_jobs).unwrap_or(usize::MAX)),
        None => count,
    };
    let is_stored = match known {
        _ if added == Added::New => true,
        Some(known) => is_stored(house, &known, &action, plan, pieces, count).await?,
        None => false,
    };
    if is_stored { Ok(stored) } else { Err(Rejection::ActionExists(action.action_id).into()) }
}

/// Returns what the first write stores: the jobs of the first piece, and notes on the others.
fn begun(house: &House, action: &Action, plan: &Plan, pieces: &[Piece]) -> Result<NewAction, CommandError> {
    let places = pieces.iter().skip(1).map(|piece| piece.place).collect();
    let note = to_json(&Arriving { open: action.is_open, places });
    let mut notes = vec![(NoteKind::Arriving, action.action_id.to_string(), note)];
    notes.extend(
        pieces
            .iter()
            .skip(1)
            .map(|piece| (NoteKind::Inputs, name(&action.action_id, piece.place), piece.json.clone())),
    );
    Ok(NewAction {
        needs: plan::needs(plan),
        terms: JobParams::of(action, plan, house.settings.job_timeout_ms, action.created_at),
        jobs: pieces
            .first()
            .map_or(Ok(Vec::new()), |piece| inputs_of(&piece.json))
            .map(|inputs| new_jobs(house, inputs))?,
        // It stays so until its last input is stored.
        action: Action { is_open: true, ..action.clone() },
        notes,
    })
}

/// Returns whether the action `known` came from the same submission as `action`.
async fn is_stored(
    house: &House,
    known: &Action,
    action: &Action,
    plan: &Plan,
    pieces: &[Piece],
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
        match add_piece(house, known, plan, piece).await {
            Ok(_) => {}
            Err(CommandError::Rejected(_)) => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// Stores what is left of the submission of an action, if anything is left.
pub(super) async fn finish(house: &House, action_id: &ActionId) -> Result<(), CommandError> {
    store_pieces(house, action_id, usize::MAX).await
}

/// Stores what is left of all submissions.
pub(super) async fn finish_all(house: &House) -> Result<(), CommandError> {
    for action_id in arriving(house).await? {
        finish(house, &action_id).await?;
    }
    Ok(())
}

/// Submissions that had inputs left at the last round of the reaper, with the number of jobs that their actions had then.
#[derive(Default)]
pub(crate) struct Abandoned(HashMap<ActionId, u64>);

impl Abandoned {
    /// Stores the next pieces of the submissions that have not grown since the last round: whoever stored them has ended.
    pub(crate) async fn look_after(&mut self, house: &House) -> Result<(), CommandError> {
        let before = take(&mut self.0);
        for action_id in arriving(house).await? {
            let found = house.store.action(&action_id).await?;
            let total_jobs = found.map_or(0, |(action, _)| action.total_jobs);
            if before.get(&action_id) == Some(&total_jobs) {
                store_pieces(house, &action_id, PIECES_A_ROUND).await?;
            }
            self.0.insert(action_id, total_jobs);
        }
        Ok(())
    }
}

/// Returns the actions of which inputs are still to be stored.
async fn arriving(house: &House) -> Result<Vec<ActionId>, CommandError> {
    if !house.store.has_notes(NoteKind::Arriving).await? {
        return Ok(Vec::new());
    }
    let notes = house.store.notes(NoteKind::Arriving).await?;
    Ok(notes.into_iter().filter_map(|(id, _)| ActionId::new(id).ok()).collect())
}

async fn store_pieces(house: &House, action_id: &ActionId, most: usize) -> Result<(), CommandError> {
    let Some(note) = house.store.note(NoteKind::Arriving, action_id.as_str()).await? else { return Ok(()) };
    let arriving: Arriving = serde_json::from_str(&note)
        .map_err(|error| StoreError(format!("the submission of {action_id} cannot be read: {error}")))?;
    let Some((action, _)) = house.store.action(action_id).await? else {
        return settle(house, action_id, &arriving).await;
    };
    if action.halted.is_some() {
        // A halted action takes no more inputs.
        return settle(house, action_id, &arriving).await;
    }
    let left: Vec<u64> =
        arriving.places.iter().copied().filter(|place| *place >= action.total_jobs).collect();
    for &place in left.iter().take(most) {
        let Some(json) = house.store.note(NoteKind::Inputs, &name(action_id, place)).await? else {
            // Somebody else has stored all of it meanwhile.
            return Ok(());
        };
        let plan = find(house, &action.plan_id).await?;
        match add_piece(house, &action, &plan, &Piece { place, json }).await {
            Err(CommandError::Rejected(Rejection::ActionHalted { .. })) => break,
            added => added?,
        };
    }
    if left.len() > most { Ok(()) } else { settle(house, action_id, &arriving).await }
}

/// Adds the inputs of a piece to an action, unless they are there.
async fn add_piece(house: &House, action: &Action, plan: &Plan, piece: &Piece) -> Result<u64, CommandError> {
    let now = house.clock.now();
    let more = MoreJobs {
        at: Some(piece.place),
        needs: plan::needs(plan),
        terms: JobParams::of(action, plan, house.settings.job_timeout_ms, now),
        jobs: new_jobs(house, inputs_of(&piece.json)?),
        now,
        action_id: action.action_id.clone(),
    };
    Ok(house.store.add_jobs(more).await??)
}

/// Ends a submission. The note on it goes last, so that what a crash leaves is done again.
async fn settle(house: &House, action_id: &ActionId, arriving: &Arriving) -> Result<(), CommandError> {
    if !arriving.open {
        let rule: ActionRule = Box::new(|action: Option<&Action>| Ok(action.and_then(action::closed)));
        house.store.decide_action(action_id, rule).await??;
    }
    let remove = |kind, id: &str| house.store.decide_note(kind, id, Box::new(|_| Ok(NoteChange::Remove)));
    let pieces: Vec<_> =
        arriving.places.iter().map(|place| remove(NoteKind::Inputs, &name(action_id, *place))).collect();
    for answer in pieces {
        answer.await??;
    }
    Ok(remove(NoteKind::Arriving, action_id.as_str()).await??)
}

#[cfg(test)]
mod tests {
    use std::{path::Path, sync::Arc};

    use agenix_protocol::{
        documents::{self, ActionSubmission, Plan},
        ids::ActionId,
        request::Slice,
    };
    use agenix_rules::action::{Action, halt::Halted};

    use super::{Abandoned, arriving, begun, finish, finish_all, pieces};
    use crate::app::House;
    use crate::auth::audit_log::Audit;
    use crate::clock::Clock;
    use crate::commands::{
        action::{add_inputs, submit_action},
        plan,
    };
    use crate::config;
    use crate::error::CommandError;
    use crate::startup::services::furnish;
    use crate::store::{ActionRule, NoteKind, Opening, Store, redb::RedbStore};

    const PLAN: &[u8] = br#"{"plan_id":"p","tasks":[{"task_number":1,"command":"true"}]}"#;

    /// A house of which one write stores two inputs.
    async fn open(dir: &Path) -> Arc<House> {
        let mut settings = config::default_settings().unwrap();
        settings.inputs_at_once = 2;
        let store: Arc<dyn Store> =
            Arc::new(RedbStore::open(&dir.join("agq.redb"), Opening::default()).unwrap());
        let (house, _works) = furnish(store, Clock::default(), Audit::open(None).unwrap(), settings);
        // It is there already where the database is opened again.
        let _is_there = plan::submit(&house, PLAN).await;
        house
    }

    fn submission(more: &str, inputs: &str) -> ActionSubmission {
        let json = format!(r#"{{"action_id":"a","plan_id":"p","inputs":[{inputs}]{more}}}"#);
        documents::parse_object(json.as_bytes()).unwrap()
    }

    fn five() -> ActionSubmission {
        submission("", r#"{"n":0}, {"n":1},{"n":2},{"n":3},{"n":4}"#)
    }

    fn id() -> ActionId {
        ActionId::new("a").unwrap()
    }

    async fn action(house: &House) -> Action {
        house.store.action(&id()).await.unwrap().unwrap().0
    }

    /// The inputs of the action, in the order of its jobs.
    async fn inputs(house: &House) -> Vec<String> {
        let mut inputs = Vec::new();
        for job_id in house.store.jobs_of(&id(), Vec::new(), Slice::ALL).await.unwrap() {
            inputs.push(house.store.job(&job_id).await.unwrap().unwrap().input);
        }
        inputs
    }

    /// Writes what the first write of a submission writes, and nothing more, as a crash behind it would leave it.
    async fn begin(house: &House, submission: ActionSubmission) {
        let plan: Plan = documents::parse(PLAN).unwrap();
        let action = Action::new(id(), submission.plan_id, house.clock.now());
        let Ok(pieces) = pieces(submission.inputs, 2) else { panic!("one piece") };
        house.store.add_action(begun(house, &action, &plan, &pieces).unwrap()).await.unwrap().unwrap();
    }

    /// A house in which the submission of five inputs is begun.
    async fn begun_house() -> (tempfile::TempDir, Arc<House>) {
        let dir = tempfile::tempdir().unwrap();
        let house = open(dir.path()).await;
        begin(&house, five()).await;
        (dir, house)
    }

    async fn assert_whole(house: &House) {
        let expected: Vec<_> = (0..5).map(|n| format!(r#"{{"n":{n}}}"#)).collect();
        assert_eq!(inputs(house).await, expected);
        let action = action(house).await;
        assert_eq!((action.total_jobs, action.is_open), (5, false));
        assert!(arriving(house).await.unwrap().is_empty());
        assert!(!house.store.has_notes(NoteKind::Inputs).await.unwrap());
    }

    #[tokio::test]
    async fn a_submission_in_pieces_is_whole_and_the_same_again_adds_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let house = open(dir.path()).await;
        for _again in 0..2 {
            assert_eq!(submit_action(&house, five()).await.unwrap(), (id(), 5));
            assert_whole(&house).await;
        }
        let refused = [
            submission("", r#"{"n":0},{"n":1},{"n":2},{"n":3},{"n":5}"#),
            submission("", r#"{"n":0},{"n":1},{"n":2},{"n":3},{"n":4},{"n":5}"#),
            submission("", r#"{"n":0},{"n":1},{"n":2},{"n":3}"#),
            submission(r#","priority":1"#, r#"{"n":0},{"n":1},{"n":2},{"n":3},{"n":4}"#),
        ];
        for other in refused {
            let refusal = submit_action(&house, other).await;
            assert!(matches!(refusal, Err(CommandError::Rejected(_))), "{refusal:?}");
            assert_whole(&house).await;
        }
    }

    #[tokio::test]
    async fn what_a_crash_interrupted_is_stored_after_a_restart() {
        let (dir, house) = begun_house().await;
        drop(house);
        let house = open(dir.path()).await;
        let begun = action(&house).await;
        assert_eq!((begun.total_jobs, begun.is_open), (2, true));
        let mut abandoned = Abandoned::default();
        abandoned.look_after(&house).await.unwrap();
        assert_eq!(action(&house).await.total_jobs, 2, "somebody may be storing the rest");
        abandoned.look_after(&house).await.unwrap();
        assert_whole(&house).await;
    }

    #[tokio::test]
    async fn two_that_finish_a_submission_add_its_inputs_once() {
        let (_dir, house) = begun_house().await;
        let id = id();
        let (one, other) = futures_util::join!(finish(&house, &id), finish(&house, &id));
        assert!(one.is_ok() && other.is_ok());
        assert_whole(&house).await;
    }

    #[tokio::test]
    async fn the_same_submission_finishes_what_was_begun() {
        let (_dir, house) = begun_house().await;
        assert_eq!(submit_action(&house, five()).await.unwrap(), (id(), 5));
        assert_whole(&house).await;
    }

    #[tokio::test]
    async fn a_halted_action_takes_no_further_piece() {
        let dir = tempfile::tempdir().unwrap();
        let house = open(dir.path()).await;
        let halting =
            || submission(r#","halt":"soon,fail=1""#, r#"{"n":0}, {"n":1},{"n":2},{"n":3},{"n":4}"#);
        let halt = halting().halt;
        begin(&house, halting()).await;
        let at = house.clock.now();
        let halted = Halted { at, completed: 0, failed: 1, total: 2 };
        let rule: ActionRule = Box::new(move |action: Option<&Action>| {
            Ok(action.map(|action| Action { is_open: false, halt, halted: Some(halted), ..action.clone() }))
        });
        house.store.decide_action(&id(), rule).await.unwrap().unwrap();
        finish_all(&house).await.unwrap();
        assert!(arriving(&house).await.unwrap().is_empty() && inputs(&house).await.len() == 2);
        assert!(!house.store.has_notes(NoteKind::Inputs).await.unwrap());
        assert_eq!(submit_action(&house, halting()).await.unwrap(), (id(), 2), "the same submission again");
    }

    #[tokio::test]
    async fn an_addition_comes_after_the_whole_submission() {
        let (_dir, house) = begun_house().await;
        assert!(add_inputs(&house, &id(), five().inputs, None).await.is_err(), "it is not open");
        assert_whole(&house).await;
        let open = submission(r#","open":true"#, r#"{"n":0},{"n":1},{"n":2},{"n":3},{"n":4}"#);
        let open = ActionSubmission { action_id: Some(ActionId::new("b").unwrap()), ..open };
        submit_action(&house, open).await.unwrap();
        let b = ActionId::new("b").unwrap();
        assert_eq!(add_inputs(&house, &b, five().inputs, None).await.unwrap(), 10);
    }

    #[tokio::test]
    async fn a_plan_stays_while_inputs_are_still_to_be_stored() {
        let (_dir, house) = begun_house().await;
        assert!(plan::delete(&house, &"p".parse().unwrap()).await.is_err());
        assert_whole(&house).await;
    }
}
