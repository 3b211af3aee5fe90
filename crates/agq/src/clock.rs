//! The one place where agq asks for the time, for ids and for chance. Everything else is told.

use std::{
    sync::Mutex,
    time::{SystemTime, UNIX_EPOCH},
};

use agenix_protocol::{
    ids::{ActionId, JobId, PlanId},
    time::Timestamp,
};
use uuid::{ContextV7, Uuid};

/// Time, ids and chance.
#[derive(Default)]
pub(crate) struct Clock {
    /// Keeps ids in order within a millisecond.
    order: Mutex<ContextV7>,
}

impl Clock {
    /// The time of day.
    #[expect(clippy::disallowed_methods, reason = "this is the place")]
    #[expect(clippy::unused_self, reason = "whoever has no clock cannot ask")]
    pub(crate) fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }

    /// A random number in 0..1.
    pub(crate) fn chance(&self) -> f64 {
        let high = Uuid::new_v4().as_u128() >> 96;
        #[expect(clippy::cast_precision_loss, reason = "32 random bits fit")]
        let chance = high as f64 / (u64::from(u32::MAX) + 1) as f64;
        chance
    }

    /// An id that sorts by time: redb writes ordered keys several times faster.
    fn ordered(&self) -> Uuid {
        let now = self.now().0;
        let nanos = u32::try_from(now % 1000 * 1_000_000).unwrap_or_default();
        let order = self.order.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        Uuid::new_v7(uuid::Timestamp::from_unix(&*order, now / 1000, nanos))
    }

    pub(crate) fn plan_id(&self) -> PlanId {
        PlanId::new(self.ordered().to_string()).expect("a UUID is letters, digits and '-'")
    }

    pub(crate) fn action_id(&self) -> ActionId {
        ActionId::new(self.ordered().to_string()).expect("a UUID is letters, digits and '-'")
    }

    pub(crate) fn challenge_id(&self) -> String {
        self.ordered().simple().to_string()
    }

    pub(crate) fn job_id(&self) -> JobId {
        JobId::new(format!("job-{}", self.ordered().simple())).expect("a UUID is letters and digits")
    }
}

#[cfg(test)]
mod tests {
    use super::Clock;

    #[test]
    fn ids_sort_in_the_order_they_were_given() {
        let clock = Clock::default();
        let ids: Vec<_> = (0..10_000).map(|_| clock.job_id()).collect();
        assert!(ids.is_sorted());
    }

    #[test]
    fn chance_is_between_zero_and_one() {
        let clock = Clock::default();
        assert!((0..1000).all(|_| (0.0..1.0).contains(&clock.chance())));
    }
}
