//! Tests of submissions in chunks.

use std::{path::Path, sync::Arc};

use agenix_protocol::{
    documents::{self, ActionSubmission, ApprovalState, Plan, Status},
    ids::ActionId,
    request::Slice,
};
use agenix_rules::{
    action::{Action, closed, halt::Halted},
    rejection::Rejection,
};

use super::{
    InputChunk, StalledSubmissions, begun, chunks, finish, finish_all_of, pending_submissions, store,
};
use crate::{
    app::{AppState, PlanPolicy, Submitter},
    auth::keyring::{Identity, Role},
    error::CommandError,
    service::{
        action_changes,
        action_submission::{add_inputs, submit as submit_action},
        actions, approval_decisions, approvals, plans,
    },
    startup::services::{with_policy, without_tasks},
    store::{ActionRule, AddOutcome, DocumentChange, DocumentKind},
};

const PLAN: &[u8] = br#"{"plan_id":"p","tasks":[{"task_number":1,"command":"true"}]}"#;

/// Opens a store of which one write stores two inputs.
async fn open(dir: &Path) -> Arc<AppState> {
    let app = without_tasks(dir, |settings| settings.inputs_at_once = 2);
    // The plan exists if the database is opened again.
    let _may_exist = plans::submit(&app, Submitter::NOBODY, PLAN).await;
    app
}

/// Returns the plan, the action, and five inputs in chunks of two, none of which is stored.
fn unsubmitted(app: &AppState) -> (Plan, Action, Vec<InputChunk>) {
    let action = Action::new(id(), "p".parse().unwrap(), app.clock.now());
    let Ok(chunks) = chunks(five().inputs, 2) else { panic!("one chunk") };
    (documents::parse(PLAN).unwrap(), action, chunks)
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

async fn action(app: &AppState) -> Action {
    app.store.action(&id()).await.unwrap().unwrap().0
}

/// Returns the inputs of the action, in the order of its jobs.
async fn inputs(app: &AppState) -> Vec<String> {
    let mut inputs = Vec::new();
    for job_id in app.store.jobs_of(&id(), Vec::new(), Slice::ALL).await.unwrap() {
        inputs.push(app.store.job(&job_id).await.unwrap().unwrap().input);
    }
    inputs
}

/// Makes only the first write of a submission, as if agq crashed after it.
async fn begin(app: &AppState, submission: ActionSubmission) {
    begin_as(app, id(), submission).await;
}

async fn begin_as(app: &AppState, action_id: ActionId, submission: ActionSubmission) {
    let plan: Plan = documents::parse(PLAN).unwrap();
    let action = Action::new(action_id, submission.plan_id, app.clock.now());
    let Ok(chunks) = chunks(submission.inputs, 2) else { panic!("one chunk") };
    app.store.add_action(begun(app, (&action, false), &plan, &chunks).unwrap()).await.unwrap().unwrap();
}

/// Opens a store with an interrupted submission of five inputs.
async fn interrupted_submission() -> (tempfile::TempDir, Arc<AppState>) {
    let dir = tempfile::tempdir().unwrap();
    let app = open(dir.path()).await;
    begin(&app, five()).await;
    (dir, app)
}

/// Closes an action without a check of its submission, as an earlier version of agq does.
fn closing() -> ActionRule {
    Box::new(|action: Option<&Action>| Ok(action.and_then(closed)))
}

/// Makes the rounds of the reaper after which a stalled submission is continued.
async fn continue_stalled(app: &AppState) {
    let mut stalled = StalledSubmissions::default();
    for _round in 0..2 {
        stalled.continue_stalled(app).await.unwrap();
    }
}

async fn assert_whole(app: &AppState) {
    let expected: Vec<_> = (0..5).map(|n| format!(r#"{{"n":{n}}}"#)).collect();
    assert_eq!(inputs(app).await, expected);
    let action = action(app).await;
    assert_eq!((action.total_jobs, action.is_open), (5, false));
    assert!(pending_submissions(app).await.unwrap().is_empty());
    assert!(!app.store.has_documents(DocumentKind::Inputs).await.unwrap());
}

#[tokio::test]
async fn rejected_plan_ends_a_chunked_submission() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("policy.toml");
    std::fs::write(&file, "version = 1\n[tools.true]\nlike = 'true'\nask = true").unwrap();
    let policy = PlanPolicy::read(Some(&file)).unwrap();
    let app = with_policy(dir.path(), policy, |settings| settings.inputs_at_once = 2);
    plans::submit(&app, Submitter::NOBODY, PLAN).await.unwrap();
    let plan_id = "p".parse().unwrap();
    assert!(approvals::is_staged(&app, None, (&plan_id, &id()), 5).await.unwrap());
    begin(&app, five()).await;
    let approval = approvals::of_plan(&app, &plan_id).await.unwrap().unwrap();
    let decider = Identity::new(Role::Admin, "alice");
    let decision = (approval.digest.as_str(), Some(&decider));
    approval_decisions::decide(&app, &plan_id, ApprovalState::Rejected, decision).await.unwrap();
    // The chunks that had not arrived are not added, and nothing waits for them.
    assert_eq!(action(&app).await.total_jobs, 2);
    assert!(pending_submissions(&app).await.unwrap().is_empty());
    finish_all_of(&app, &plan_id).await.unwrap();
    assert!(app.store.jobs_of(&id(), vec![Status::Pending], Slice::ALL).await.unwrap().is_empty());
    assert!(plans::delete(&app, Submitter::NOBODY, &plan_id).await.unwrap());
}

#[tokio::test]
async fn chunked_submission_is_complete_and_idempotent() {
    let dir = tempfile::tempdir().unwrap();
    let app = open(dir.path()).await;
    for _again in 0..2 {
        assert_eq!(submit_action(&app, Submitter::NOBODY, five()).await.unwrap(), (id(), 5));
        assert_whole(&app).await;
    }
    let refused = [
        submission("", r#"{"n":0},{"n":1},{"n":2},{"n":3},{"n":5}"#),
        submission("", r#"{"n":0},{"n":1},{"n":2},{"n":3},{"n":4},{"n":5}"#),
        submission("", r#"{"n":0},{"n":1},{"n":2},{"n":3}"#),
        submission(r#","priority":1"#, r#"{"n":0},{"n":1},{"n":2},{"n":3},{"n":4}"#),
    ];
    for other in refused {
        let refusal = submit_action(&app, Submitter::NOBODY, other).await;
        assert!(matches!(refusal, Err(CommandError::Rejected(_))), "{refusal:?}");
        assert_whole(&app).await;
    }
}

#[tokio::test]
async fn chunked_submission_continues_after_a_restart() {
    let (dir, app) = interrupted_submission().await;
    drop(app);
    let app = open(dir.path()).await;
    let begun = action(&app).await;
    assert_eq!((begun.total_jobs, begun.is_open), (2, true));
    let mut stalled = StalledSubmissions::default();
    stalled.continue_stalled(&app).await.unwrap();
    assert_eq!(action(&app).await.total_jobs, 2, "another task may be storing the rest");
    stalled.continue_stalled(&app).await.unwrap();
    assert_whole(&app).await;
}

#[tokio::test]
async fn chunked_submission_finished_by_two_tasks_adds_inputs_once() {
    let (_dir, app) = interrupted_submission().await;
    let id = id();
    let (one, other) = futures_util::join!(finish(&app, &id), finish(&app, &id));
    assert!(one.is_ok() && other.is_ok());
    assert_whole(&app).await;
}

#[tokio::test]
async fn chunked_submission_that_is_repeated_finishes_the_first_one() {
    let (_dir, app) = interrupted_submission().await;
    assert_eq!(submit_action(&app, Submitter::NOBODY, five()).await.unwrap(), (id(), 5));
    assert_whole(&app).await;
}

#[tokio::test]
async fn chunked_submission_to_a_halted_action_stores_no_further_chunk() {
    let dir = tempfile::tempdir().unwrap();
    let app = open(dir.path()).await;
    let halting = || submission(r#","halt":"soon,fail=1""#, r#"{"n":0}, {"n":1},{"n":2},{"n":3},{"n":4}"#);
    let halt = halting().halt;
    begin(&app, halting()).await;
    let at = app.clock.now();
    let halted = Halted { at, completed: 0, failed: 1, total: 2 };
    let rule: ActionRule = Box::new(move |action: Option<&Action>| {
        Ok(action.map(|action| Action { is_open: false, halt, halted: Some(halted), ..action.clone() }))
    });
    app.store.decide_action(&id(), rule).await.unwrap().unwrap();
    finish_all_of(&app, &"p".parse().unwrap()).await.unwrap();
    assert!(pending_submissions(&app).await.unwrap().is_empty() && inputs(&app).await.len() == 2);
    assert!(!app.store.has_documents(DocumentKind::Inputs).await.unwrap());
    assert_eq!(
        submit_action(&app, Submitter::NOBODY, halting()).await.unwrap(),
        (id(), 2),
        "the same submission again"
    );
}

#[tokio::test]
async fn chunked_submission_is_complete_although_its_action_is_closed_during_the_first_write() {
    let dir = tempfile::tempdir().unwrap();
    let app = open(dir.path()).await;
    let (plan, action, chunks) = unsubmitted(&app);
    // The first write is submitted, and not visible yet.
    let first = app.store.add_action(begun(&app, (&action, false), &plan, &chunks).unwrap());
    let id = id();
    let (added, _closed_or_not_found) = futures_util::join!(first, action_changes::close(&app, &id));
    assert_eq!(added.unwrap().unwrap(), AddOutcome::New);
    finish(&app, &id).await.unwrap();
    assert_whole(&app).await;
}

#[tokio::test]
async fn chunked_submission_whose_action_was_closed_ends_and_blocks_no_other_one() {
    let (_dir, app) = interrupted_submission().await;
    app.store.decide_action(&id(), closing()).await.unwrap().unwrap();
    let other = ActionId::new("b").unwrap();
    begin_as(&app, other.clone(), five()).await;
    continue_stalled(&app).await;
    assert!(pending_submissions(&app).await.unwrap().is_empty());
    assert!(!app.store.has_documents(DocumentKind::Inputs).await.unwrap());
    assert_eq!(action(&app).await.total_jobs, 2);
    assert_eq!(app.store.action(&other).await.unwrap().unwrap().0.total_jobs, 5);
    for action_id in [id(), other] {
        actions::cancel(&app, &action_id).await.unwrap();
    }
    assert!(plans::delete(&app, Submitter::NOBODY, &"p".parse().unwrap()).await.unwrap());
}

#[tokio::test]
async fn chunked_submission_whose_action_is_closed_meanwhile_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let app = open(dir.path()).await;
    let (plan, action, chunks) = unsubmitted(&app);
    let submitted = store(&app, action, &plan, &chunks, 5, |_| None);
    // This future is polled second, so that it closes the action behind the first write.
    let closed = async { app.store.decide_action(&id(), closing()).await };
    let (submitted, closed) = futures_util::join!(submitted, closed);
    closed.unwrap().unwrap();
    assert!(matches!(submitted, Err(CommandError::Rejected(Rejection::ActionNotOpen(_)))), "{submitted:?}");
    assert!(pending_submissions(&app).await.unwrap().is_empty());
}

#[tokio::test]
async fn chunked_submission_is_answered_although_the_store_fails_after_the_first_write() {
    let dir = tempfile::tempdir().unwrap();
    let app = open(dir.path()).await;
    let (plan, action, chunks) = unsubmitted(&app);
    let submitted = store(&app, action, &plan, &chunks, 5, |_| None);
    // This future is polled second, so that the chunks are unreadable behind the first write.
    let damaged = async {
        let damage = Box::new(|_: Option<&str>| Ok(DocumentChange::Put("?".into())));
        app.store.update_document(DocumentKind::Arriving, id().as_str(), damage).await
    };
    let (submitted, damaged) = futures_util::join!(submitted, damaged);
    damaged.unwrap().unwrap();
    assert_eq!(submitted.unwrap(), (5, false));
}

#[tokio::test]
async fn chunked_submission_that_cannot_be_read_blocks_no_other_one() {
    let (_dir, app) = interrupted_submission().await;
    let damage = Box::new(|_: Option<&str>| Ok(DocumentChange::Put("?".into())));
    app.store.update_document(DocumentKind::Arriving, id().as_str(), damage).await.unwrap().unwrap();
    let other = ActionId::new("b").unwrap();
    begin_as(&app, other.clone(), five()).await;
    continue_stalled(&app).await;
    assert_eq!(app.store.action(&other).await.unwrap().unwrap().0.total_jobs, 5);
    let unused = br#"{"plan_id":"q","tasks":[{"task_number":1,"command":"true"}]}"#;
    plans::submit(&app, Submitter::NOBODY, unused).await.unwrap();
    assert!(plans::delete(&app, Submitter::NOBODY, &"q".parse().unwrap()).await.unwrap());
}

#[tokio::test]
async fn chunked_submission_is_complete_before_inputs_are_added() {
    let (_dir, app) = interrupted_submission().await;
    assert!(add_inputs(&app, Submitter::NOBODY, &id(), five().inputs, None).await.is_err(), "it is not open");
    assert_whole(&app).await;
    let open = submission(r#","open":true"#, r#"{"n":0},{"n":1},{"n":2},{"n":3},{"n":4}"#);
    let open = ActionSubmission { action_id: Some(ActionId::new("b").unwrap()), ..open };
    submit_action(&app, Submitter::NOBODY, open).await.unwrap();
    let b = ActionId::new("b").unwrap();
    assert_eq!(add_inputs(&app, Submitter::NOBODY, &b, five().inputs, None).await.unwrap(), 10);
}

#[tokio::test]
async fn chunked_submission_prevents_the_deletion_of_its_plan() {
    let (_dir, app) = interrupted_submission().await;
    assert!(plans::delete(&app, Submitter::NOBODY, &"p".parse().unwrap()).await.is_err());
    assert_whole(&app).await;
}

#[tokio::test]
async fn chunked_submission_has_all_concurrency_keys_or_no_job() {
    let dir = tempfile::tempdir().unwrap();
    let app = open(dir.path()).await;
    let submit = async |key: &str, inputs: &str| {
        let concurrency = format!(r#","open":true,"concurrency":{{"key":"{key}","max_running":2}}"#);
        let submitted = submit_action(&app, Submitter::NOBODY, submission(&concurrency, inputs)).await;
        submitted.map_err(|error| error.to_string())
    };
    let refused = submit("n:{{input.n}}", r#"{"n":0},{"n":1},{"n":1},{"m":3}"#).await.unwrap_err();
    assert!(refused.contains("inputs[3] has no field 'n', which concurrency.key uses"), "{refused}");
    assert!(app.store.action(&id()).await.unwrap().is_none());
    let inputs = r#"{"n":0},{"n":1},{"n":1},{"n":0}"#;
    for _again in 0..2 {
        assert_eq!(submit("n:{{input.n}}", inputs).await, Ok((id(), 4)));
    }
    assert!(submit("{{input.n}}", inputs).await.unwrap_err().contains("already exists"));
    let more = |inputs: &str| submission("", inputs).inputs;
    let add = async |inputs| add_inputs(&app, Submitter::NOBODY, &id(), inputs, Some(4)).await;
    assert!(add(more(r#"{"n":1},{"m":1}"#)).await.is_err());
    assert_eq!(add(more(r#"{"n":1}"#)).await.unwrap(), 5);
    let mut keys = Vec::new();
    for job_id in app.store.jobs_of(&id(), Vec::new(), Slice::ALL).await.unwrap() {
        keys.extend(app.store.job(&job_id).await.unwrap().unwrap().needs.limit);
    }
    assert_eq!(keys, [0, 1, 1, 0, 1].map(|n| format!("concurrency:::n:{n}")));
}
