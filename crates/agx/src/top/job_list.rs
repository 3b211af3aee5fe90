//! Choice of the jobs for the screen of an action.

use agenix_protocol::ids::JobId;

/// Maximum number of jobs on the screen of an action.
pub(super) const MAX_JOBS: usize = 200;

/// Failed jobs on the screen of an action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FailedJobs {
    pub(super) ids: Vec<JobId>,
    /// Numbers of failed and of dead jobs that the action had when `ids` were listed.
    pub(super) counts: (u64, u64),
}

/// Returns the jobs for the screen of an action: failed ones, and then others of the `first` ones.
pub(super) fn jobs_shown(failed: Vec<JobId>, first: Vec<JobId>) -> Vec<JobId> {
    let others: Vec<JobId> = first.into_iter().filter(|job_id| !failed.contains(job_id)).collect();
    failed.into_iter().chain(others).take(MAX_JOBS).collect()
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use agenix_protocol::ids::JobId;

    use super::{MAX_JOBS, jobs_shown};

    #[test]
    fn top_lists_failed_jobs_before_the_first_ones() {
        let ids = |range: Range<usize>| -> Vec<JobId> {
            range.map(|index| JobId::new(format!("j{index}")).unwrap()).collect()
        };
        let shown = jobs_shown(ids(900..901), ids(0..MAX_JOBS));
        assert_eq!(shown, [ids(900..901), ids(0..MAX_JOBS - 1)].concat());
        assert_eq!(jobs_shown(ids(1..2), ids(0..3)), [ids(1..2), ids(0..1), ids(2..3)].concat());
        assert_eq!(jobs_shown(ids(0..MAX_JOBS), ids(0..MAX_JOBS)), ids(0..MAX_JOBS));
    }
}
