//! Tests of the lifecycle of jobs.

use std::collections::HashSet;

use agenix_protocol::{
    documents::{JobUpdate, Plan, Status, parse},
    time::Timestamp,
};

use super::{
    Job, JobParams, JobState, LeaseOptions, MAX_SNOOZES, QueuePosition, RuleOutcome, abandoned, cancelled,
    cancelled_unclaimed, check_ended, claimed, due, due_while_waiting, extended_after_pause, given_back,
    is_timed_ahead, reclaimed, renewed, rescheduled, retried, updated,
};
use crate::{action::Action, rejection::Rejection};

const T0: Timestamp = Timestamp(10_000);
const T1: Timestamp = Timestamp(20_000);
const START: u64 = 60_000;
const HOLD: LeaseOptions = LeaseOptions { start_timeout_ms: START, visibility_ms: None };

fn waiting(max_retries: u32) -> Job {
    let (action_id, plan_id) = ("a".parse().unwrap(), "p".parse().unwrap());
    let action = Action::new(action_id, plan_id, T0);
    let terms = JobParams { max_retries, timeout_ms: 3_600_000, ..JobParams::default() };
    Job::new("j".parse().unwrap(), &action, 0, QueuePosition { lane: 0, seq: 0 }, &terms, T0)
}

fn running(max_retries: u32) -> Job {
    claimed(&waiting(max_retries), "w", T0, HOLD)
}

fn update(status: Status) -> JobUpdate {
    JobUpdate { status: Some(status), ..JobUpdate::default() }
}

fn after(job: &Job, status: Status) -> Job {
    changed(updated(job, &update(status), "w", None, T1, 0.5).unwrap())
}

fn changed(outcome: RuleOutcome) -> Job {
    match outcome {
        RuleOutcome::Changed(job) => *job,
        RuleOutcome::Unchanged => panic!("nothing changed"),
    }
}

#[test]
fn job_is_claimed_reported_and_completed() {
    let job = running(0);
    assert_eq!((job.status(), job.attempt, job.due_at), (Status::Running, 1, Some(T0.plus_ms(START))));
    assert!(!job.is_started(), "it may have been claimed ahead");
    let begun = after(&job, Status::Running);
    assert_eq!((begun.starts_since(None), begun.starts_since(Some(&job))), (1, 1));
    let job = begun;
    assert!(job.is_confirmed && job.due_at == Some(T0.plus_ms(3_600_000)));
    let job = after(&job, Status::Completed);
    assert_eq!(
        (job.starts_since(Some(&running(0))), job.starts_since(Some(&after(&running(0), Status::Running)))),
        (0, -1)
    );
    assert_eq!((job.status(), job.ended_at, job.due_at), (Status::Completed, Some(T1), None));
}

#[test]
fn failed_job_is_dead_only_after_retries() {
    assert_eq!(after(&running(0), Status::Failed).status(), Status::Failed);
    let job = after(&running(1), Status::Failed);
    assert_eq!(
        (job.state, job.status(), job.due_at),
        (JobState::Retryable, Status::Pending, Some(T1.plus_ms(1000)))
    );
    assert_eq!(due(&job, T1, 0.5), RuleOutcome::Unchanged);
    let job = changed(due(&job, T1.plus_ms(1000), 0.5));
    assert_eq!(job.state, JobState::Available);
    assert_eq!(after(&claimed(&job, "w", T1, HOLD), Status::Failed).status(), Status::Dead);
}

#[test]
fn worker_may_cancel_only_an_unstarted_job() {
    let job = running(0);
    assert!(job.may_be_unstarted());
    let given_up = after(&job, Status::Cancelled);
    assert_eq!(given_up.status(), Status::Cancelled);
    let mut again = update(Status::Cancelled);
    again.attempt = Some(given_up.attempt);
    let repeated = updated(&given_up, &again, "w", None, T1, 0.5);
    assert_eq!(repeated, Ok(RuleOutcome::Unchanged), "the answer was lost on its way");
    let other = updated(&job, &update(Status::Cancelled), "x", None, T1, 0.5);
    assert!(matches!(other, Err(Rejection::NotHolder { .. })));
    let started = after(&job, Status::Running);
    assert!(!started.may_be_unstarted());
    let refused = updated(&started, &update(Status::Cancelled), "w", None, T1, 0.5);
    assert!(matches!(refused, Err(Rejection::IllegalTransition { .. })));
}

#[test]
fn cancelled_unclaimed_leaves_claimed_jobs() {
    assert_eq!(changed(cancelled_unclaimed(&waiting(0), T1)).status(), Status::Cancelled);
    let retryable = after(&running(1), Status::Failed);
    assert_eq!(changed(cancelled_unclaimed(&retryable, T1)).status(), Status::Cancelled);
    let ended = after(&running(0), Status::Completed);
    for untouched in [running(0), after(&running(0), Status::Running), ended] {
        assert_eq!(cancelled_unclaimed(&untouched, T1), RuleOutcome::Unchanged);
    }
}

#[test]
fn report_is_refused_from_other_workers_and_on_other_attempts() {
    let other = updated(&running(0), &update(Status::Completed), "x", None, T1, 0.5).unwrap_err();
    assert_eq!(other.to_string(), "Worker x cannot update job claimed by w");
    let stale = JobUpdate { attempt: Some(7), ..update(Status::Completed) };
    assert!(matches!(updated(&running(0), &stale, "w", None, T1, 0.5), Err(Rejection::StaleAttempt { .. })));
}

#[test]
fn illegal_transitions_have_the_texts_of_the_specification() {
    let words = |job: &Job, to| updated(job, &update(to), "w", None, T1, 0.5).unwrap_err().to_string();
    assert_eq!(words(&waiting(0), Status::Completed), "Invalid status transition: pending -> completed");
    assert_eq!(words(&running(0), Status::Dead), "Invalid status transition: running -> dead");
    let done = after(&running(0), Status::Completed);
    assert_eq!(words(&done, Status::Completed), "Invalid status transition: completed -> completed");
    assert_eq!(words(&done, Status::Failed), "Invalid status transition: completed -> failed");
}

#[test]
fn report_may_be_repeated_after_a_lost_answer() {
    let again = |job: &Job, status| {
        updated(job, &JobUpdate { attempt: Some(1), ..update(status) }, "w", None, T1, 0.5)
    };
    assert_eq!(again(&after(&running(0), Status::Completed), Status::Completed), Ok(RuleOutcome::Unchanged));
    assert_eq!(again(&after(&running(3), Status::Failed), Status::Failed), Ok(RuleOutcome::Unchanged));
    assert!(again(&after(&running(0), Status::Completed), Status::Failed).is_err());
}

#[test]
fn job_is_dead_after_three_lost_workers() {
    let mut job = waiting(5);
    for _ in 0..2 {
        job = changed(abandoned(&claimed(&job, "w", T0, HOLD), "w", T1));
        assert_eq!((job.state, job.failures), (JobState::Available, 0));
        assert_eq!(job.error.as_deref(), Some("worker w was lost before it reported the job"));
    }
    let started = abandoned(&after(&running(0), Status::Running), "w", T1);
    assert_eq!(changed(started).error.as_deref(), Some("worker w was lost while it ran the job"));
    let job = changed(abandoned(&claimed(&job, "w", T0, HOLD), "w", T1));
    assert_eq!((job.status(), job.attempt), (Status::Dead, 3));
    assert_eq!(abandoned(&running(0), "x", T1), RuleOutcome::Unchanged);
}

#[test]
fn unstarted_claim_is_given_back() {
    let back = changed(given_back(&running(0), "w", Some(1), T1));
    assert_eq!((back.state, back.attempt, back.losses), (JobState::Available, 1, 0));
    let started = after(&running(0), Status::Running);
    assert_eq!(given_back(&started, "w", Some(1), T1), RuleOutcome::Unchanged);
    assert_eq!(changed(given_back(&started, "w", None, T1)).state, JobState::Available);
}

#[test]
fn attempt_fails_at_its_timeout() {
    let late = changed(due(&after(&running(0), Status::Running), T0.plus_ms(3_600_000), 0.5));
    assert_eq!(late.error.as_deref(), Some("the job took longer than its 3600 seconds"));
    assert_eq!(late.status(), Status::Failed);
}

#[test]
fn reclaimed_keeps_listed_jobs_and_gives_back_unreceived_ones() {
    let (claimed, started) = (running(0), after(&running(0), Status::Running));
    assert_eq!(reclaimed(&started, "w", None, T1), RuleOutcome::Unchanged);
    let (listed, none) = (HashSet::from(["j".parse().unwrap()]), HashSet::new());
    assert!(changed(reclaimed(&claimed, "w", Some(&listed), T1)).is_confirmed);
    let back = |outcome| changed(outcome).losses;
    assert_eq!(back(reclaimed(&claimed, "w", None, T1)), 0, "a claim that never arrived costs nothing");
    assert_eq!(back(reclaimed(&started, "w", Some(&none), T1)), 1, "a lost job may have killed its worker");
}

#[test]
fn queue_wait_is_the_time_between_availability_and_claim() {
    let claim = |job: &Job, at| claimed(job, "w", at, HOLD);
    let at = |ms| T0.plus_ms(ms);
    let first = claim(&waiting(1), at(70));
    assert_eq!([waiting(1).queue_wait_ms(), first.queue_wait_ms()], [None, Some(70)]);
    assert_eq!(after(&first, Status::Completed).queue_wait_ms(), Some(70));

    let retry = after(&first, Status::Failed);
    assert_eq!(retry.queue_wait_ms(), None, "it waits for its retry");
    let ready = changed(due(&retry, T1.plus_ms(5000), 0.5));
    assert_eq!(ready.queue_wait_ms(), None);
    assert_eq!(claim(&ready, T1.plus_ms(5003)).queue_wait_ms(), Some(3));

    let back = changed(given_back(&first, "w", None, at(100)));
    assert_eq!(claim(&back, at(140)).queue_wait_ms(), Some(40));
    let cancelled_job = changed(cancelled(&back, at(200)).unwrap());
    assert_eq!(cancelled_job.queue_wait_ms(), None, "no claim has ended its second wait");
    let again = changed(retried(&cancelled_job, true, at(300)).unwrap());
    assert_eq!(claim(&again, at(310)).queue_wait_ms(), Some(10));

    let old = Job { available_at: None, ..waiting(1) };
    assert_eq!(claim(&old, at(70)).queue_wait_ms(), None, "an earlier version has stored it");
}

#[test]
fn queue_wait_of_a_scheduled_job_begins_at_its_time() {
    let action = Action::new("a".parse().unwrap(), "p".parse().unwrap(), T0);
    let terms = JobParams { run_at: Some(T1), ..JobParams::default() };
    let place = QueuePosition { lane: 0, seq: 0 };
    let job = Job::new("j".parse().unwrap(), &action, 0, place, &terms, T0);
    let ready = changed(due(&job, T1, 0.5));
    assert_eq!(claimed(&ready, "w", T1.plus_ms(8), HOLD).queue_wait_ms(), Some(8));
}

#[test]
fn queue_wait_stays_if_the_clock_jumps_after_the_claim() {
    let job = claimed(&waiting(0), "w", T0.plus_ms(70), HOLD);
    let late = changed(extended_after_pause(&job, 1000, T1));
    let back = changed(rescheduled(&job, None, Timestamp(5000)));
    assert_eq!([late.queue_wait_ms(), back.queue_wait_ms()], [Some(70); 2]);
}

#[test]
fn start_timeout_gives_a_claim_back_at_no_cost() {
    assert_eq!(due(&running(0), T0.plus_ms(START - 1), 0.5), RuleOutcome::Unchanged);
    let back = changed(due(&running(0), T0.plus_ms(START), 0.5));
    assert_eq!((back.state, back.failures, back.losses), (JobState::Available, 0, 0));
    let renewed = changed(renewed(&running(0), "w"));
    assert_eq!(due(&renewed, T0.plus_ms(START), 0.5), RuleOutcome::Unchanged);
    assert_eq!(super::renewed(&running(0), "x"), RuleOutcome::Unchanged);
    let unbounded = Job { timeout_ms: 0, ..waiting(0) };
    assert_eq!(changed(super::renewed(&claimed(&unbounded, "w", T0, HOLD), "w")).due_at, None);
}

#[test]
fn exit_codes_snooze_discard_or_retry() {
    let ended =
        |job: &Job, code| changed(updated(job, &update(Status::Failed), "w", Some(code), T1, 0.5).unwrap());
    let snoozed = ended(&running(0), 75);
    assert_eq!(
        (snoozed.state, snoozed.failures, snoozed.due_at),
        (JobState::Scheduled, 0, Some(T1.plus_ms(30_000)))
    );
    let snoozed_out = Job { snoozes: MAX_SNOOZES, ..running(0) };
    assert_eq!(ended(&snoozed_out, 75).status(), Status::Failed);
    assert_eq!([64, 65, 78].map(|code| ended(&running(5), code).status()), [Status::Failed; 3]);
    assert_eq!(ended(&running(5), 1).state, JobState::Retryable);
}

#[test]
fn only_jobs_that_have_ended_can_be_forgotten() {
    for job in [waiting(0), running(0), after(&running(1), Status::Failed)] {
        let error = check_ended(&job).unwrap_err().to_string();
        assert_eq!(error, format!("Job has not ended: {}", job.status().as_str()));
    }
    for status in [Status::Completed, Status::Failed] {
        assert_eq!(check_ended(&after(&running(0), status)), Ok(()));
    }
    assert_eq!(check_ended(&changed(cancelled(&waiting(0), T1).unwrap())), Ok(()));
}

#[test]
fn jobs_that_have_not_ended_can_be_cancelled() {
    for job in [waiting(0), running(0), after(&running(1), Status::Failed)] {
        let cancelled_job = changed(cancelled(&job, T1).unwrap());
        assert_eq!(
            (cancelled_job.status(), cancelled_job.ended_at, cancelled_job.due_at),
            (Status::Cancelled, Some(T1), None)
        );
        assert_eq!(cancelled(&cancelled_job, T1), Ok(RuleOutcome::Unchanged));
    }
    let done = after(&running(0), Status::Completed);
    assert_eq!(cancelled(&done, T1).unwrap_err().to_string(), "Job already ended: completed");
}

#[test]
fn failed_jobs_can_be_retried_and_dead_ones_with_force() {
    let again = changed(retried(&after(&running(0), Status::Failed), false, T1).unwrap());
    assert_eq!((again.status(), again.ended_at, again.attempt), (Status::Pending, None, 1));
    let dead = after(&Job { failures: 1, ..running(1) }, Status::Failed);
    assert_eq!(retried(&dead, false, T1).unwrap_err().to_string(), "Max retries exceeded");
    assert_eq!(changed(retried(&dead, true, T1).unwrap()).failures, 0);
    for job in [waiting(0), running(0), after(&running(0), Status::Completed)] {
        assert_eq!(retried(&job, true, T1).unwrap_err().to_string(), "Job not in failed status");
    }
    let cancelled_job = changed(cancelled(&waiting(0), T1).unwrap());
    assert!(retried(&cancelled_job, false, T1).is_err() && retried(&cancelled_job, true, T1).is_ok());
}

#[test]
fn scheduled_job_waits_for_its_time() {
    let action = Action::new("a".parse().unwrap(), "p".parse().unwrap(), T0);
    let at = |run_at| {
        let terms = JobParams { run_at, ..JobParams::default() };
        Job::new("j".parse().unwrap(), &action, 0, QueuePosition { lane: 0, seq: 0 }, &terms, T0)
    };
    assert_eq!((at(Some(T1)).state, at(Some(T1)).due_at), (JobState::Scheduled, Some(T1)));
    assert_eq!((at(Some(T0)).state, at(None).due_at), (JobState::Available, None));
    assert_eq!(changed(due(&at(Some(T1)), T1, 0.5)).state, JobState::Available);
}

#[test]
fn pause_of_the_machine_extends_an_attempt() {
    let started = running(0).started_at.unwrap();
    let late = changed(extended_after_pause(&running(0), 1000, started.plus_ms(1500)));
    let due = running(0).due_at.unwrap();
    assert_eq!(due_of(&late), Some(due.plus_ms(1000)));
    assert_eq!(super::due(&late, due, 0.5), RuleOutcome::Unchanged);
    assert_eq!(extended_after_pause(&waiting(0), 1000, T1), RuleOutcome::Unchanged);
    let younger = changed(extended_after_pause(&running(0), 1000, started.plus_ms(300)));
    assert_eq!(due_of(&younger), Some(due.plus_ms(300)), "it was claimed while that time passed");
    assert_eq!(extended_after_pause(&running(0), 1000, started), RuleOutcome::Unchanged);
}

#[test]
fn job_is_rescheduled_after_the_clock_was_set_back() {
    let back = Timestamp(T0.0 / 2);
    let lease = due_of(&running(0)).unwrap().ms_since(running(0).started_at.unwrap());
    let active = changed(rescheduled(&running(0), None, back));
    assert_eq!((active.started_at, due_of(&active)), (Some(back), Some(back.plus_ms(lease))));
    assert_eq!(rescheduled(&active, None, back), RuleOutcome::Unchanged);

    let retry = after(&running(1), Status::Failed);
    let due = due_of(&changed(rescheduled(&retry, None, back))).unwrap();
    assert!(due > back && due.ms_since(back) <= 1500, "the first delay is at most 1.5 seconds");
    assert!(!is_timed_ahead(&retry, T1), "its time is right");

    let delayed = Job { state: JobState::Scheduled, due_at: Some(T1), ..waiting(0) };
    assert_eq!(due_of(&changed(rescheduled(&delayed, Some(700), back))), Some(back.plus_ms(700)));
    assert_eq!(rescheduled(&delayed, None, back), RuleOutcome::Unchanged, "a user named that time");
    assert_eq!(rescheduled(&waiting(0), Some(1), back), RuleOutcome::Unchanged);
}

#[test]
fn timers_of_waiting_jobs_fire_apart_from_those_of_attempts() {
    let late = T0.plus_ms(10 * 3_600_000);
    assert_ne!(due(&running(0), late, 0.5), RuleOutcome::Unchanged);
    assert_eq!(due_while_waiting(&running(0), late, 0.5), RuleOutcome::Unchanged);
    let delayed = Job { state: JobState::Scheduled, due_at: Some(T1), ..waiting(0) };
    assert_eq!(due_while_waiting(&delayed, late, 0.5), due(&delayed, late, 0.5));
    assert_ne!(due(&delayed, late, 0.5), RuleOutcome::Unchanged);
}

fn due_of(job: &Job) -> Option<Timestamp> {
    job.due_at
}

#[test]
fn added_input_waits_at_most_the_delay_of_its_action() {
    let plan: Plan = parse(br#"{"plan_id":"p","tasks":[{"task_number":1,"command":"sort"}]}"#).unwrap();
    let submitted = Action::new("a".parse().unwrap(), "p".parse().unwrap(), T0);
    let at = T0.plus_ms(700);
    let named = Action { run_at: Some(at), ..submitted };
    let mut delayed = named.clone();
    delayed.wishes.delay_ms = Some(700);
    let back = Timestamp(T0.0 / 2);
    let run_at = |action: &Action, now| JobParams::of(action, &plan, 0, now).run_at;
    assert_eq!(run_at(&delayed, T0), Some(at));
    assert_eq!(run_at(&delayed, T0.plus_ms(300)), Some(at), "the action's own time, not the job's");
    assert_eq!(run_at(&delayed, back), Some(back.plus_ms(700)), "the clock was set back since");
    assert_eq!(run_at(&named, back), Some(at), "a user named that time");
}
