//! Pure decisions about repeated submissions, which both stores make alike.

use agenix_rules::{
    action::{self, Action},
    budget::{SubmissionCharge, Usage},
    job::NewJob,
    rejection::Rejection,
};

use super::{NewAction, RuleResult};

/// Unwraps the result of a rule, or returns its rejection from a function that returns
/// `Result<RuleResult<_>, _>`.
macro_rules! accepted {
    ($result:expr) => {
        match $result {
            Ok(value) => value,
            Err(rejection) => return Ok(Err(rejection)),
        }
    };
}
pub(super) use accepted;

/// Returns the number of `jobs` that `action` already has from input `at` on; 0 if `at` is absent.
///
/// `has_input` returns true if the action has an equal input at an index. Rejects an `at` beyond
/// the end of the action, and an input that differs from the stored one.
pub(super) fn count_known<E>(
    action: &Action,
    at: Option<u64>,
    jobs: &[NewJob],
    mut has_input: impl FnMut(u64, &str) -> Result<bool, E>,
) -> Result<RuleResult<usize>, E> {
    let Some(at) = at else { return Ok(Ok(0)) };
    accepted!(action::check_place(action, at));
    let mut known = 0;
    for (index, job) in (at..action.total_jobs).zip(jobs) {
        accepted!(action::check_known(index, has_input(index, &job.input)?));
        known += 1;
    }
    Ok(Ok(known))
}

/// Returns `usage` with `jobs` new jobs and `plans` new plans.
pub(super) fn charged(
    usage: &Usage,
    charge: &SubmissionCharge,
    jobs: usize,
    plans: u64,
) -> RuleResult<Usage> {
    let jobs = charge.later_jobs.saturating_add(jobs as u64);
    usage.charged(charge, jobs, plans).map_err(Rejection::Budget)
}

/// Returns true if `known` and `new` can come from one submission. The caller still compares the
/// inputs.
pub(super) fn may_be_same(known: &Action, new: &NewAction) -> bool {
    let count = new.jobs.len() as u64;
    // An open action may have grown after its submission.
    let has_grown = known.wishes.open && known.total_jobs > count;
    let fits = known.total_jobs == count || has_grown || new.may_leave_out();
    fits && action::is_same(known, &new.action)
}
