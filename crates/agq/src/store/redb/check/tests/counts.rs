//! Wrong counts.

use agenix_protocol::{documents::to_json, time::Timestamp};
use agenix_rules::{
    action::{Action, JobCounts},
    capability::Needs,
    job::{Job, Ojs},
    limit::Limit,
};

use super::{cut, edit, put, tampered, write};
use crate::store::{
    DocumentKind, Totals,
    redb::schema::{
        codec::encode,
        index_keys::LaneKey,
        tables::{ACTIONS, DOCUMENTS, JOB_COUNTS, JOBS, LANE_LENGTHS, LANES, PLAN_LOADS, TOTALS},
    },
};

#[tokio::test]
async fn check_reports_wrong_lanes_and_plan_loads() {
    let lane = |queue: &str| {
        let key = LaneKey { queue: queue.into(), needs: Needs::default() };
        encode(&key).unwrap()
    };
    let add = |number: u32, key: Vec<u8>| {
        tampered(move |t| {
            put(t, LANES, number, key.as_slice());
            put(t, LANE_LENGTHS, number, (0, 0));
        })
    };
    assert_eq!(add(3, lane("other")).await, ["lanes: lane 3 has no jobs"]);
    let twice = ["lanes: lanes 1 and 2 have the same queue and needs", "lanes: lane 2 has no jobs"];
    assert_eq!(add(2, lane("gpu")).await, twice);
    let reported = tampered(|t| put(t, LANES, 2, b"?".as_slice())).await;
    assert_eq!(reported, ["lanes: lane 2 has a record that cannot be read"]);
    let without_lane = [
        "lanes: later-0 belongs to lane 1, but there is no such lane",
        "lane_lengths: lane 1 has a length, but there is no such lane",
        "queue_counts: gpu counts [0, 1, 0, 0, 0, 0, 0, 0] by state, but should count [0, 0, 0, 0, 0, 0, 0, 0]",
    ];
    assert_eq!(tampered(|t| cut(t, LANES, 1)).await, without_lane);
    let reported = tampered(|t| put(t, LANE_LENGTHS, 0, (4, 7))).await;
    assert_eq!(reported, ["lane_lengths: lane 0 counts 4 ready jobs of 7, but should count 1 of 5"]);
    let reported = tampered(|t| cut(t, LANE_LENGTHS, 0)).await;
    assert_eq!(reported, ["lane_lengths: lane 0 has no length"]);
    let reported = tampered(|t| put(t, PLAN_LOADS, "p", 9)).await;
    assert_eq!(reported, ["plan_loads: p counts 9 jobs that have not ended, but should count 4"]);
    let reported = tampered(|t| cut(t, PLAN_LOADS, "p")).await;
    assert_eq!(reported, ["plan_loads: p counts 0 jobs that have not ended, but should count 4"]);
    let reported = tampered(|t| put(t, PLAN_LOADS, "q", 1)).await;
    assert_eq!(reported, ["plan_loads: q counts 1 jobs that have not ended, but should count 0"]);
}

#[tokio::test]
async fn check_reports_wrong_limits() {
    let limit = |active: u64| {
        let json = to_json(&Limit { active, ..Limit::default() });
        tampered(move |t| put(t, DOCUMENTS, (DocumentKind::Limit.as_str(), "k"), json.as_str()))
    };
    let none: [&str; 0] = [];
    assert_eq!(limit(0).await, none);
    assert_eq!(limit(1).await, ["notes: limit k counts 1 running jobs, but should count 0"]);
    let under_limit = tampered(|t| {
        edit::<Job>(t, JOBS, "a-0", |job| {
            job.ojs = Some(Box::new(Ojs { queue: "ready".into(), limit: Some("k".into()), ..Ojs::of("t") }));
        });
    });
    assert_eq!(under_limit.await, ["notes: limit k is missing, and 1 jobs under it run"]);
}

#[tokio::test]
async fn check_reports_wrong_job_counts_and_totals() {
    let counts = |id: &'static str, alter: fn(&mut JobCounts)| {
        tampered(move |t| edit::<JobCounts>(t, JOB_COUNTS, id, alter))
    };
    let reported = counts("a", |counts| (counts.jobs[0], counts.jobs[1]) = (1, 2)).await;
    let moved = [
        "tallies: a counts 1 pending jobs, but should count 2 at least",
        "tallies: a counts 2 running jobs, but should count 1",
    ];
    assert_eq!(reported, moved);
    let reported = counts("old", |counts| counts.jobs[5] += 1).await;
    assert_eq!(reported, ["tallies: old counts 3 jobs, but should count 2"]);
    let reported = counts("old", |counts| counts.last_ended_at = Some(Timestamp(5))).await;
    assert_eq!(reported, ["tallies: old has 5 as the end of its last job, but one ended at 30"]);
    assert_eq!(tampered(|t| cut(t, JOB_COUNTS, "a")).await, ["tallies: a has no counts"]);
    let reported = tampered(|t| write(t, JOB_COUNTS, "x", &JobCounts::default())).await;
    assert_eq!(reported, ["tallies: x has counts, but there is no such action"]);

    let totals = |alter: fn(&mut Totals)| tampered(move |t| edit::<Totals>(t, TOTALS, "totals", alter));
    let reported = totals(|totals| totals.now[3] = 1).await;
    assert_eq!(reported, ["totals: now counts 1 failed jobs, but should count 0"]);
    let reported = totals(|totals| totals.ever[2] = 0).await;
    assert_eq!(reported, ["totals: ever counts 0 completed jobs, but should count 1 at least"]);
    let reported = totals(|totals| totals.ever[0] = 5).await;
    assert_eq!(reported, ["totals: ever counts 5 pending jobs, but should count 6 at least"]);
}

#[tokio::test]
async fn check_reports_a_closed_action_without_jobs() {
    let reported = |is_open: bool, total_jobs: u64| {
        tampered(move |t| {
            let action = Action::new("x".parse().unwrap(), "p".parse().unwrap(), Timestamp(1));
            write(t, ACTIONS, "x", &Action { is_open, total_jobs, ..action });
            write(
                t,
                JOB_COUNTS,
                "x",
                &JobCounts { jobs: [0, 0, total_jobs, 0, 0, 0], ..JobCounts::default() },
            );
        })
    };
    assert_eq!(reported(true, 2).await, [""; 0]);
    assert_eq!(reported(false, 0).await, [""; 0]);
    assert_eq!(reported(false, 2).await, ["actions: x is closed, but none of its 2 jobs is left"]);
}
