//! Limits of the jobs with one key: how many run at once, and how many start in a period (ext
//! rate-limiting).
//!
//! A limit delays claims, and never refuses submissions. The rate limit is the generic cell rate
//! algorithm (GCRA, ITU-T I.371), a form of the token bucket: a whole period's jobs may start
//! together, and further jobs are spaced evenly.

use agenix_protocol::{documents::StartRate, time::Timestamp};
use serde::{Deserialize, Serialize};

/// Terms of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LimitTerms {
    /// Maximum number of running jobs; `None` for no bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u64>,
    /// Maximum number of starts in a period; `None` for no bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<u64>,
    /// Period, in milliseconds.
    #[serde(default)]
    pub period_ms: u64,
}

impl LimitTerms {
    /// Returns the terms with a maximum of running jobs and a maximum rate; `None` without both.
    pub fn new(concurrency: Option<u64>, rate: Option<StartRate>) -> Option<Self> {
        if concurrency.is_none() && rate.is_none() {
            return None;
        }
        let (rate, period_ms) =
            rate.map_or((None, 0), |StartRate { jobs, period_ms }| (Some(jobs), period_ms));
        Some(Self { concurrency, rate, period_ms })
    }
}

/// Stored state of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[must_use]
pub struct Limit {
    /// Terms of the most recently submitted job with the key.
    pub terms: LimitTerms,
    /// Number of running jobs.
    pub active: u64,
    /// Theoretical arrival time of GCRA: end of all starts so far, if they were evenly spaced.
    pub spread_until: Timestamp,
    /// Microseconds of the theoretical arrival time after `spread_until`, 0 to 999.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub spread_micros: u16,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(micros: &u16) -> bool {
    *micros == 0
}

const MICROS_PER_MS: u64 = 1000;

fn micros(time: Timestamp) -> u64 {
    time.0.saturating_mul(MICROS_PER_MS)
}

impl Limit {
    /// Returns true if another job may start at `now`.
    pub fn admits(&self, now: Timestamp) -> bool {
        self.admits_from(now).is_some_and(|begin| begin <= now)
    }

    /// Returns the earliest time at which another job may start; `None` if a running job has to end
    /// first.
    pub fn admits_from(&self, now: Timestamp) -> Option<Timestamp> {
        let has_slot = self.terms.concurrency.is_none_or(|most| self.active < most);
        has_slot.then(|| self.begins_at(now))
    }

    /// Returns the earliest time at which the rate allows another start.
    pub fn begins_at(&self, now: Timestamp) -> Timestamp {
        let Some(gap) = self.gap_micros() else { return now };
        let begin = self.spread_from(now).saturating_sub(self.burst_micros(gap));
        Timestamp(begin.div_ceil(MICROS_PER_MS)).max(now)
    }

    /// Returns the number of jobs that may start at `now`, one after another.
    pub fn free_starts(&self, now: Timestamp) -> u64 {
        let slots = self.terms.concurrency.map_or(u64::MAX, |most| most.saturating_sub(self.active));
        let Some(gap) = self.gap_micros() else { return slots };
        let latest = micros(now).saturating_add(self.burst_micros(gap));
        let rest = latest.checked_sub(self.spread_from(now));
        rest.map_or(0, |rest| (rest / gap + 1).min(slots))
    }

    /// Counts a start.
    pub fn begun(self, now: Timestamp) -> Self {
        let next = Self { active: self.active + 1, ..self };
        match self.gap_micros() {
            Some(gap) => next.spread(self.spread_from(now).saturating_add(gap)),
            None => next,
        }
    }

    /// Returns the limit with other terms. The wait is at most a period of the new terms, however
    /// long it was.
    pub fn with_terms(self, terms: LimitTerms, now: Timestamp) -> Self {
        if self.terms == terms {
            return self;
        }
        let next = Self { terms, ..self };
        next.rescheduled(now).unwrap_or(next)
    }

    /// Returns the limit with the maximum wait, if the wait exceeds it, because the clock was set
    /// back or the terms are new.
    pub fn rescheduled(self, now: Timestamp) -> Option<Self> {
        let longest = self.gap_micros()?.saturating_mul(self.terms.rate.unwrap_or(1).max(1));
        let latest = micros(now).saturating_add(longest);
        (self.spread_from(now) > latest).then_some(self.spread(latest))
    }

    /// Counts the end of a job.
    pub fn ended(self) -> Self {
        self.less(1)
    }

    /// Counts the ends of `ended` jobs.
    pub fn less(self, ended: u64) -> Self {
        Self { active: self.active.saturating_sub(ended), ..self }
    }

    /// Returns true if the limit delays no job at `now`. The store may remove such a limit if no
    /// job uses the limit.
    pub fn is_idle(&self, now: Timestamp) -> bool {
        self.active == 0 && self.spread_from(now) <= micros(now)
    }

    /// Returns the theoretical arrival time of GCRA, at least `now`, in microseconds.
    fn spread_from(&self, now: Timestamp) -> u64 {
        micros(self.spread_until).saturating_add(self.spread_micros.into()).max(micros(now))
    }

    /// Returns the limit with another theoretical arrival time, in microseconds.
    fn spread(self, until: u64) -> Self {
        let rest = u16::try_from(until % MICROS_PER_MS).expect("a remainder of 1000 is below 1000");
        Self { spread_until: Timestamp(until / MICROS_PER_MS), spread_micros: rest, ..self }
    }

    /// Returns the time between evenly spaced starts, in microseconds.
    fn gap_micros(&self) -> Option<u64> {
        let period = self.terms.period_ms.saturating_mul(MICROS_PER_MS);
        self.terms.rate.map(|rate| period.div_ceil(rate.max(1)).max(1))
    }

    /// Returns the time by which starts may be ahead of an even spacing of `gap`, because all
    /// starts of a period may happen at once.
    fn burst_micros(&self, gap: u64) -> u64 {
        gap.saturating_mul(self.terms.rate.unwrap_or(1).saturating_sub(1))
    }
}

#[cfg(test)]
mod tests {
    use agenix_protocol::time::Timestamp;

    use super::{Limit, LimitTerms};

    fn limit(concurrency: Option<u64>, rate: Option<u64>) -> Limit {
        Limit { terms: LimitTerms { concurrency, rate, period_ms: 1000 }, ..Limit::default() }
    }

    #[test]
    fn limit_bounds_concurrency() {
        let now = Timestamp(5000);
        let full = limit(Some(2), None).begun(now).begun(now);
        assert!(limit(Some(2), None).begun(now).admits(now));
        assert!(!full.admits(now) && full.ended().admits(now));
        assert!(!limit(Some(0), None).admits(now));
        assert_eq!((full.admits_from(now), full.ended().admits_from(now)), (None, Some(now)));
        assert_eq!((full.less(2), full.less(9).active), (full.ended().ended(), 0));
    }

    #[test]
    fn limit_waits_at_most_a_period_after_the_clock_was_set_back() {
        let (ahead, now) = (Timestamp(90_000_000), Timestamp(5000));
        let full = [(); 3].iter().fold(limit(None, Some(3)), |limit, ()| limit.begun(ahead));
        let rescheduled = full.rescheduled(now).unwrap();
        assert!(!rescheduled.admits(now) && rescheduled.admits(now.plus_ms(334)));
        assert!(rescheduled.rescheduled(now).is_none());
        assert!(!full.is_idle(ahead) && !full.ended().ended().ended().is_idle(ahead), "its rate is used up");
        assert!(full.ended().ended().ended().is_idle(full.spread_until.plus_ms(1)));
        let used_up = [(); 3].iter().fold(limit(None, Some(3)), |limit, ()| limit.begun(now));
        assert!(used_up.rescheduled(now).is_none(), "it is of this time");
        assert!(limit(Some(1), None).begun(ahead).rescheduled(now).is_none(), "it names no time");
    }

    #[test]
    fn free_starts_are_those_that_a_limit_admits_one_after_another() {
        let now = Timestamp(5000);
        for (concurrency, rate) in
            [(Some(0), None), (Some(3), None), (None, Some(7)), (Some(3), Some(7)), (Some(9), Some(7))]
        {
            let mut limit = limit(concurrency, rate);
            for ms in [0, 1, 142, 143, 400, 999, 1000] {
                let now = now.plus_ms(ms);
                let (mut next, mut starts) = (limit, 0);
                while next.admits(now) {
                    (next, starts) = (next.begun(now), starts + 1);
                }
                assert_eq!(limit.free_starts(now), starts, "{concurrency:?} {rate:?} after {ms} ms");
                limit = if limit.admits(now) { limit.begun(now) } else { limit.ended() };
            }
        }
        assert_eq!(Limit::default().free_starts(now), u64::MAX);
    }

    #[test]
    fn rate_that_does_not_divide_its_period_is_reached() {
        for rate in [300, 400, 501, 999, 5000] {
            let mut limit = limit(None, Some(rate));
            let starts_at = |limit: &mut Limit, ms: u64| {
                let (now, mut starts) = (Timestamp(5000 + ms), 0);
                while limit.admits(now) {
                    (*limit, starts) = (limit.begun(now), starts + 1);
                }
                starts
            };
            assert_eq!(starts_at(&mut limit, 0), rate, "all starts of a period at once");
            let later: u64 = (1..=10_000).map(|ms| starts_at(&mut limit, ms)).sum();
            assert!(
                later <= 10 * rate && later + 1 >= 10 * rate * 999 / 1000,
                "{rate}: {later} in ten seconds"
            );
        }
    }

    #[test]
    fn limit_of_an_earlier_version_is_read() {
        let spread_until = serde_json::to_string(&Timestamp(6000)).unwrap();
        let terms = r#"{"rate":3,"period_ms":1000}"#;
        let old = format!(r#"{{"terms":{terms},"active":1,"spread_until":{spread_until}}}"#);
        let read: Limit = serde_json::from_str(&old).unwrap();
        assert_eq!((read.spread_until, read.spread_micros), (Timestamp(6000), 0));
        assert_eq!(serde_json::to_string(&read).unwrap(), old, "an older node can read it");
    }

    #[test]
    fn limit_waits_at_most_a_period_of_new_terms() {
        let now = Timestamp(5000);
        let hourly = LimitTerms { concurrency: None, rate: Some(1), period_ms: 3_600_000 };
        let fast = LimitTerms { rate: Some(100), period_ms: 1000, ..hourly };
        let used_up = Limit { terms: hourly, ..Limit::default() }.begun(now);
        let new = used_up.with_terms(fast, now);
        assert_eq!((new.begins_at(now), new.active), (now.plus_ms(10), 1));
        assert_eq!(new.with_terms(hourly, now).begins_at(now), now.plus_ms(1000), "no wait begins again");
        assert_eq!(used_up.with_terms(hourly, Timestamp(1)), used_up, "the terms are the same");
        let without_rate = used_up.with_terms(LimitTerms { rate: None, ..hourly }, now);
        assert!(without_rate.admits(now));
        assert_eq!(without_rate.with_terms(fast, now), new);
    }

    #[test]
    fn limit_bounds_starts_in_a_period() {
        let at = |ms: u64| Timestamp(5000 + ms);
        let one = limit(None, Some(1)).begun(at(0));
        assert!(!one.admits(at(999)) && one.admits(at(1000)));
        assert_eq!(one.begins_at(at(10)), at(1000));
        assert_eq!(one.admits_from(at(10)), Some(at(1000)));
        let three = [(); 3].iter().fold(limit(None, Some(3)), |limit, ()| {
            assert!(limit.admits(at(0)));
            limit.begun(at(0))
        });
        assert!(!three.admits(at(333)) && three.admits(at(334)));
        assert!(!three.begun(at(334)).admits(at(335)));
    }
}
