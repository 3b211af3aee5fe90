//! Prefetch policy: a moving average of job run times, and the number of jobs to claim ahead. No
//! I/O, no clock.

use std::time::Duration;

/// Average run time below which jobs are prefetched. For longer jobs the round trip to agq does not
/// matter, and another worker could run a waiting job.
const SHORT_JOB: Duration = Duration::from_millis(200);
/// Total run time of the jobs that are prefetched for one slot. Claims that are sent together share
/// a wake-up and a sync. The bound limits how long a job waits here that another worker could run.
const PREFETCH_WINDOW: Duration = Duration::from_millis(40);
/// Divisor of the weight of the latest job in the average.
const PARTS: u32 = 8;

/// Exponential moving average of job run times, `None` before the first job has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct PrefetchPolicy {
    average: Option<Duration>,
}

impl PrefetchPolicy {
    /// Adds the run time of a finished job to the average.
    pub(crate) fn job_ended(&mut self, took: Duration) {
        let with = |average: Duration| (average * (PARTS - 1) + took) / PARTS;
        self.average = Some(self.average.map_or(took, with));
    }

    /// Forgets the average, because the running jobs take longer than expected.
    pub(crate) fn stalled(&mut self) {
        self.average = None;
    }

    /// Returns the number of jobs to prefetch for each slot, at most `most`.
    pub(crate) fn ahead(self, most: u32) -> u32 {
        match self.average {
            Some(average) if average < SHORT_JOB => {
                let while_long = PREFETCH_WINDOW.as_nanos().checked_div(average.as_nanos());
                let jobs = while_long.and_then(|jobs| u32::try_from(jobs).ok()).unwrap_or(u32::MAX);
                jobs.max(1).min(most)
            }
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::PrefetchPolicy;

    const SHORT: Duration = Duration::from_millis(2);
    const LONG: Duration = Duration::from_secs(10);

    fn after(times: &[Duration]) -> PrefetchPolicy {
        let mut pace = PrefetchPolicy::default();
        times.iter().for_each(|took| pace.job_ended(*took));
        pace
    }

    #[test]
    fn prefetch_is_zero_until_jobs_are_known_to_be_short() {
        assert_eq!(PrefetchPolicy::default().ahead(8), 0, "nothing is known yet");
        assert_eq!(after(&[LONG]).ahead(8), 0);
        assert_eq!(after(&[SHORT, SHORT, SHORT, LONG]).ahead(8), 0, "one long job among short ones");
        assert_eq!(after(&[SHORT]).ahead(0), 0, "it is switched off");
    }

    #[test]
    fn prefetch_grows_as_jobs_get_shorter() {
        let ahead = |micros: u64| after(&[Duration::from_micros(micros)]).ahead(8);
        assert_eq!(
            [200_000, 199_999, 40_000, 20_001, 20_000, 8_000, 5_000, 100, 0].map(ahead),
            [0, 1, 1, 1, 2, 5, 8, 8, 8]
        );
    }

    #[test]
    fn prefetch_resumes_some_short_jobs_after_a_long_one() {
        let mut pace = after(&[LONG]);
        let needed = (1..).find(|_| {
            pace.job_ended(SHORT);
            pace.ahead(1) > 0
        });
        assert!(needed.is_some_and(|jobs| (20..=40).contains(&jobs)), "{needed:?} jobs");
    }

    #[test]
    fn prefetch_stops_after_a_stall_until_a_job_ends() {
        let mut pace = after(&[SHORT]);
        pace.stalled();
        assert_eq!(pace.ahead(1), 0);
        pace.job_ended(SHORT);
        assert_eq!(pace.ahead(1), 1);
    }
}
