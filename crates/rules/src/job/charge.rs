//! Budget of a job: when its runs begin and end, and what they used.

use agenix_protocol::time::Timestamp;

use super::{Job, JobState};
use crate::budget::{Budget, JobBudget, RunBound, RunChange, RunUse};

/// Returns the budget that a job is charged to.
pub fn budget_of(job: &Job) -> Option<&JobBudget> {
    job.ojs.as_deref()?.budget.as_deref()
}

/// Returns the budget of a job, and the effect on it if the job changes from `before` to `job`.
pub fn run_change<'j>(before: Option<&Job>, job: &'j Job) -> Option<(&'j str, RunChange)> {
    let JobBudget { name, bound, used, ended_at } = budget_of(job)?;
    let was_active = before.is_some_and(|before| before.state == JobState::Active);
    let bound = *bound;
    let change = match (was_active, job.state == JobState::Active) {
        (false, true) => RunChange::Began { bound, at: job.started_at.unwrap_or_default() },
        (true, false) => {
            let used = used.unwrap_or_else(|| RunUse::whole(&bound));
            RunChange::Ended { bound, used, at: *ended_at }
        }
        _ => return None,
    };
    Some((name, change))
}

/// Returns the name of the budget of a job, and the bound of its next run. The processor time of a
/// job that was submitted while its budget did not limit it is bounded by the timeout.
pub fn start_of(job: &Job) -> Option<(&str, RunBound)> {
    let JobBudget { name, bound, .. } = budget_of(job)?;
    let cpu_ms = if bound.cpu_ms == 0 { job.timeout_ms } else { bound.cpu_ms };
    Some((name, RunBound { cpu_ms, ..*bound }))
}

/// Sets the bound of a run that begins to what its budget, which has the terms `budget` now, lets
/// it reserve.
pub fn reserve(job: &mut Job, budget: &Budget) {
    let Some((_, bound)) = start_of(job) else { return };
    if let Some(of_job) = budget_of_mut(job) {
        let bound = if budget.cpu_secs.is_some() { bound } else { of_job.bound };
        of_job.bound = budget.reservation(&bound);
    }
}

/// Sets the use of a run that a report has ended, according to the `results` of its tasks. The
/// result of an OJS worker has no figures that can be relied on, so its run is charged its whole
/// bound.
pub fn charged(before: &Job, next: &mut Job, results: &str) {
    if before.state == JobState::Active
        && next.state != JobState::Active
        && let Some(budget) = budget_of_mut(next)
    {
        let bound = &budget.bound;
        let of_report =
            if before.is_reserved() { RunUse::whole(bound) } else { RunUse::of_results(results, bound) };
        budget.used = budget.used.or(Some(of_report));
    }
}

/// Sets the use of the current run of a job that has a budget.
pub(super) fn set_use(job: &mut Job, used: Option<RunUse>) {
    if let Some(budget) = budget_of_mut(job) {
        budget.used = used;
    }
}

/// Notes the end of the run of a job that has a budget and runs.
pub(super) fn end_run(job: &mut Job, now: Timestamp) {
    if job.state == JobState::Active
        && let Some(budget) = budget_of_mut(job)
    {
        budget.ended_at = now;
    }
}

fn budget_of_mut(job: &mut Job) -> Option<&mut JobBudget> {
    job.ojs.as_deref_mut()?.budget.as_deref_mut()
}

#[cfg(test)]
mod tests {
    use agenix_protocol::{
        documents::{JobUpdate, Status},
        time::Timestamp,
    };

    use super::{
        Job, JobBudget, RunBound, RunChange, RunUse, budget_of, budget_of_mut, charged, reserve, run_change,
        start_of,
    };
    use crate::{
        action::Action,
        budget::Budget,
        job::{
            JobParams, LeaseOptions, Ojs, QueuePosition, RuleOutcome, abandoned, cancelled, claimed, due,
            given_back, updated,
        },
    };

    const BOUND: RunBound = RunBound { cpu_ms: 60_000, output_bytes: 100 };
    const WHOLE: RunUse = RunUse { cpu_ms: 60_000, output_bytes: 100 };

    fn waiting() -> Job {
        let action = Action::new("a".parse().unwrap(), "p".parse().unwrap(), Timestamp(1));
        let budget = JobBudget { name: "alice".into(), bound: BOUND, ..JobBudget::default() };
        let ojs = Ojs { budget: Some(Box::new(budget)), ..Ojs::of("plan.p") };
        let terms = JobParams {
            ojs: Some(Box::new(ojs)),
            timeout_ms: 60_000,
            max_retries: 1,
            ..JobParams::default()
        };
        Job::new("j".parse().unwrap(), &action, 0, QueuePosition { lane: 0, seq: 0 }, &terms, Timestamp(1))
    }

    fn running() -> Job {
        claimed(&waiting(), "w", Timestamp(10), LeaseOptions { start_timeout_ms: 1000, visibility_ms: None })
    }

    /// Returns a running job with this visibility timeout: with one, an OJS worker runs it.
    fn running_for(visibility_ms: u64) -> Job {
        let mut job = running();
        let ojs = job.ojs.take().unwrap();
        job.ojs = Some(Box::new(Ojs { visibility_ms, ..*ojs }));
        job
    }

    fn after(outcome: RuleOutcome) -> Job {
        match outcome {
            RuleOutcome::Changed(job) => *job,
            RuleOutcome::Unchanged => panic!("nothing changed"),
        }
    }

    fn report(job: &Job, status: Status, at: u64) -> Job {
        let update = JobUpdate { status: Some(status), attempt: Some(1), ..JobUpdate::default() };
        after(updated(job, &update, "w", None, Timestamp(at), 0.5).unwrap())
    }

    #[test]
    fn claim_begins_a_run_and_nothing_else_does() {
        let (before, job) = (waiting(), running());
        assert_eq!(run_change(None, &before), None);
        let began = RunChange::Began { bound: BOUND, at: Timestamp(10) };
        assert_eq!(run_change(Some(&before), &job), Some(("alice", began)));
        assert_eq!(run_change(Some(&job), &report(&job, Status::Running, 20)), None);
        assert_eq!(run_change(Some(&before), &after(cancelled(&before, Timestamp(9)).unwrap())), None);
        let plain = Job { ojs: None, ..job };
        assert_eq!(run_change(Some(&Job { ojs: None, ..before }), &plain), None);
    }

    #[test]
    fn run_under_a_smaller_budget_reserves_less() {
        let mut job = running();
        reserve(&mut job, &Budget { cpu_secs: Some(20), ..Budget::default() });
        let bound = RunBound { cpu_ms: 20_000, ..BOUND };
        let began = RunChange::Began { bound, at: Timestamp(10) };
        assert_eq!(run_change(Some(&waiting()), &job), Some(("alice", began)));
        let end = after(cancelled(&job, Timestamp(30)).unwrap());
        let ended = RunChange::Ended { bound, used: RunUse::whole(&bound), at: Timestamp(30) };
        assert_eq!(run_change(Some(&job), &end), Some(("alice", ended)));
    }

    #[test]
    fn run_reserves_amounts_that_its_budget_got_after_the_submission() {
        let reserved = |budget: Budget| {
            let mut job = running();
            budget_of_mut(&mut job).unwrap().bound = RunBound::default();
            assert_eq!(start_of(&job), Some(("alice", RunBound { output_bytes: 0, ..BOUND })));
            reserve(&mut job, &budget);
            budget_of(&job).unwrap().bound
        };
        let limited = Budget { cpu_secs: Some(100), output_bytes: Some(1600), ..Budget::default() };
        assert_eq!(reserved(limited), BOUND, "the timeout, and a share of the output");
        let little = Budget { cpu_secs: Some(20), ..Budget::default() };
        assert_eq!(reserved(little), RunBound { cpu_ms: 20_000, output_bytes: 0 });
        assert_eq!(reserved(Budget { running: Some(1), ..Budget::default() }), RunBound::default());
    }

    #[test]
    fn run_without_figures_is_charged_its_reservation() {
        let job = running();
        let confirmed = report(&job, Status::Running, 20);
        let ends = [
            after(abandoned(&confirmed, "w", Timestamp(30))),
            after(cancelled(&job, Timestamp(30)).unwrap()),
            after(cancelled(&confirmed, Timestamp(30)).unwrap()),
            after(given_back(&confirmed, "w", None, Timestamp(30))),
            report(&confirmed, Status::Failed, 30),
        ];
        let ended_at = |at| RunChange::Ended { bound: BOUND, used: WHOLE, at: Timestamp(at) };
        for end in ends {
            assert_eq!(run_change(Some(&job), &end), Some(("alice", ended_at(30))), "{end:?}");
        }
        let late = after(due(&confirmed, Timestamp(60_010), 0.5));
        assert_eq!(run_change(Some(&job), &late), Some(("alice", ended_at(60_010))));
    }

    #[test]
    fn result_of_an_ojs_worker_is_charged_its_reservation() {
        let used = |visibility_ms: u64| {
            let job = running_for(visibility_ms);
            let mut next = report(&job, Status::Completed, 30);
            charged(&job, &mut next, "[]");
            budget_of(&next).unwrap().used
        };
        assert_eq!(used(30_000), Some(WHOLE));
        assert_eq!(used(0), Some(RunUse::default()), "an agw has run nothing");
    }

    #[test]
    fn claim_that_ends_before_its_first_report_is_charged_nothing() {
        let job = running();
        let ends = [
            (30, after(given_back(&job, "w", None, Timestamp(30)))),
            (30, after(abandoned(&job, "w", Timestamp(30)))),
            (30, report(&job, Status::Cancelled, 30)),
            (1010, after(due(&job, Timestamp(1010), 0.5))),
        ];
        for (at, end) in ends {
            let ended = RunChange::Ended { bound: BOUND, used: RunUse::default(), at: Timestamp(at) };
            assert_eq!(run_change(Some(&job), &end), Some(("alice", ended)), "{end:?}");
        }
        let again = claimed(
            &after(given_back(&job, "w", None, Timestamp(30))),
            "x",
            Timestamp(40),
            LeaseOptions::default(),
        );
        assert_eq!(budget_of(&again).unwrap().used, None, "the next run has figures of its own");
    }

    #[test]
    fn ojs_job_is_charged_once_it_is_fetched() {
        let job = running_for(30_000);
        let used = |attempt| {
            let end = after(given_back(&job, "w", attempt, Timestamp(30)));
            match run_change(Some(&job), &end) {
                Some((_, RunChange::Ended { used, .. })) => used,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(used(None), WHOLE, "no worker reports its start");
        assert_eq!(used(Some(1)), RunUse::default(), "the fetch never got its reply");
    }

    #[test]
    fn report_of_the_end_has_the_figures() {
        let job = running();
        let figures = |results: &str| {
            let mut end = report(&job, Status::Completed, 30);
            charged(&job, &mut end, results);
            budget_of(&end).unwrap().used.unwrap()
        };
        let both =
            r#"[{"user_ms":3,"system_ms":4,"stdout_bytes":10,"stderr":"ab"},{"user_ms":1,"system_ms":0}]"#;
        assert_eq!(figures(both), RunUse { cpu_ms: 8, output_bytes: 12 });
        assert_eq!(figures(r#"[{"user_ms":3,"stdout":"a\n"}]"#), RunUse { cpu_ms: 60_000, output_bytes: 2 });
        assert_eq!(figures("[]"), RunUse::default());
        assert_eq!(figures(r#"{"own":1}"#), WHOLE);
        let mut progress = report(&job, Status::Running, 20);
        charged(&job, &mut progress, both);
        assert_eq!(budget_of(&progress).unwrap().used, None);
    }
}
