//! Submissions in pieces, on a database of their own.

use std::{path::Path, sync::Arc};

use agenix_protocol::{
    documents::{self, ActionSubmission, Plan},
    ids::ActionId,
    request::Slice,
};
use agenix_rules::action::Action;

use super::{Abandoned, arriving, begun, finish, pieces};
use crate::{
    audit::Audit,
    clock::Clock,
    commands::{action::submit_action, plan},
    config,
    error::CommandError,
    furnish::furnish,
    house::House,
    store::{NoteKind, Opening, Store, redb::RedbStore},
};

const PLAN: &[u8] = br#"{"plan_id":"p","tasks":[{"task_number":1,"command":"true"}]}"#;

/// A house of which one write stores two inputs.
async fn open(dir: &Path) -> Arc<House> {
    let mut settings = config::default_settings().unwrap();
    settings.inputs_at_once = 2;
    let store: Arc<dyn Store> = Arc::new(RedbStore::open(&dir.join("agq.redb"), Opening::default()).unwrap());
    let (house, _works) = furnish(store, Clock::default(), Audit::open(None).unwrap(), settings);
    plan::submit(&house, PLAN).await.unwrap();
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
    let dir = tempfile::tempdir().unwrap();
    let house = open(dir.path()).await;
    begin(&house, five()).await;
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
    let dir = tempfile::tempdir().unwrap();
    let house = open(dir.path()).await;
    begin(&house, five()).await;
    let id = id();
    let (one, other) = futures_util::join!(finish(&house, &id), finish(&house, &id));
    assert!(one.is_ok() && other.is_ok());
    assert_whole(&house).await;
}

#[tokio::test]
async fn the_same_submission_finishes_what_was_begun() {
    let dir = tempfile::tempdir().unwrap();
    let house = open(dir.path()).await;
    begin(&house, five()).await;
    assert_eq!(submit_action(&house, five()).await.unwrap(), (id(), 5));
    assert_whole(&house).await;
}

#[tokio::test]
async fn a_close_and_an_addition_come_after_the_whole_submission() {
    let dir = tempfile::tempdir().unwrap();
    let house = open(dir.path()).await;
    begin(&house, five()).await;
    let more = five().inputs;
    assert!(super::super::action::add_inputs(&house, &id(), more, None).await.is_err(), "it is not open");
    assert_whole(&house).await;
    let open = submission(r#","open":true"#, r#"{"n":0},{"n":1},{"n":2},{"n":3},{"n":4}"#);
    let open = ActionSubmission { action_id: Some(ActionId::new("b").unwrap()), ..open };
    submit_action(&house, open).await.unwrap();
    let b = ActionId::new("b").unwrap();
    let total = super::super::action::add_inputs(&house, &b, five().inputs, None).await.unwrap();
    assert_eq!(total, 10);
}

#[tokio::test]
async fn a_plan_stays_while_inputs_are_still_to_be_stored() {
    let dir = tempfile::tempdir().unwrap();
    let house = open(dir.path()).await;
    begin(&house, five()).await;
    assert!(plan::delete(&house, &"p".parse().unwrap()).await.is_err());
    assert_whole(&house).await;
}
