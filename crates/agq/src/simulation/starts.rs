//! Starts of the jobs of each limit with a rate, as a history.

use std::collections::BTreeMap;

use agenix_rules::job::Job;

use super::{
    job_terms::{KeyLimit, Rate},
    ledger::CheckResult,
};

#[derive(Debug, Clone)]
struct Start {
    at_ms: u64,
    job_id: String,
    attempt: u32,
}

/// Starts of the jobs of one limit since the clock was last set.
#[derive(Debug, Clone, Default)]
struct History {
    starts: Vec<Start>,
    /// Set if agq may count starts that the history does not have, because the clock was set, or
    /// because agq was started again.
    is_partial: bool,
}

/// Histories of limits, by key.
#[derive(Debug, Clone, Default)]
pub(super) struct StartHistories {
    of_limits: BTreeMap<String, History>,
    /// Set if claims in flight may have the time of a clock that has been set since.
    was_clock_set: bool,
}

impl Rate {
    /// Returns the time between evenly spaced starts, in microseconds.
    fn gap_micros(self) -> u64 {
        (self.period_ms * 1000).div_ceil(self.jobs)
    }

    /// Returns true if a token bucket for the jobs of one period, which is refilled evenly, has a
    /// token for a start at `at_ms` after `starts`: in no window may more jobs start than those of
    /// a full bucket and those whose tokens were added in the window.
    fn admits(self, starts: &[Start], at_ms: u64) -> bool {
        (1..).zip(starts.iter().rev()).all(|(later, first): (u64, _)| {
            let beyond_bucket = (later + 1).saturating_sub(self.jobs);
            at_ms.saturating_sub(first.at_ms) * 1000 >= beyond_bucket * self.gap_micros()
        })
    }
}

impl StartHistories {
    /// Records that the clock was set: the times of earlier starts cannot be compared with those of
    /// later ones.
    pub(super) fn clock_was_set(&mut self) {
        self.was_clock_set = true;
        for history in self.of_limits.values_mut() {
            *history = History { starts: Vec::new(), is_partial: true };
        }
    }

    /// Records that no claim is in flight.
    pub(super) fn nothing_is_in_flight(&mut self) {
        self.was_clock_set = false;
    }

    /// Records the start of a job, and checks that its rate admits it. `at_ms` is `None` if the
    /// time of the start is unknown.
    pub(super) fn record(
        &mut self,
        limit: &KeyLimit,
        (job_id, attempt): (&str, u32),
        at_ms: Option<u64>,
    ) -> CheckResult {
        let Some(rate) = limit.rate else { return Ok(()) };
        let history = self.of_limits.entry(limit.key.clone()).or_default();
        let Some(at_ms) = at_ms.filter(|_| !self.was_clock_set) else {
            history.is_partial = true;
            return Ok(());
        };
        if !rate.admits(&history.starts, at_ms) {
            let times: Vec<u64> = history.starts.iter().map(|start| start.at_ms).collect();
            return Err(format!("{job_id} starts at {at_ms} under {limit:?}, after the starts {times:?}"));
        }
        history.starts.push(Start { at_ms, job_id: job_id.to_owned(), attempt });
        Ok(())
    }

    /// Returns true if the rate of a limit certainly admits a start at `at_ms` or later.
    pub(super) fn admits(&self, limit: &KeyLimit, at_ms: Option<u64>) -> bool {
        let Some(rate) = limit.rate else { return true };
        let Some(at_ms) = at_ms.filter(|_| !self.was_clock_set) else { return false };
        self.of_limits
            .get(&limit.key)
            .is_none_or(|history| !history.is_partial && rate.admits(&history.starts, at_ms))
    }

    /// Removes the starts that a crash has undone. A start that was never answered may have
    /// happened.
    pub(super) fn restart(&mut self, jobs: &[Job]) {
        self.was_clock_set = false;
        for history in self.of_limits.values_mut() {
            history.is_partial = true;
            history.starts.retain(|start| {
                let job = jobs.iter().find(|job| job.job_id.as_str() == start.job_id);
                job.is_some_and(|job| job.attempt >= start.attempt)
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{KeyLimit, Rate, StartHistories};

    #[test]
    fn starts_of_a_rate_fill_a_bucket_and_follow_evenly() {
        let rate = Some(Rate { jobs: 2, period_ms: 3000 });
        let limit = KeyLimit { key: "a".to_owned(), max_running: None, rate };
        let mut all = StartHistories::default();
        for at_ms in [10_000, 10_000, 11_500, 15_000, 15_000] {
            assert!(!all.admits(&limit, Some(at_ms - 1)) || at_ms != 11_500);
            assert_eq!(all.record(&limit, ("j", 1), Some(at_ms)), Ok(()));
        }
        assert!(!all.admits(&limit, Some(16_499)) && all.admits(&limit, Some(16_500)));
        assert!(!all.admits(&limit, None));
        assert!(all.record(&limit, ("j", 1), Some(16_499)).is_err());
        all.clock_was_set();
        assert!(!all.admits(&limit, Some(90_000)), "agq may wait");
        assert_eq!(all.record(&limit, ("j", 1), Some(10)), Ok(()));
    }
}
