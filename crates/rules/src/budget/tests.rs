//! Tests of the use of a budget.

use agenix_protocol::{
    documents::{Plan, parse},
    time::Timestamp,
};

use super::{
    Budget, BudgetAmount, Exhausted, JobBudget, RunBound, RunChange, RunUse, SubmissionCharge, Usage,
};

const HOUR: u64 = 3_600_000;
const BOUND: RunBound = RunBound { cpu_ms: 60_000, output_bytes: 100 };

fn budget() -> Budget {
    Budget { per_hours: 24, jobs: Some(10), plans: Some(2), ..Budget::default() }
}

fn charge(budget: Budget, now: Timestamp) -> SubmissionCharge {
    SubmissionCharge { name: "alice".into(), budget, later_jobs: 0, now }
}

fn charged(usage: &Usage, jobs: u64, at: u64) -> Result<Usage, Exhausted> {
    usage.charged(&charge(budget(), Timestamp(at)), jobs, 0)
}

#[test]
fn submission_is_charged_whole_or_refused_with_its_return() {
    let used = charged(&Usage::default(), 8, 5 * HOUR).unwrap();
    let used = charged(&used, 2, 6 * HOUR + 1).unwrap();
    assert_eq!(used.used(BudgetAmount::Jobs, Timestamp(6 * HOUR + 1)), 10);
    let refused = charged(&used, 1, 7 * HOUR).unwrap_err();
    let words = "used up: jobs 10 of 10, next at 1970-01-02T06:00:00.000Z";
    assert_eq!(refused.to_string(), words);
    assert!(charged(&used, 1, 30 * HOUR - 1).is_err());
    let later = charged(&used, 8, 30 * HOUR).unwrap();
    assert_eq!(later.used(BudgetAmount::Jobs, Timestamp(30 * HOUR)), 10, "the first hour is over");
    let nine = charged(&used, 9, 7 * HOUR).unwrap_err();
    assert_eq!(nine.to_string(), "used up: jobs 10 of 10, 9 wanted, next at 1970-01-02T07:00:00.000Z");
    let many = charged(&used, 11, 7 * HOUR).unwrap_err();
    assert_eq!(many.to_string(), "too small: jobs 11 wanted, at most 10");
    assert_eq!(many.next, None);
}

#[test]
fn plans_and_unbounded_amounts_are_counted_apart() {
    let now = Timestamp(HOUR);
    let used = Usage::default().charged(&charge(budget(), now), 0, 2).unwrap();
    assert!(used.charged(&charge(budget(), now), 0, 1).is_err());
    assert!(used.charged(&charge(budget(), now), 10, 0).is_ok());
    let unbounded = Budget { per_hours: 24, ..Budget::default() };
    let more = used.under(unbounded).charged(&charge(unbounded, now), 1000, 1000).unwrap();
    assert_eq!((more.used(BudgetAmount::Jobs, now), more.used(BudgetAmount::Plans, now)), (1000, 1002));
}

#[test]
fn charge_under_terms_of_before_a_change_does_not_bring_them_back() {
    let now = Timestamp(HOUR);
    let unbounded = Budget { per_hours: 24, ..Budget::default() };
    let used = Usage::default().charged(&charge(budget(), now), 1, 0).unwrap();
    let late = used.under(unbounded).charged(&charge(budget(), now), 1, 0).unwrap();
    assert_eq!(late.budget, unbounded);
    assert!(late.charged(&charge(budget(), now), 1000, 0).is_ok());
}

/// Every window of 24 hours has at most the budget, whatever is asked for and when.
#[test]
fn no_window_has_more_than_the_budget() {
    let mut random = 7_u64;
    let mut next = |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % below
    };
    let (mut usage, mut now, mut accepted) = (Usage::default(), 0, Vec::new());
    for _ in 0..20_000 {
        now += next(2 * HOUR);
        let jobs = 1 + next(6);
        match charged(&usage, jobs, now) {
            Ok(charged) => {
                usage = charged;
                accepted.push((now, jobs));
            }
            Err(refused) => {
                let at = refused.next.unwrap();
                assert!(at.0 > now && charged(&usage, jobs, at.0 - 1).is_err());
                assert!(charged(&usage, jobs, at.0).is_ok(), "it fits when it was promised");
            }
        }
        let start = now.saturating_sub(24 * HOUR);
        let window: u64 =
            accepted.iter().rev().take_while(|(at, _)| *at >= start).map(|(_, jobs)| jobs).sum();
        assert!(window <= 10, "{window} at {now}");
    }
    assert!(accepted.len() > 1000);
    assert!(serde_json::to_string(&usage).unwrap().len() < 1000, "only the hours of the window are kept");
}

#[test]
fn hours_of_a_clock_that_was_ahead_come_back_after_a_window() {
    let ahead = charged(&Usage::default(), 10, 1000 * HOUR).unwrap();
    let now = 5 * HOUR;
    assert!(charged(&ahead, 1, now).is_err());
    // The first change after the clock was set back moves the hours.
    let began = ahead.changed(RunChange::Began { bound: BOUND, at: Timestamp(now) });
    assert!(charged(&began, 1, now + 26 * HOUR - 1).is_err());
    assert!(charged(&began, 1, now + 26 * HOUR).is_ok());
}

fn running_budget() -> Budget {
    Budget {
        per_hours: 24,
        running: Some(2),
        cpu_secs: Some(180),
        output_bytes: Some(250),
        ..Budget::default()
    }
}

#[test]
fn claims_reserve_and_ends_charge_the_use() {
    let now = Timestamp(HOUR);
    let usage = Usage::default().under(running_budget());
    let began = RunChange::Began { bound: BOUND, at: now };
    let one = usage.changed(began);
    assert!(one.check_start(&BOUND, now).is_ok());
    let two = one.changed(began);
    assert_eq!(two.check_start(&BOUND, now).unwrap_err().amount, BudgetAmount::Running);
    assert_eq!(two.used(BudgetAmount::CpuMs, now), 120_000);
    let used = RunUse { cpu_ms: 5_000, output_bytes: 90 };
    let ended = two.changed(RunChange::Ended { bound: BOUND, used, at: now });
    assert_eq!(ended.used(BudgetAmount::CpuMs, now), 65_000);
    assert_eq!(ended.used(BudgetAmount::OutputBytes, now), 190);
    let refused = ended.check_start(&BOUND, now).unwrap_err();
    assert_eq!(refused.to_string(), "used up: output_bytes 190 of 250, 100 wanted, next when a job ends");
    let idle = ended.changed(RunChange::Ended { bound: BOUND, used: RunUse::default(), at: now });
    assert_eq!((idle.used(BudgetAmount::Running, now), idle.reserved()), (0, RunBound::default()));
    assert!(idle.check_start(&BOUND, now).is_ok());
    assert!(idle.check_start(&RunBound { cpu_ms: 176_000, output_bytes: 0 }, now).is_err());
    assert_eq!(idle.returns_at(BudgetAmount::CpuMs, now), Some(Timestamp(26 * HOUR)));
    let text = serde_json::to_string(&idle).unwrap();
    assert_eq!(serde_json::from_str::<Usage>(&text).unwrap(), idle);
}

#[test]
fn bound_of_a_run_counts_each_task_with_the_timeout() {
    let plan: Plan = parse(
        br#"{"plan_id":"p","tasks":[{"task_number":1,"command":"a"},{"task_number":2,"command":"b"}]}"#,
    )
    .unwrap();
    let bound = running_budget().run_bound(Some(&plan), 10_000);
    assert_eq!(bound, RunBound { cpu_ms: 20_000, output_bytes: 125 });
    assert!(running_budget().check_bound(&bound).is_ok());
    let long = running_budget().run_bound(Some(&plan), 100_000);
    assert_eq!(
        running_budget().check_bound(&long).unwrap_err().to_string(),
        "too small: cpu_secs 200 wanted, at most 180"
    );
    let unbounded = running_budget().run_bound(None, 0);
    assert_eq!(
        running_budget().check_bound(&unbounded).unwrap_err().to_string(),
        "too small: a job without a timeout has no bound of cpu_secs"
    );
    assert!(budget().check_bound(&unbounded).is_ok(), "nothing bounds its processor time");
    let without = budget().run_bound(Some(&plan), 10_000);
    assert_eq!(without.cpu_ms, 0, "a job of a budget without cpu_secs has its timeout alone");
    let max_cpu_ms = |bound| JobBudget { bound, ..JobBudget::default() }.max_cpu_ms();
    assert_eq!([bound, without].map(max_cpu_ms), [Some(20_000), None]);
}

#[test]
fn smaller_budget_also_bounds_the_runs_of_jobs_of_before() {
    let now = Timestamp(HOUR);
    let smaller = Budget { cpu_secs: Some(50), output_bytes: Some(150), ..running_budget() };
    let reserved = smaller.reservation(&BOUND);
    assert_eq!(reserved, RunBound { cpu_ms: 50_000, output_bytes: 75 });
    let usage = Usage::default().under(smaller);
    assert_eq!(usage.check_start(&BOUND, now), Ok(()));
    let began = usage.changed(RunChange::Began { bound: reserved, at: now });
    let refused = began.check_start(&BOUND, now).unwrap_err();
    assert_eq!(refused.to_string(), "used up: cpu_secs 50 of 50, 50 wanted, next when a job ends");

    let larger = Budget { cpu_secs: Some(1000), output_bytes: Some(1000), ..running_budget() };
    let unbounded = Budget { per_hours: 24, ..Budget::default() };
    assert_eq!([larger, unbounded].map(|budget| budget.reservation(&BOUND)), [BOUND; 2]);
    assert_eq!(unbounded.reservation(&RunBound::default()), RunBound::default(), "it has no bound");
    assert_eq!(smaller.reservation(&RunBound::default()), reserved, "its budget had no such amounts");
    let nothing = Budget { cpu_secs: Some(0), ..smaller };
    assert!(nothing.reservation(&BOUND).cpu_ms > 0, "0 would be no bound");
    assert!(Usage::default().under(nothing).check_start(&BOUND, now).is_err());
}

#[test]
fn free_starts_are_the_runs_that_a_budget_permits_one_after_another() {
    let at = Timestamp(HOUR);
    for (running, cpu_secs, output_bytes, expected) in [
        (None, None, None, u64::MAX),
        (Some(3), None, None, 2),
        (Some(3), Some(179), None, 1),
        (Some(3), Some(119), None, 0),
        (None, Some(6000), Some(1600), 15),
    ] {
        let budget = Budget { per_hours: 24, running, cpu_secs, output_bytes, ..Budget::default() };
        let bound = RunBound { cpu_ms: 60_000, ..budget.run_bound(None, 0) };
        let begun = |usage: Usage| usage.changed(RunChange::Began { bound, at });
        let mut usage = begun(Usage::default().under(budget));
        assert_eq!(usage.free_starts(at), expected, "{budget:?}");
        for left in (0..expected.min(16)).rev() {
            assert_eq!(usage.check_start(&bound, at), Ok(()), "{budget:?}");
            usage = begun(usage);
            assert_eq!(usage.free_starts(at), if expected == u64::MAX { u64::MAX } else { left });
        }
        assert_eq!(usage.check_start(&bound, at).is_err(), expected != u64::MAX, "{budget:?}");
    }
    let used_up = Usage::default().under(Budget { per_hours: 24, cpu_secs: Some(0), ..Budget::default() });
    assert_eq!(used_up.free_starts(at), 0, "no run is there to tell what one needs");
}
