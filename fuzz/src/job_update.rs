//! Reports of a worker on a job. The job stays valid after any report, and the same report
//! again changes nothing more.

use agenix_protocol::{
    documents::{JobUpdate, TaskResult},
    ids::{ActionId, JobId, PlanId},
};
use agenix_rules::{
    action::Action,
    job::{Job, JobParams, LeaseOptions, MAX_ERROR_BYTES, QueuePosition, RuleOutcome, claimed, updated},
    rejection::Rejection,
};
use serde_json::value::RawValue;

use crate::{
    check_refusal,
    documents::{NOW, again, read},
};

/// Holder of the job.
const HOLDER: &str = "w1";

/// Reports of JOB.UPDATE.
pub fn job_update(data: &[u8]) -> bool {
    let Some(update) = read::<JobUpdate>(data, Rejection::InvalidUpdate) else { return false };
    // A number that is too large to be kept is infinite, for which JSON has no word.
    if update.progress_percent.is_none_or(f32::is_finite) {
        again(&update);
    }
    let told = update.task_results.as_deref().map_or("[]", RawValue::get);
    let results: Vec<TaskResult> = serde_json::from_str(told).unwrap_or_default();
    assert_eq!(again(&results), results);
    let exit_code = TaskResult::blamed(&results).map(|result| result.exit_code);
    let job = running();
    match updated(&job, &update, HOLDER, exit_code, NOW, 0.5) {
        Ok(RuleOutcome::Changed(next)) => {
            check(&job, &next);
            check_repeated(&next, &update, exit_code);
            true
        }
        Ok(RuleOutcome::Unchanged) => panic!("a report is a sign of life"),
        Err(no) => {
            check_refusal(no.line());
            false
        }
    }
}

/// A job that a worker has just claimed, with one retry left.
fn running() -> Job {
    let (Ok(job_id), Ok(action_id), Ok(plan_id)) = (JobId::new("j"), ActionId::new("a"), PlanId::new("p"))
    else {
        panic!("these are ids")
    };
    let action = Action::new(action_id, plan_id, NOW);
    let terms = JobParams { max_retries: 1, timeout_ms: 1000, ..JobParams::default() };
    let job = Job::new(job_id, &action, 0, QueuePosition { lane: 1, seq: 1 }, &terms, NOW);
    claimed(&job, HOLDER, NOW, LeaseOptions::default())
}

fn check(job: &Job, next: &Job) {
    assert_eq!((&next.job_id, next.attempt, next.seq), (&job.job_id, job.attempt, job.seq));
    assert_eq!(next.is_ended(), next.ended_at.is_some());
    assert!(next.progress_percent.is_none_or(|percent| (0.0..=100.0).contains(&percent)), "{next:?}");
    assert!(next.error.as_ref().is_none_or(|error| error.len() <= MAX_ERROR_BYTES), "{next:?}");
}

/// The answer may have been lost, so the worker repeats the report.
fn check_repeated(next: &Job, update: &JobUpdate, exit_code: Option<i32>) {
    match updated(next, update, HOLDER, exit_code, NOW, 0.5) {
        Ok(RuleOutcome::Changed(twice)) => assert_eq!(*twice, *next),
        Ok(RuleOutcome::Unchanged) => {}
        // A report without an attempt cannot be distinguished from a late one.
        Err(no) => assert_eq!(update.attempt, None, "{no}"),
    }
}
