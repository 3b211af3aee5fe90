//! Token bucket for the commands of a connection, with a burst of one second.

use std::time::Duration;

use agenix_protocol::time::Timestamp;

/// Cost of a command. A millisecond adds as many units as a second allows commands, so that whole
/// milliseconds lose no fraction of a command.
const TOKEN: i64 = 1000;
/// Time in milliseconds without a delay after which an overload period ends.
const PAUSE_MS: u64 = 1000;
/// Maximum length of an overload period in milliseconds.
const REFUSE_AFTER_MS: u64 = 10_000;
/// Maximum rate, so that the units of the bucket fit into an `i64`.
const MAX_PER_SEC: i64 = 1_000_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RateDecision {
    Now,
    /// Delay, whose token is taken: the caller waits, and then runs the command.
    After(Duration),
    /// Never, because the overload period of the connection has reached its maximum.
    Refused,
}

#[derive(Debug)]
pub(crate) struct CommandRate {
    /// Commands in a second; 0 means no limit.
    per_sec: i64,
    /// Negative while delayed commands have taken tokens in advance.
    level: i64,
    at: Timestamp,
    overload: Option<OverloadPeriod>,
}

/// Time of delays without a pause.
#[derive(Debug, Clone, Copy)]
struct OverloadPeriod {
    since: Timestamp,
    /// End of the last delay.
    until: Timestamp,
}

impl CommandRate {
    pub(crate) fn new(max: usize, now: Timestamp) -> Self {
        let per_sec = i64::try_from(max).unwrap_or(MAX_PER_SEC).min(MAX_PER_SEC);
        Self { per_sec, level: per_sec * TOKEN, at: now, overload: None }
    }

    pub(crate) fn take(&mut self, now: Timestamp) -> RateDecision {
        if self.per_sec == 0 {
            return RateDecision::Now;
        }
        let passed_ms = i64::try_from(now.ms_since(self.at)).unwrap_or(i64::MAX);
        let filled = self.level.saturating_add(passed_ms.saturating_mul(self.per_sec));
        self.level = filled.min(self.per_sec * TOKEN);
        self.at = now;
        self.overload = self.overload.filter(|overload| now.ms_since(overload.until) < PAUSE_MS);
        if self.level >= TOKEN {
            self.level -= TOKEN;
            return RateDecision::Now;
        }
        let since = self.overload.map_or(now, |overload| overload.since);
        if now.ms_since(since) >= REFUSE_AFTER_MS {
            self.overload = Some(OverloadPeriod { since, until: now });
            return RateDecision::Refused;
        }
        self.level -= TOKEN;
        let wait_ms = (-self.level).unsigned_abs().div_ceil(self.per_sec.unsigned_abs());
        self.overload = Some(OverloadPeriod { since, until: now.plus_ms(wait_ms) });
        RateDecision::After(Duration::from_millis(wait_ms))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use agenix_protocol::time::Timestamp;

    use super::{CommandRate, RateDecision};

    fn after(ms: u64) -> RateDecision {
        RateDecision::After(Duration::from_millis(ms))
    }

    #[test]
    fn command_rate_allows_a_burst_of_one_second() {
        let mut rate = CommandRate::new(10, Timestamp(0));
        for n in 0..10 {
            assert_eq!(rate.take(Timestamp(0)), RateDecision::Now, "{n}");
        }
        assert_eq!(rate.take(Timestamp(0)), after(100));
        assert_eq!(rate.take(Timestamp(100)), after(100), "what waited its time has its place");
        assert_eq!(rate.take(Timestamp(300)), RateDecision::Now);
        assert_eq!(rate.take(Timestamp(10_000)), RateDecision::Now);
        let mut unlimited = CommandRate::new(0, Timestamp(0));
        assert!((0..100_000).all(|_| unlimited.take(Timestamp(0)) == RateDecision::Now), "0 is no limit");
    }

    #[test]
    fn command_rate_loses_no_fraction_in_whole_milliseconds() {
        let mut rate = CommandRate::new(3, Timestamp(0));
        let mut now = 0;
        let mut taken = 0;
        while now < 9_000 {
            taken += 1;
            match rate.take(Timestamp(now)) {
                RateDecision::Now => {}
                RateDecision::After(wait) => now += u64::try_from(wait.as_millis()).unwrap(),
                RateDecision::Refused => panic!("refused after {now} ms"),
            }
        }
        // Three at once, then three a second for nine seconds.
        assert_eq!(taken, 3 + 27);
        // A rate above one a millisecond, and a clock that ticks every seven.
        let mut fast = CommandRate::new(7_000, Timestamp(0));
        let free = (0..).take_while(|_| fast.take(Timestamp(0)) == RateDecision::Now).count();
        assert_eq!(free, 7_000);
        for tick in 1..=100 {
            // The first command of a tick takes the place of the command that was delayed before.
            let passed = (0..49).filter(|_| fast.take(Timestamp(tick * 7)) == RateDecision::Now).count();
            assert!((48..=49).contains(&passed), "{passed} at tick {tick}");
        }
    }

    #[test]
    fn command_rate_refuses_after_ten_seconds_of_overload_until_a_pause() {
        let mut rate = CommandRate::new(1, Timestamp(0));
        assert_eq!(rate.take(Timestamp(0)), RateDecision::Now);
        for second in 0..10 {
            assert_eq!(rate.take(Timestamp(second * 1000)), after(1000), "{second}");
        }
        assert_eq!(rate.take(Timestamp(9_999)), after(1001));
        assert_eq!(rate.take(Timestamp(10_000)), RateDecision::Refused);
        assert_eq!(rate.take(Timestamp(10_500)), RateDecision::Refused, "and so is what comes right after");
        assert_eq!(rate.take(Timestamp(11_499)), RateDecision::Refused);
        let mut now = 12_499;
        while rate.take(Timestamp(now)) == RateDecision::Refused {
            now += 1000;
        }
        assert_eq!(now, 12_499, "a second of silence is a pause");
    }

    #[test]
    fn command_rate_survives_a_clock_that_is_set_back() {
        let mut rate = CommandRate::new(1, Timestamp(1_000_000));
        assert_eq!(rate.take(Timestamp(1_000_000)), RateDecision::Now);
        assert_eq!(rate.take(Timestamp(0)), after(1000));
        assert_eq!(rate.take(Timestamp(5_000)), RateDecision::Now);
    }
}
