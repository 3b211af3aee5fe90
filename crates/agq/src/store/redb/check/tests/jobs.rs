//! Wrong records of jobs, and wrong indexes.

use agenix_protocol::time::Timestamp;
use agenix_rules::{
    action::{Action, JobCounts},
    job::{Job, JobState},
};

use super::{cut, edit, put, read, tampered};
use crate::store::{
    Totals,
    redb::schema::tables::{
        ACTION_JOBS, ACTIONS, ENDED, HELD, INPUTS, JOB_COUNTS, JOBS, LANE_LENGTHS, LEASES, PLANS,
        QUEUE_COUNTS, READY, RESULTS, TOTALS, WAITING,
    },
};

/// A job, a change of its record, and the reported lines.
type Case = (&'static str, fn(&mut Job), &'static [&'static str]);

async fn compare(cases: &[Case]) {
    for (id, tamper, lines) in cases {
        assert_eq!(tampered(|t| edit::<Job>(t, JOBS, id, tamper)).await, *lines, "{id}");
    }
}

#[tokio::test]
async fn check_reports_impossible_jobs() {
    compare(&[
        (
            "old-1",
            |job| job.ended_at = None,
            &[
                "jobs: old-1 is cancelled, but does not say when it ended",
                "ended: old-1 is listed under status 5 at 30, but its record says it is cancelled",
            ],
        ),
        ("a-0", |job| job.ended_at = Some(Timestamp(1)), &["jobs: a-0 is active, but says when it ended"]),
        (
            "a-2",
            |job| job.due_at = None,
            &[
                "jobs: a-2 is retryable, but does not say for which time it waits",
                "waiting: a-2 is listed at 1020, but its record says no time",
            ],
        ),
        (
            "a-3",
            |job| job.due_at = Some(Timestamp(5)),
            &["jobs: a-3 is available, but waits for a time", "leases: a-3 should stand at 5, but does not"],
        ),
        (
            "a-0",
            |job| job.holder = None,
            &[
                "jobs: a-0 is active, but has no holder",
                "held: a-0 is listed under w1, but its record says it is active",
            ],
        ),
        (
            "a-1",
            |job| (job.attempt, job.started_at) = (0, None),
            &["jobs: a-1 is completed, but was never claimed"],
        ),
        (
            "a-3",
            |job| job.started_at = Some(Timestamp(1)),
            &["jobs: a-3 is available, but its attempts and its start contradict each other"],
        ),
        ("old-1", |job| job.is_dead = true, &["jobs: old-1 is cancelled, but counts as dead"]),
        (
            "a-3",
            |job| job.failures = 1,
            &["jobs: a-3 is available, but failed more often than it was claimed"],
        ),
        (
            "a-2",
            |job| (job.failures, job.attempt) = (2, 2),
            &["jobs: a-2 is retryable, but failed more often than it may"],
        ),
        ("a-0", |job| job.losses = 3, &["jobs: a-0 is active, but lost more workers than it may"]),
    ])
    .await;
}

#[tokio::test]
async fn check_reports_jobs_with_missing_parts() {
    let other_plan = &["jobs: a-1 runs plan q, but its action a runs p"];
    let no_lane = &[
        "lanes: a-1 belongs to lane 9, but there is no such lane",
        "lane_lengths: lane 0 counts 1 ready jobs of 5, but should count 1 of 4",
        "queue_counts: ready counts [0, 0, 1, 1, 1, 1, 1, 0] by state, but should count [0, 0, 1, 1, 0, 1, 1, 0]",
    ];
    let other_queue = &[
        "lanes: a-1 belongs to lane 1 of queue gpu, but its action a has queue ready",
        "lane_lengths: lane 0 counts 1 ready jobs of 5, but should count 1 of 4",
        "lane_lengths: lane 1 counts 0 ready jobs of 1, but should count 0 of 2",
        "queue_counts: gpu counts [0, 1, 0, 0, 0, 0, 0, 0] by state, but should count [0, 1, 0, 0, 1, 0, 0, 0]",
        "queue_counts: ready counts [0, 0, 1, 1, 1, 1, 1, 0] by state, but should count [0, 0, 1, 1, 0, 1, 1, 0]",
    ];
    compare(&[
        ("a-1", |job| job.plan_id = "q".parse().unwrap(), other_plan),
        ("a-1", |job| job.lane = 9, no_lane),
        ("a-1", |job| job.lane = 1, other_queue),
    ])
    .await;
    let without_action = [
        "actions: old-1 belongs to old, but there is no such action",
        "tallies: old has counts, but there is no such action",
    ];
    assert_eq!(tampered(|t| cut(t, ACTIONS, "old")).await, without_action);
    let too_many =
        ["actions: a-3 is input 3 of a, which has 3 inputs", "tallies: a counts 4 jobs, but should count 3"];
    assert_eq!(tampered(|t| edit(t, ACTIONS, "a", |a: &mut Action| a.total_jobs = 3)).await, too_many);
    let without_plan = [
        "plans: a-0 is active, but there is no plan p",
        "plans: a-2 is retryable, but there is no plan p",
        "plans: later-0 is scheduled, but there is no plan p",
    ];
    assert_eq!(tampered(|t| cut(t, PLANS, "p")).await, without_plan);
    assert_eq!(tampered(|t| cut(t, INPUTS, "a-3")).await, ["inputs: a-3 has no input"]);
    let reported = tampered(|t| put(t, INPUTS, "x", "{}")).await;
    assert_eq!(reported, ["inputs: x is listed there, but there is no such job"]);
    let reported = tampered(|t| put(t, RESULTS, "x", "[]")).await;
    assert_eq!(reported, ["results: x is listed there, but there is no such job"]);
}

#[tokio::test]
async fn check_accepts_a_retried_job_without_a_plan() {
    let reported = tampered(|t| {
        cut(t, PLANS, "p");
        for id in ["a-0", "a-2"] {
            edit(t, JOBS, id, |job: &mut Job| (job.state, job.due_at) = (JobState::Available, None));
            let job = read::<Job>(t, JOBS, id);
            put(t, READY, (0, 100, job.seq), id);
        }
        cut(t, LEASES, (60, "a-0"));
        cut(t, HELD, ("w1", "a-0"));
        cut(t, WAITING, (1020, "a-2"));
        put(t, LANE_LENGTHS, 0, (3, 5));
        edit(t, JOB_COUNTS, "a", |counts: &mut JobCounts| counts.jobs = [3, 0, 1, 0, 0, 0]);
        edit(t, TOTALS, "totals", |totals: &mut Totals| totals.now = [4, 0, 1, 0, 0, 1]);
        edit(t, QUEUE_COUNTS, "ready", |counts: &mut [u64; 8]| *counts = [0, 0, 3, 0, 1, 0, 1, 0]);
    });
    assert_eq!(reported.await, ["plans: later-0 is scheduled, but there is no plan p"]);
}

#[tokio::test]
async fn check_reports_wrong_action_jobs() {
    let reported = tampered(|t| cut(t, ACTION_JOBS, ("a", 3))).await;
    assert_eq!(reported, ["action_jobs: input 3 of a should be a-3, but is nobody"]);
    let reported = tampered(|t| put(t, ACTION_JOBS, ("a", 9), "a-3")).await;
    assert_eq!(reported, ["action_jobs: a-3 is listed as input 9 of a, but its record says input 3 of a"]);
    let reported = tampered(|t| put(t, ACTION_JOBS, ("old", 0), "x")).await;
    assert_eq!(reported, ["action_jobs: x is listed as input 0 of old, but there is no such job"]);
}

#[tokio::test]
async fn check_reports_wrong_ready_jobs() {
    let reported = tampered(|t| cut(t, READY, (0, 100, 4))).await;
    assert_eq!(reported, ["ready: a-3 should stand in lane 0 at rank 100, place 4, but nobody does"]);
    let reported = tampered(|t| put(t, READY, (0, 100, 9), "a-0")).await;
    assert_eq!(
        reported,
        ["ready: a-0 is listed in lane 0 at rank 100, place 9, but its record says it is active"]
    );
    let reported = tampered(|t| put(t, READY, (0, 99, 4), "a-3")).await;
    let twice =
        "ready: a-3 is listed in lane 0 at rank 99, place 4, but its record says lane 0, rank 100, place 4";
    assert_eq!(reported, [twice]);
    let reported = tampered(|t| put(t, READY, (1, 100, 9), "x")).await;
    assert_eq!(reported, ["ready: x is listed in lane 1 at rank 100, place 9, but there is no such job"]);
}

#[tokio::test]
async fn check_reports_wrong_due_times() {
    let reported = tampered(|t| cut(t, WAITING, (1000, "later-0"))).await;
    assert_eq!(reported, ["waiting: later-0 should stand at 1000, but does not"]);
    let reported = tampered(|t| put(t, WAITING, (7, "later-0"), ())).await;
    assert_eq!(reported, ["waiting: later-0 is listed at 7, but its record says 1000"]);
    let reported = tampered(|t| put(t, WAITING, (60, "a-0"), ())).await;
    assert_eq!(reported, ["waiting: a-0 is listed at 60, but its record says it is active"]);
    let reported = tampered(|t| cut(t, LEASES, (60, "a-0"))).await;
    assert_eq!(reported, ["leases: a-0 should stand at 60, but does not"]);
    let reported = tampered(|t| put(t, LEASES, (1000, "later-0"), ())).await;
    assert_eq!(reported, ["leases: later-0 is listed at 1000, but its record says it is scheduled"]);
    let reported = tampered(|t| put(t, LEASES, (60, "x"), ())).await;
    assert_eq!(reported, ["leases: x is listed at 60, but there is no such job"]);
}

#[tokio::test]
async fn check_reports_wrong_held_and_ended_jobs() {
    let reported = tampered(|t| cut(t, HELD, ("w1", "a-0"))).await;
    assert_eq!(reported, ["held: a-0 should stand under w1, but does not"]);
    let reported = tampered(|t| put(t, HELD, ("w2", "a-0"), ())).await;
    assert_eq!(reported, ["held: a-0 is listed under w2, but its record says that w1 has it"]);
    let reported = tampered(|t| put(t, HELD, ("w2", "a-1"), ())).await;
    assert_eq!(reported, ["held: a-1 is listed under w2, but its record says it is completed"]);
    let reported = tampered(|t| cut(t, ENDED, (2, 20, "a-1"))).await;
    assert_eq!(reported, ["ended: a-1 should stand under status 2 at 20, but does not"]);
    let reported = tampered(|t| put(t, ENDED, (3, 20, "a-1"), ())).await;
    assert_eq!(reported, ["ended: a-1 is listed under status 3 at 20, but its record says status 2 at 20"]);
    let reported = tampered(|t| put(t, ENDED, (2, 20, "a-0"), ())).await;
    assert_eq!(reported, ["ended: a-0 is listed under status 2 at 20, but its record says it is active"]);
}
