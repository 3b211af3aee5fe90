//! Tests of workflows.

use std::sync::Arc;

use agenix_protocol::{
    blob::BlobHash,
    blob_blocks::BlockSums,
    documents::{CapturedOutput, JobUpdate, Status, TaskResult, parse, to_json},
    ids::{ActionId, JobId, PlanId},
    request::Slice,
};
use agenix_rules::{
    blob::StoredBlob,
    capability::ClaimantCapabilities,
    workflow::{StepObservation, StepState, Workflow, WorkflowStep},
};
use bytes::Bytes;

use super::{advance_all, cancel, finalize, get, observe_step, put, submit, submit_steps};
use crate::{
    app::{AppState, Caller, Submitter},
    blobs::{BlobFile, directory::BlobDirectory},
    service::{jobs, plans, queues, step_outputs::MAX_HANDED_ON_BYTES},
    startup::services::without_tasks,
    store::{Claimant, DocumentKind, StoredPlan},
};

/// Opens an empty agq with the plans `first` and `second`.
async fn open() -> (tempfile::TempDir, Arc<AppState>) {
    let dir = tempfile::tempdir().unwrap();
    let app = without_tasks(dir.path(), |_| {});
    for name in ["first", "second"] {
        let plan = format!(r#"{{"plan_id":"{name}","tasks":[{{"task_number":1,"command":"true"}}]}}"#);
        plans::submit(&app, Submitter::NOBODY, plan.as_bytes()).await.unwrap();
    }
    (dir, app)
}

/// Chain whose second step gets the outputs of the first one.
const CHAIN: &str = r#"{"type":"chain","steps":[{"plan_id":"first","inputs":[{}]},{"plan_id":"second"}]}"#;

/// Returns a group of two such chains.
fn group() -> String {
    format!(r#"{{"type":"group","jobs":[{CHAIN},{CHAIN}]}}"#)
}

/// Submits a workflow, and returns its id.
async fn begin(app: &AppState, workflow: &str) -> String {
    submit(app, None, parse(workflow.as_bytes()).unwrap()).await.unwrap().id
}

/// Claims the next job, and completes it with `stdout`.
async fn complete_next(app: &AppState, stdout: CapturedOutput) {
    let caller = Caller::new("connection:1".into(), 1, "test", None);
    let claimant = Claimant {
        holder: Arc::clone(&caller.connection),
        capabilities: Arc::new(ClaimantCapabilities::Anything),
        queues: Arc::new(["ready".to_owned()]),
        share_terms: Arc::default(),
        visibility_ms: None,
    };
    let claim = app.waiters.jobs_now(&claimant, 1).await.unwrap().pop().expect("a job is ready").take();
    let update: JobUpdate = parse(br#"{"status":"completed","attempt":1}"#).unwrap();
    let results = to_json(&[TaskResult { task_number: 1, stdout, ..TaskResult::default() }]);
    jobs::report(app, &caller, &claim.job.job_id, update, Some(results)).await.unwrap();
}

/// Stores a blob, and returns a stream with this content.
async fn large_output(app: &AppState, content: &[u8]) -> CapturedOutput {
    let storage = app.blobs.as_ref().unwrap();
    let (hash, mut sums) = (BlobHash::of(content), BlockSums::default());
    sums.add(content);
    let file = [content, &*sums.finish()].concat();
    storage.write("upload", 0, Bytes::from(file)).await.unwrap();
    storage.publish("upload", &BlobFile { hash, suffix: "s".into() }).await.unwrap();
    let (total, bytes) = (content.len() as u64, content[..10].to_vec());
    let record = to_json(&StoredBlob::new(total, "s", app.clock.now()));
    put(app, DocumentKind::Blob, &hash.to_string(), record).await.unwrap();
    CapturedOutput { bytes, total, blob: Some(hash) }
}

/// Returns the steps of the nested workflow that is step `at`.
fn nested(workflow: &Workflow, at: usize) -> &[WorkflowStep] {
    &workflow.steps[at].nested.as_ref().unwrap().steps
}

async fn is_submitted(app: &AppState, step: &WorkflowStep) -> bool {
    app.store.action(&ActionId::new(step.id.as_str()).unwrap()).await.unwrap().is_some()
}

/// Returns the input of the first job of an action.
async fn input_of(app: &AppState, step: &WorkflowStep) -> String {
    let action_id = ActionId::new(step.id.as_str()).unwrap();
    let jobs = app.store.jobs_of(&action_id, Vec::new(), Slice::ALL).await.unwrap();
    app.store.job(&jobs[0]).await.unwrap().unwrap().input
}

#[tokio::test]
async fn workflow_that_a_retry_has_resumed_stays_in_the_list_of_running_ones() {
    let dir = tempfile::tempdir().unwrap();
    let app = without_tasks(dir.path(), |_| {});
    let id = begin(&app, r#"{"steps":[{"type":"a","args":[]},{"type":"b","args":[]}]}"#).await;
    assert!(!get(&app, &id).await.unwrap().has_all_ended());
    // As if the reaper had seen that the workflow has ended, before a retry resumed the workflow.
    finalize(&app, &id).await.unwrap();
    assert_eq!(app.store.documents(DocumentKind::Running).await.unwrap().len(), 1);
    drop(cancel(&app, &id).await.unwrap());
    assert!(app.store.documents(DocumentKind::Running).await.unwrap().is_empty());
}

#[tokio::test]
async fn step_does_not_fail_because_its_own_job_fills_the_queue() {
    let (_dir, app) = open().await;
    let bound = parse(br#"{"backpressure":{"max_depth":1}}"#).unwrap();
    queues::configure(&app, "ready", bound).await.unwrap();
    let chain = r#"{"steps":[{"type":"plan.first","args":[{}]},{"type":"plan.second","args":[{}]}]}"#;
    let id = begin(&app, chain).await;
    let first = get(&app, &id).await.unwrap();
    complete_next(&app, CapturedOutput::whole(b"7".to_vec())).await;
    let seen = [(first.steps[0].id.as_str(), StepObservation::Ended(StepState::Completed))];
    let ready = first.moved(&seen, app.clock.now());
    put(&app, DocumentKind::Workflow, &id, to_json(&ready)).await.unwrap();
    // As two tasks that have both seen that the second step is ready.
    for _task in 0..2 {
        submit_steps(&app, &ready).await.unwrap();
    }
    let known = get(&app, &id).await.unwrap();
    let second = &known.steps[1];
    assert_eq!((second.stage, second.error.as_deref()), (StepState::Running, None));
}

#[tokio::test]
async fn workflow_hands_an_output_on_whole_or_fails() {
    for (bytes, is_whole) in [(MAX_HANDED_ON_BYTES, true), (MAX_HANDED_ON_BYTES + 1, false)] {
        let (_dir, app) = open().await;
        let id = begin(&app, CHAIN).await;
        let content = "x".repeat(bytes);
        complete_next(&app, large_output(&app, content.as_bytes()).await).await;
        advance_all(&app).await.unwrap();
        let known = get(&app, &id).await.unwrap();
        let second = &known.steps[1];
        if is_whole {
            assert_eq!(known.stage, StepState::Running);
            assert!(input_of(&app, second).await.contains(&content));
        } else {
            assert_eq!(known.stage, StepState::Failed);
            let error = second.error.as_deref().unwrap();
            assert!(error.contains("has 1048577 bytes, and the next step gets at most 1048576"), "{error}");
        }
    }
}

/// Removes a completed job, as retention does.
async fn forget(app: &AppState, job_id: &JobId) {
    assert!(app.store.forget_job(job_id, Status::Completed).await.unwrap());
}

#[tokio::test]
async fn step_fails_if_the_result_of_a_job_before_it_is_no_longer_kept() {
    let (_dir, app) = open().await;
    let job = r#"{"type":"plan.first","args":[{}]}"#;
    let chain = format!(r#"{{"steps":[{{"type":"group","jobs":[{job},{job}]}},{job}]}}"#);
    let id = begin(&app, &chain).await;
    complete_next(&app, CapturedOutput::whole(b"7".to_vec())).await;
    advance_all(&app).await.unwrap();
    let known = get(&app, &id).await.unwrap();
    let ended = nested(&known, 0).iter().find(|step| step.stage == StepState::Completed).unwrap();
    forget(&app, &JobId::new(ended.id.as_str()).unwrap()).await;
    complete_next(&app, CapturedOutput::whole(b"8".to_vec())).await;
    advance_all(&app).await.unwrap();
    let over = get(&app, &id).await.unwrap();
    let last = &over.steps[1];
    assert_eq!(last.stage, StepState::Failed);
    let gone = format!("the output of job {} is no longer kept: see --keep-ended", ended.id);
    assert!(last.error.as_deref().unwrap().starts_with(&gone), "{last:?}");
}

#[tokio::test]
async fn step_fails_if_outputs_of_the_action_before_it_are_no_longer_kept() {
    let (_dir, app) = open().await;
    let chain = r#"{"steps":[{"plan_id":"first","inputs":[{},{}]},{"plan_id":"second"}]}"#;
    let id = begin(&app, chain).await;
    let action_id = ActionId::new(get(&app, &id).await.unwrap().steps[0].id.as_str()).unwrap();
    complete_next(&app, CapturedOutput::whole(b"7".to_vec())).await;
    let jobs = app.store.jobs_of(&action_id, vec![Status::Completed], Slice::ALL).await.unwrap();
    forget(&app, &jobs[0]).await;
    complete_next(&app, CapturedOutput::whole(b"8".to_vec())).await;
    advance_all(&app).await.unwrap();
    let over = get(&app, &id).await.unwrap();
    let second = &over.steps[1];
    assert_eq!((second.stage, is_submitted(&app, second).await), (StepState::Failed, false));
    let gone = format!("1 of 2 outputs of action {action_id} are no longer kept: see --keep-ended");
    assert!(second.error.as_deref().unwrap().starts_with(&gone), "{second:?}");
}

#[tokio::test]
async fn workflow_goes_on_beside_a_step_whose_input_cannot_be_read_at_the_moment() {
    let (dir, app) = open().await;
    let id = begin(&app, &group()).await;
    complete_next(&app, large_output(&app, &[b'x'; 100_000]).await).await;
    complete_next(&app, CapturedOutput::whole(b"7".to_vec())).await;
    // As if agq was started while the disk of the blobs was not mounted.
    let blobs = dir.path().join("blobs");
    std::fs::remove_dir_all(&blobs).unwrap();
    BlobDirectory::open(&blobs).unwrap();
    advance_all(&app).await.unwrap();
    let shown = observe_step(&app, &id).await.unwrap();
    assert_eq!(shown.stage, StepState::Running);
    let (waiting, other) = (&nested(&shown, 0)[1], &nested(&shown, 1)[1]);
    assert_eq!((waiting.stage, waiting.error.as_deref()), (StepState::Running, None));
    assert_eq!((is_submitted(&app, waiting).await, is_submitted(&app, other).await), (false, true));
}

#[tokio::test]
async fn workflow_fails_at_a_step_whose_input_is_lost() {
    let (_dir, app) = open().await;
    let id = begin(&app, CHAIN).await;
    let stdout = large_output(&app, &[b'x'; 100_000]).await;
    let file = BlobFile { hash: stdout.blob.unwrap(), suffix: "s".into() };
    std::fs::remove_file(app.blobs.as_ref().unwrap().path(&file).unwrap()).unwrap();
    complete_next(&app, stdout).await;
    advance_all(&app).await.unwrap();
    let known = get(&app, &id).await.unwrap();
    assert_eq!(known.stage, StepState::Failed);
    let error = known.steps[1].error.as_deref().unwrap();
    assert!(error.contains("cannot be read: the blob store failed: "), "{error}");
}

#[tokio::test]
async fn workflow_that_is_stored_is_answered_although_it_cannot_be_advanced_yet() {
    let (_dir, app) = open().await;
    let submitted = submit(&app, None, parse(CHAIN.as_bytes()).unwrap());
    // This future is polled second: the plan is unreadable behind the first write of the
    // submission.
    let damaged = async {
        let plan_id: PlanId = "first".parse().unwrap();
        let removed = app.store.delete_plan(&plan_id, None);
        let plan = StoredPlan::unsigned(plan_id, "?".into(), app.clock.now());
        let added = app.store.add_plan(plan.into());
        assert!(removed.await.unwrap().unwrap() && added.await.unwrap().unwrap());
    };
    let (submitted, ()) = futures_util::join!(submitted, damaged);
    let submitted = submitted.unwrap();
    assert_eq!(submitted.stage, StepState::Running);
    let stored = app.store.documents(DocumentKind::Workflow).await.unwrap();
    assert_eq!(stored.iter().map(|(id, _)| id).collect::<Vec<_>>(), [&submitted.id]);
    assert!(!is_submitted(&app, &submitted.steps[0]).await);
}
