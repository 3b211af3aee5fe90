//! Pure decisions about repeated submissions, which both stores make alike.

use agenix_rules::{
    action::{self, Action},
    job::NewJob,
};

use super::{NewAction, RuleResult};

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
    if let Err(rejection) = action::check_place(action, at) {
        return Ok(Err(rejection));
    }
    let mut known = 0;
    for (index, job) in (at..action.total_jobs).zip(jobs) {
        if let Err(rejection) = action::check_known(index, has_input(index, &job.input)?) {
            return Ok(Err(rejection));
        }
        known += 1;
    }
    Ok(Ok(known))
}

/// Returns true if `known`, the stored action, can come from the same submission as `new`. The
/// caller still has to compare the inputs.
pub(super) fn may_be_same(known: &Action, new: &NewAction) -> bool {
    let count = new.jobs.len() as u64;
    // An open action may have grown after its submission.
    let fits = known.total_jobs == count || (known.wishes.open && known.total_jobs > count);
    fits && action::is_same(known, &new.action)
}
