//! Tests of the reports of OJS workers.

use agenix_protocol::time::Timestamp;

use super::{Reporter, acked, extended, nacked, progressed};
use crate::{
    action::Action,
    job::{
        Job, JobParams, JobState, LeaseOptions, Ojs, Progress, QueuePosition, ReportedFailure, RuleOutcome,
        abandoned, activated, cancelled, claimed, due, expired, released, retried, staged_again,
    },
    rejection::Rejection,
    retry::{Retry, Strategy},
};

const T0: Timestamp = Timestamp(10_000);
const W: Reporter<'_> = Reporter { worker: Some("w"), attempt: None };

fn ojs(retry: Retry) -> Ojs {
    Ojs { retry: Some(retry), visibility_ms: 3000, ..Ojs::of("email.send") }
}

fn submitted(ojs: Ojs, timeout_ms: u64) -> Job {
    let max_attempts = ojs.retry.as_ref().map_or(1, |retry| retry.max_attempts);
    let action = Action::new("a".parse().unwrap(), "ojs".parse().unwrap(), T0);
    let terms = JobParams {
        max_retries: max_attempts.saturating_sub(1),
        timeout_ms,
        ojs: Some(Box::new(ojs)),
        ..JobParams::default()
    };
    Job::new("j".parse().unwrap(), &action, 0, QueuePosition { lane: 0, seq: 0 }, &terms, T0)
}

fn steady(max_attempts: u32) -> Retry {
    Retry { max_attempts, jitter: false, ..Retry::default() }
}

fn fetch(job: &Job, at: Timestamp) -> Job {
    claimed(job, "w", at, LeaseOptions { start_timeout_ms: 60_000, visibility_ms: None })
}

fn fetched(max_attempts: u32) -> Job {
    fetch(&submitted(ojs(steady(max_attempts)), 0), T0)
}

fn changed(outcome: Result<RuleOutcome, Rejection>) -> Job {
    then(outcome.unwrap())
}

fn then(outcome: RuleOutcome) -> Job {
    match outcome {
        RuleOutcome::Changed(job) => *job,
        RuleOutcome::Unchanged => panic!("nothing changed"),
    }
}

fn error() -> ReportedFailure {
    ReportedFailure {
        code: "handler_error".into(),
        kind: "Net".into(),
        message: "reset".into(),
        ..ReportedFailure::default()
    }
}

fn kinds(job: &Job) -> Vec<(&str, u32)> {
    let failures = &job.ojs.as_ref().unwrap().failures;
    failures.iter().map(|failure| (failure.kind.as_str(), failure.attempt)).collect()
}

#[test]
fn fetched_job_is_reserved_without_a_start_timeout() {
    let job = fetched(3);
    assert_eq!((job.state, job.attempt, job.due_at), (JobState::Active, 1, Some(T0.plus_ms(3000))));
    let done = changed(acked(&job, W, T0));
    assert_eq!((done.state, done.ended_at, done.due_at), (JobState::Completed, Some(T0), None));
}

#[test]
fn report_is_refused_for_a_stale_attempt_or_another_worker() {
    let job = fetched(3);
    let other = Reporter { worker: Some("x"), attempt: None };
    assert!(matches!(acked(&job, other, T0), Err(Rejection::NotHolder { .. })));
    assert!(matches!(nacked(&job, other, &error(), false, T0, 0.5), Err(Rejection::NotHolder { .. })));
    let stale = Reporter { attempt: Some(7), ..W };
    assert!(matches!(acked(&job, stale, T0), Err(Rejection::StaleAttempt { reported: 7, current: 1, .. })));
    let waiting = submitted(ojs(steady(3)), 0);
    assert!(matches!(acked(&waiting, Reporter::default(), T0), Err(Rejection::NotActive { .. })));
    let done = changed(acked(&job, Reporter::default(), T0));
    assert!(acked(&done, W, T0).is_err(), "once is enough");
    let again = Reporter { attempt: Some(1), ..W };
    assert_eq!(acked(&done, again, T0), Ok(RuleOutcome::Unchanged), "its answer was lost");
    assert!(nacked(&done, again, &error(), false, T0, 0.5).is_err());
}

#[test]
fn nack_is_repeated_only_by_the_report_that_ended_the_attempt() {
    let job = fetched(3);
    let first = Reporter { attempt: Some(1), ..W };
    let repeat = |job: &Job, requeue| nacked(job, first, &error(), requeue, T0, 0.5);
    let failed = changed(repeat(&job, false));
    assert_eq!(repeat(&failed, false), Ok(RuleOutcome::Unchanged), "its answer was lost");
    assert!(repeat(&failed, true).is_err());
    let back = changed(repeat(&job, true));
    assert_eq!(repeat(&back, true), Ok(RuleOutcome::Unchanged), "its answer was lost");
    assert!(repeat(&back, false).is_err());
    let ended_by_others = [
        changed(cancelled(&job, T0)),
        then(due(&job, T0.plus_ms(3000), 0.5)),
        then(due(&fetch(&submitted(ojs(steady(3)), 500), T0), T0.plus_ms(500), 0.5)),
    ];
    for ended in ended_by_others {
        let (done, given_up) = (repeat(&ended, false), repeat(&ended, true));
        assert!(matches!(done, Err(Rejection::NotActive { .. })), "{:?}: {done:?}", ended.state);
        assert!(matches!(given_up, Err(Rejection::NotActive { .. })), "{:?}: {given_up:?}", ended.state);
    }
}

#[test]
fn failures_are_stored_until_no_attempt_is_left() {
    let waits = changed(nacked(&fetched(2), W, &error(), false, T0, 0.5));
    assert_eq!((waits.state, waits.due_at), (JobState::Retryable, Some(T0.plus_ms(1000))));
    let ready = then(due(&waits, T0.plus_ms(1000), 0.5));
    let end = changed(nacked(&fetch(&ready, T0), W, &error(), false, T0, 0.5));
    assert_eq!((end.state, end.is_dead), (JobState::Discarded, false));
    assert_eq!(kinds(&end), [("Net", 1), ("Net", 2)]);
}

#[test]
fn retry_delay_is_shown_for_waiting_and_running_attempts() {
    let doubling = Retry { strategy: Strategy::Exponential, coefficient: 2.0, ..steady(5) };
    let fail = |job: &Job| changed(nacked(job, W, &error(), false, T0, 0.5));
    let again = |job: &Job| {
        let ready = then(due(job, job.due_at.unwrap(), 0.5));
        fetch(&ready, T0)
    };
    let first = fetch(&submitted(ojs(doubling), 0), T0);
    assert_eq!(first.retry_delay_ms(), None);
    let waits = fail(&first);
    let second = again(&waits);
    assert_eq!((waits.retry_delay_ms(), second.retry_delay_ms()), (Some(1000), Some(1000)));
    let third = again(&fail(&second));
    assert_eq!(third.retry_delay_ms(), Some(2000));
    // A job that was given back, or whose worker was lost, starts again without a delay.
    let back = changed(nacked(&third, W, &error(), true, T0, 0.5));
    assert_eq!((back.retry_delay_ms(), fetch(&back, T0).retry_delay_ms()), (None, None));
    let lost = then(abandoned(&third, "w", T0));
    assert_eq!(fetch(&lost, T0).retry_delay_ms(), None);
}

#[test]
fn job_becomes_a_dead_letter_if_its_policy_requests_it() {
    let retry = Retry { to_dead_letter: true, ..steady(1) };
    let end = changed(nacked(&fetch(&submitted(ojs(retry), 0), T0), W, &error(), false, T0, 0.5));
    assert_eq!((end.state, end.is_dead), (JobState::Discarded, true));
    let again = changed(retried(&end, true, T0));
    assert_eq!((again.state, again.shown_attempt()), (JobState::Available, 0));
    assert_eq!(fetch(&again, T0).shown_attempt(), 1);
}

#[test]
fn final_error_is_not_retried() {
    let final_error = ReportedFailure { retryable: Some(false), ..error() };
    let end = changed(nacked(&fetched(5), W, &final_error, false, T0, 0.5));
    assert_eq!((end.state, end.failures), (JobState::Discarded, 1));
}

#[test]
fn requeued_job_counts_no_failure() {
    let back = changed(nacked(&fetched(1), W, &error(), true, T0, 0.5));
    assert_eq!((back.state, back.failures, back.due_at), (JobState::Available, 0, None));
}

#[test]
fn lease_expiry_costs_an_attempt_and_a_heartbeat_extends_the_lease() {
    let job = fetched(2);
    let extended_job = then(extended(&job, "w", None, T0.plus_ms(2000)));
    assert_eq!(due(&extended_job, T0.plus_ms(4999), 0.5), RuleOutcome::Unchanged);
    let lapsed = then(due(&extended_job, T0.plus_ms(5000), 0.5));
    assert_eq!((lapsed.state, lapsed.failures), (JobState::Available, 1));
    let end = then(abandoned(&fetch(&lapsed, T0), "w", T0));
    assert_eq!(end.state, JobState::Discarded);
    assert_eq!(kinds(&end), [("visibility_timeout", 1), ("worker_death", 2)]);
    assert_eq!(extended(&job, "x", None, T0), RuleOutcome::Unchanged);
    let longer = extended(&job, "w", Some(9000), T0);
    assert!(matches!(longer, RuleOutcome::Changed(job) if job.due_at == Some(T0.plus_ms(9000))));
}

#[test]
fn attempt_timeout_is_not_extended_by_heartbeats() {
    let job = fetch(&submitted(ojs(steady(2)), 2000), T0);
    let extended_job = then(extended(&job, "w", None, T0.plus_ms(1999)));
    let late = then(due(&extended_job, T0.plus_ms(2000), 0.5));
    assert_eq!((late.state, kinds(&late)), (JobState::Retryable, vec![("timeout", 1)]));
}

#[test]
fn expired_job_is_discarded() {
    let job = submitted(Ojs { expires_at: Some(T0.plus_ms(2000)), ..ojs(steady(3)) }, 0);
    assert_eq!((job.state, job.due_at), (JobState::Available, Some(T0.plus_ms(2000))));
    assert_eq!(expired(&job, T0.plus_ms(1999)), None);
    let late = then(due(&job, T0.plus_ms(2000), 0.5));
    assert_eq!((late.state, late.ojs.as_ref().unwrap().is_expired), (JobState::Discarded, true));
    assert_eq!(expired(&fetch(&job, T0), T0.plus_ms(9000)), None, "the job has begun");
}

#[test]
fn scheduled_job_that_expires_earlier_is_discarded_then() {
    let action = Action::new("a".parse().unwrap(), "ojs".parse().unwrap(), T0);
    let run_at = Some(T0.plus_ms(9000));
    let ojs = Ojs { expires_at: Some(T0.plus_ms(2000)), scheduled_at: run_at, ..ojs(steady(3)) };
    let terms = JobParams { run_at, ojs: Some(Box::new(ojs)), ..JobParams::default() };
    let place = QueuePosition { lane: 0, seq: 0 };
    let scheduled = Job::new("j".parse().unwrap(), &action, 0, place, &terms, T0);
    let staged = JobParams { is_staged: true, ..terms };
    let staged = Job::new("j".parse().unwrap(), &action, 0, place, &staged, T0);
    for job in [scheduled, then(released(&staged, run_at, T0))] {
        assert_eq!((job.state, job.due_at), (JobState::Scheduled, Some(T0.plus_ms(2000))));
        assert_eq!(job.available_from(), run_at);
        let late = then(due(&job, T0.plus_ms(2000), 0.5));
        assert_eq!((late.state, late.ojs.as_ref().unwrap().is_expired), (JobState::Discarded, true));
    }
}

#[test]
fn retry_after_the_expiry_makes_the_job_available_for_good() {
    let expires_at = Some(T0.plus_ms(2000));
    let job = submitted(Ojs { expires_at, ..ojs(steady(1)) }, 0);
    let dead = changed(nacked(&fetch(&job, T0), W, &error(), false, T0, 0.5));
    assert_eq!(dead.state, JobState::Discarded);
    let in_time = changed(retried(&dead, true, T0.plus_ms(1999)));
    assert_eq!(in_time.ojs.as_ref().unwrap().expires_at, expires_at);
    let late = changed(retried(&dead, true, T0.plus_ms(2000)));
    assert_eq!((late.state, expired(&late, T0.plus_ms(9000))), (JobState::Available, None));
}

#[test]
fn staged_job_waits_to_be_released() {
    let terms = JobParams { is_staged: true, run_at: Some(T0.plus_ms(5)), ..JobParams::default() };
    let action = Action::new("a".parse().unwrap(), "p".parse().unwrap(), T0);
    let job = Job::new("j".parse().unwrap(), &action, 0, QueuePosition { lane: 0, seq: 0 }, &terms, T0);
    assert_eq!((job.state, job.due_at), (JobState::Staged, None));
    let released = changed(activated(&job, T0));
    assert_eq!(released.state, JobState::Available);
    assert!(matches!(activated(&released, T0), Err(Rejection::NotStaged(_))));
}

#[test]
fn approval_releases_a_job_at_its_own_time() {
    let action = Action::new("a".parse().unwrap(), "p".parse().unwrap(), T0);
    let staged = |ojs: Option<Ojs>| {
        let terms = JobParams { is_staged: true, ojs: ojs.map(Box::new), ..JobParams::default() };
        Job::new("j".parse().unwrap(), &action, 0, QueuePosition { lane: 0, seq: 0 }, &terms, T0)
    };
    let (soon, later) = (T0.plus_ms(1000), T0.plus_ms(9000));
    let approved = |job: &Job| then(released(job, Some(later), T0));
    let at_once = (JobState::Available, None);
    let of_plan = Ojs { document: Some("{}".into()), ..Ojs::of("plan.p") };
    let scheduled = Ojs { scheduled_at: Some(soon), ..of_plan.clone() };
    let bounded = Ojs { limit: Some("action:a".into()), ..Ojs::of("plan.p") };
    for (ojs, expected) in [
        (None, (JobState::Scheduled, Some(later))),
        (Some(bounded), (JobState::Scheduled, Some(later))),
        (Some(of_plan.clone()), at_once),
        (Some(scheduled), (JobState::Scheduled, Some(soon))),
        (Some(ojs(steady(3))), at_once),
    ] {
        let job = approved(&staged(ojs));
        assert_eq!((job.state, job.due_at), expected);
    }
    let pending = staged(Some(Ojs { is_pending: true, scheduled_at: Some(soon), ..of_plan }));
    assert_eq!(released(&pending, None, T0), RuleOutcome::Unchanged);
    // The claim of an activated job was refused, because its plan waited for approval.
    let claimed = fetch(&changed(activated(&pending, T0)), T0);
    let job = approved(&then(staged_again(&claimed, ("w", 1), T0)));
    assert_eq!((job.state, job.due_at), at_once);
}

#[test]
fn progress_extends_the_lease() {
    let report = Progress::new(Some("half"), None, T0);
    let job = changed(progressed(&fetched(3), None, Some(0.5), &report, T0.plus_ms(1000)));
    assert_eq!((job.progress_percent, job.due_at), (Some(50.0), Some(T0.plus_ms(4000))));
    for fraction in [0.333, 0.999, 0.001, 1.0] {
        let job = changed(progressed(&fetched(3), None, Some(fraction), &report, T0.plus_ms(1000)));
        assert_eq!(job.progress(), Some(fraction));
    }
    let waiting = submitted(ojs(steady(3)), 0);
    assert_eq!(progressed(&waiting, None, Some(0.5), &report, T0), Ok(RuleOutcome::Unchanged));
    assert!(progressed(&fetched(3), Some("x"), Some(0.5), &report, T0).is_err());
}

#[test]
fn progress_never_goes_back_within_an_attempt() {
    let half = Progress::new(Some("half"), None, T0);
    let job = changed(progressed(&fetched(3), None, Some(0.5), &half, T0));
    for (progress, expected) in [(None, 0.5), (Some(0.2), 0.5), (Some(0.7), 0.7)] {
        let report = Progress::new(Some("later"), Some("{}".into()), T0);
        let next = changed(progressed(&job, None, progress, &report, T0));
        assert_eq!(next.progress(), Some(expected), "{progress:?}");
        assert_eq!(next.ojs.as_ref().unwrap().progress, Some(report), "{progress:?}");
    }
    let failed = changed(nacked(&job, W, &error(), false, T0, 0.5));
    assert_eq!(failed.progress(), Some(0.5));
    let again = fetch(&then(due(&failed, failed.due_at.unwrap(), 0.5)), T0);
    assert_eq!((again.state, again.progress()), (JobState::Active, None));
}
