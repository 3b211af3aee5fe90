//! Compares claims with a scan of every lane, and claims of shares with each other.

mod model;

use agenix_protocol::ids::JobId;
use agenix_rules::limit::LimitTerms;
use proptest::prelude::*;

use self::model::{Model, StoreStep, Submission, steps};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    #[test]
    fn claims_take_what_a_look_at_every_lane_finds(steps in steps()) {
        let mut model = Model::new();
        for step in steps {
            model.take(step)?;
        }
    }
}

/// Returns a submission without bounds.
fn plain(share: &'static str, priority: i32, jobs: usize) -> Submission {
    let (queue, tool, limit, budget, expires, delay_ms) = (0, 0, None, None, false, None);
    let share = Some(share);
    Submission { queue, tool, limit, budget, share, timeout_ms: 1000, priority, jobs, expires, delay_ms }
}

/// Claims `count` jobs, and returns the numbers of their actions.
fn claimed(model: &mut Model, count: usize) -> Vec<String> {
    let before = model.running.len();
    (0..count).for_each(|_| model.claim(0, &[0]).unwrap());
    let action = |job: &JobId| job.as_str().split('-').next().unwrap().to_owned();
    model.running[before..].iter().map(action).collect()
}

#[test]
fn job_behind_a_cancelled_one_may_fit_into_the_budget() {
    let mut model = Model::new();
    let submit = |model: &mut Model, seconds: u64| {
        let of = Submission { budget: Some(0), timeout_ms: seconds * 1000, ..plain("s", 0, 1) };
        model.submit(&of);
    };
    submit(&mut model, 3);
    assert_eq!(claimed(&mut model, 1), ["a1"]);
    submit(&mut model, 4);
    submit(&mut model, 2);
    assert!(claimed(&mut model, 1).is_empty(), "the second job needs more than is left");
    model.take(StoreStep::Cancel { place: 1 }).unwrap();
    assert_eq!(claimed(&mut model, 1), ["a3"]);
}

#[test]
fn few_jobs_of_a_share_do_not_wait_for_the_many_of_another() {
    let mut model = Model::new();
    model.submit(&plain("s", 0, 2000));
    claimed(&mut model, 500);
    model.submit(&plain("t", 0, 100));
    let served = claimed(&mut model, 200);
    let waits: Vec<usize> = (0..served.len()).filter(|at| served[*at] == "a2").collect();
    // Without the other share, the 95th job would be the 95th claim.
    assert!(waits.len() == 100 && waits[94] + 1 < 2 * 95, "{waits:?}");
}

#[test]
fn priorities_decide_within_a_share_and_age_among_equal_ones() {
    let mut model = Model::new();
    for (share, priority) in [("s", 0), ("s", 5), ("s", 5), ("t", 0)] {
        model.submit(&plain(share, priority, 1));
    }
    assert_eq!(claimed(&mut model, 4), ["a2", "a4", "a3", "a1"]);
}

#[test]
fn share_without_claimable_jobs_leaves_its_claims_to_others() {
    let mut model = Model::new();
    let paused = Submission {
        limit: Some((0, LimitTerms { concurrency: Some(0), ..LimitTerms::default() })),
        ..plain("s", 9, 5)
    };
    model.submit(&paused);
    model.submit(&plain("t", 0, 20));
    assert_eq!(claimed(&mut model, 20), vec!["a2"; 20]);
}
