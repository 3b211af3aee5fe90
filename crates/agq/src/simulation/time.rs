//! Simulated time and randomness: a clock that advances only on request.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use agenix_protocol::time::Timestamp;
use fastrand::Rng;
use futures_util::future::BoxFuture;
use tokio::sync::oneshot;

use crate::clock::TimeSource;

/// Time at the start of every simulation, in milliseconds since 1970.
const BEGIN_MS: u64 = 1_790_000_000_000;

#[derive(Debug)]
struct TimeState {
    rng: Rng,
    /// Monotonic time since the start, in milliseconds.
    passed_ms: u64,
    /// Difference of the wall clock from the monotonic time, in milliseconds.
    wall_ms: u64,
    sleepers: BTreeMap<(u64, u64), oneshot::Sender<()>>,
    next_sleeper: u64,
}

/// Simulated clock, which all its clones share.
#[derive(Debug, Clone)]
pub(super) struct SimulatedTime(Arc<Mutex<TimeState>>);

impl SimulatedTime {
    pub(super) fn new(seed: u64) -> Self {
        let state = TimeState {
            rng: Rng::with_seed(seed),
            passed_ms: 0,
            wall_ms: BEGIN_MS,
            sleepers: BTreeMap::new(),
            next_sleeper: 0,
        };
        Self(Arc::new(Mutex::new(state)))
    }

    pub(super) fn passed_ms(&self) -> u64 {
        self.lock().passed_ms
    }

    /// Returns the time until the next sleeper wakes, in milliseconds.
    pub(super) fn next_ms(&self) -> Option<u64> {
        let state = self.lock();
        let ((at, _), _) = state.sleepers.first_key_value()?;
        Some(at.saturating_sub(state.passed_ms))
    }

    /// Advances the time by `ms`. Sleepers wake in the order of their times, one moment after the
    /// other, because a task that wakes may sleep again.
    pub(super) fn pass(&self, ms: u64) {
        let mut state = self.lock();
        state.passed_ms += ms;
        let first_later = (state.passed_ms + 1, 0);
        let later = state.sleepers.split_off(&first_later);
        for (_, wake) in std::mem::replace(&mut state.sleepers, later) {
            // The sleeper may be gone.
            let _gone = wake.send(());
        }
    }

    /// Sets the wall clock forward or back.
    pub(super) fn set_wall(&self, by_ms: i64) {
        let mut state = self.lock();
        state.wall_ms = state.wall_ms.saturating_add_signed(by_ms);
    }

    pub(super) fn wall(&self) -> Timestamp {
        let state = self.lock();
        Timestamp(state.wall_ms + state.passed_ms)
    }

    /// Drops all sleepers, because the process is dead.
    pub(super) fn forget_sleepers(&self) {
        self.lock().sleepers.clear();
    }

    fn lock(&self) -> MutexGuard<'_, TimeState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TimeSource for SimulatedTime {
    fn now(&self) -> Timestamp {
        self.wall()
    }

    fn random(&self) -> u128 {
        self.lock().rng.u128(..)
    }

    fn sleep(&self, how_long: Duration) -> BoxFuture<'static, ()> {
        let mut state = self.lock();
        let at = state.passed_ms + u64::try_from(how_long.as_millis()).unwrap_or(u64::MAX / 2).max(1);
        let (wake, woken) = oneshot::channel();
        let number = state.next_sleeper;
        state.next_sleeper += 1;
        state.sleepers.insert((at, number), wake);
        Box::pin(async move {
            // A sleeper of a dead process never wakes, because its world does not exist any more.
            if woken.await.is_err() {
                std::future::pending::<()>().await;
            }
        })
    }
}
