//! Source of time, ids and randomness. All other modules get time, ids and randomness as arguments
//! or from [`Clock`], so that the simulation can replace them.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use agenix_protocol::{
    ids::{ActionId, JobId, PlanId},
    time::Timestamp,
};
use futures_util::future::{BoxFuture, Either, select};
use uuid::Uuid;

use crate::sync::lock;

pub(crate) trait TimeSource: Send + Sync {
    fn now(&self) -> Timestamp;
    fn random(&self) -> u128;
    fn sleep(&self, how_long: Duration) -> BoxFuture<'static, ()>;
}

#[derive(Clone)]
pub(crate) struct Clock {
    source: Arc<dyn TimeSource>,
    latest: Arc<Mutex<Latest>>,
    /// Latest time that `now` has returned since the last `latest_and_now`, in milliseconds.
    latest_now: Arc<AtomicU64>,
}

/// Latest id. Ids ascend within a millisecond, and also after the clock was set back.
#[derive(Default)]
struct Latest {
    ms: u64,
    counter: u32,
}

/// Bits of the counter, whose first value has one bit less, so that there is room to count.
const COUNTER_BITS: u32 = 26;

impl Default for Clock {
    fn default() -> Self {
        Self::of(Arc::new(SystemClock))
    }
}

impl Clock {
    pub(crate) fn of(source: Arc<dyn TimeSource>) -> Self {
        Self { source, latest: Arc::default(), latest_now: Arc::default() }
    }

    pub(crate) fn now(&self) -> Timestamp {
        let now = self.source.now();
        // A write by every caller would be contended, and the value changes only once a
        // millisecond.
        if self.latest_now.load(Ordering::Relaxed) < now.0 {
            self.latest_now.fetch_max(now.0, Ordering::Relaxed);
        }
        now
    }

    /// Returns the latest time that a caller was given since the last call, and the current time.
    /// The clock was set back if the latest time is after the current time, and records may have
    /// deadlines computed from it.
    pub(crate) fn latest_and_now(&self) -> (Timestamp, Timestamp) {
        // Swap first: a time that another caller gets in between is then not later than `now`.
        let latest = Timestamp(self.latest_now.swap(0, Ordering::Relaxed));
        (latest, self.now())
    }

    pub(crate) async fn sleep(&self, how_long: Duration) {
        self.source.sleep(how_long).await;
    }

    /// Returns the output of `future`, or `None` if `future` is not ready within `how_long`.
    pub(crate) async fn within<F: Future + Unpin>(&self, how_long: Duration, future: F) -> Option<F::Output> {
        match select(future, self.source.sleep(how_long)).await {
            Either::Left((output, _)) => Some(output),
            Either::Right(_) => None,
        }
    }

    pub(crate) fn chance(&self) -> f64 {
        let high = self.source.random() >> 96;
        #[expect(clippy::cast_precision_loss, reason = "32 random bits fit")]
        let chance = high as f64 / (u64::from(u32::MAX) + 1) as f64;
        chance
    }

    /// Returns a UUID version 7 with a counter (RFC 9562 §6.2, method 1). The UUIDs sort by time,
    /// because redb writes keys in ascending order much faster.
    fn ordered(&self) -> Uuid {
        let (now, random) = (self.now().0, self.source.random());
        let mut latest = lock(&self.latest);
        if now > latest.ms {
            let counter = u32::try_from(random >> 96).unwrap_or_default() >> (33 - COUNTER_BITS);
            *latest = Latest { ms: now, counter };
        } else if latest.counter + 1 < 1 << COUNTER_BITS {
            latest.counter += 1;
        } else {
            *latest = Latest { ms: latest.ms + 1, counter: 0 };
        }
        let (time, counter) = (u128::from(latest.ms) << 80, u128::from(latest.counter));
        let (version, variant) = (7 << 76, 0b10 << 62);
        let count = counter >> 14 << 64 | (counter & 0x3fff) << 48;
        Uuid::from_u128(time | version | count | variant | random & 0xffff_ffff_ffff)
    }

    pub(crate) fn plan_id(&self) -> PlanId {
        PlanId::new(self.ordered().to_string()).expect("a UUID is letters, digits and '-'")
    }

    pub(crate) fn action_id(&self) -> ActionId {
        ActionId::new(self.ordered().to_string()).expect("a UUID is letters, digits and '-'")
    }

    pub(crate) fn backup_id(&self) -> String {
        self.ordered().simple().to_string()
    }

    pub(crate) fn challenge_id(&self) -> String {
        self.ordered().simple().to_string()
    }

    /// Returns the suffix of a file that no other file has.
    pub(crate) fn suffix(&self) -> String {
        format!("{:032x}", self.source.random())
    }

    /// Returns an id in the form of the Open Job Spec, for a job, a workflow or a request.
    pub(crate) fn uuid(&self) -> String {
        self.ordered().to_string()
    }

    pub(crate) fn job_id(&self) -> JobId {
        JobId::new(format!("job-{}", self.ordered().simple())).expect("a UUID is letters and digits")
    }
}

struct SystemClock;

impl TimeSource for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the place")]
    fn now(&self) -> Timestamp {
        SystemTime::now().into()
    }

    fn random(&self) -> u128 {
        // Ids need not be unguessable, and a system call for each would cost time.
        fastrand::u128(..)
    }

    fn sleep(&self, how_long: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(how_long))
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use agenix_protocol::time::Timestamp;
    use futures_util::future::{BoxFuture, ready};

    use super::{Clock, TimeSource};

    /// Clock that does not advance, or is set back.
    struct Stuck(std::sync::atomic::AtomicU64);

    impl TimeSource for Stuck {
        fn now(&self) -> Timestamp {
            Timestamp(self.0.fetch_sub(1, std::sync::atomic::Ordering::Relaxed))
        }
        fn random(&self) -> u128 {
            u128::MAX
        }
        fn sleep(&self, _how_long: Duration) -> BoxFuture<'static, ()> {
            Box::pin(ready(()))
        }
    }

    #[test]
    fn ids_sort_in_order_of_creation() {
        let clock = Clock::default();
        let ids: Vec<_> = (0..10_000).map(|_| clock.job_id()).collect();
        assert!(ids.is_sorted_by(|a, b| a < b));
        assert_eq!(ids[0].as_str().as_bytes()[4 + 12], b'7', "the version of the UUID");
    }

    #[test]
    fn ids_sort_after_the_clock_was_set_back() {
        let clock = Clock::of(Arc::new(Stuck(1_000_000.into())));
        let ids: Vec<_> = (0..10_000).map(|_| clock.job_id()).collect();
        assert!(ids.is_sorted_by(|a, b| a < b));
    }

    #[test]
    fn latest_and_now_reports_a_clock_set_back() {
        let clock = Clock::of(Arc::new(Stuck(10.into())));
        assert_eq!((clock.now(), clock.now()), (Timestamp(10), Timestamp(9)));
        assert_eq!(clock.latest_and_now(), (Timestamp(10), Timestamp(8)));
        assert_eq!(clock.latest_and_now(), (Timestamp(8), Timestamp(7)));
    }

    #[test]
    fn random_numbers_are_between_zero_and_one() {
        let clock = Clock::default();
        let seen: Vec<f64> = (0..1000).map(|_| clock.chance()).collect();
        assert!(seen.iter().all(|chance| (0.0..1.0).contains(chance)));
        assert!(seen.iter().any(|chance| *chance < 0.2) && seen.iter().any(|chance| *chance > 0.8));
    }
}
