//! Jobs whose timers could not fire, because another session of the database holds a lock that the
//! write needs, or because the write has failed.

use std::{collections::BTreeMap, sync::Mutex};

use agenix_protocol::{ids::JobId, time::Timestamp};

use crate::sync::lock;

/// Time after which a late timer is tried again, in milliseconds. The store keeps each try until
/// the lock is free, so that few tries may wait for one lock.
const RETRY_MS: u64 = 5_000;

/// Times of the latest tries, by job.
#[derive(Debug, Default)]
pub(crate) struct LateTimers(Mutex<BTreeMap<JobId, Timestamp>>);

impl LateTimers {
    pub(crate) fn add(&self, job_id: JobId, now: Timestamp) {
        let mut tried = lock(&self.0);
        tried.retain(|_, tried_at| is_recent(*tried_at, now));
        tried.insert(job_id, now);
    }

    /// Returns true if the timer of a job is not tried again yet.
    pub(crate) fn is_late(&self, job_id: &JobId, now: Timestamp) -> bool {
        lock(&self.0).get(job_id).is_some_and(|tried_at| is_recent(*tried_at, now))
    }
}

/// A try from before the clock was set back is not recent.
fn is_recent(tried_at: Timestamp, now: Timestamp) -> bool {
    tried_at <= now && now.ms_since(tried_at) < RETRY_MS
}

#[cfg(test)]
mod tests {
    use agenix_protocol::{ids::JobId, time::Timestamp};

    use super::{LateTimers, RETRY_MS};

    #[test]
    fn late_timer_is_tried_again_after_some_seconds_or_a_clock_that_was_set_back() {
        let (timers, now) = (LateTimers::default(), Timestamp(100_000));
        let [late, other] = ["late", "other"].map(|id| JobId::new(id).unwrap());
        timers.add(late.clone(), now);
        assert!(timers.is_late(&late, now) && !timers.is_late(&other, now));
        assert!(timers.is_late(&late, now.plus_ms(RETRY_MS - 1)));
        assert!(!timers.is_late(&late, now.plus_ms(RETRY_MS)));
        assert!(!timers.is_late(&late, Timestamp(99_999)));
    }
}
