//! Time and chance, played: a clock that is a variable, and passes only when it is told to.

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

/// When every simulation begins: a day in 2026.
const BEGIN_MS: u64 = 1_790_000_000_000;

#[derive(Debug)]
struct TimeState {
    rng: Rng,
    /// Time since the beginning; never goes back.
    passed_ms: u64,
    /// What the clock on the wall shows beyond that.
    wall_ms: u64,
    sleepers: BTreeMap<(u64, u64), oneshot::Sender<()>>,
    next_sleeper: u64,
}

/// The clock of a simulation.
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

    /// How much time has passed since the beginning, in milliseconds.
    pub(super) fn passed_ms(&self) -> u64 {
        self.lock().passed_ms
    }

    /// When the next of those who sleep wakes, in milliseconds from now.
    pub(super) fn next_ms(&self) -> Option<u64> {
        let state = self.lock();
        let ((at, _), _) = state.sleepers.first_key_value()?;
        Some(at.saturating_sub(state.passed_ms))
    }

    /// Lets time pass. Who sleeps wakes in order; one moment at a time, for whoever wakes may go to sleep again.
    pub(super) fn pass(&self, ms: u64) {
        let mut state = self.lock();
        state.passed_ms += ms;
        let first_later = (state.passed_ms + 1, 0);
        let later = state.sleepers.split_off(&first_later);
        for (_, wake) in std::mem::replace(&mut state.sleepers, later) {
            // Whoever slept may be gone.
            let _gone = wake.send(());
        }
    }

    /// The clock on the wall is set forward, or back.
    pub(super) fn set_wall(&self, by_ms: i64) {
        let mut state = self.lock();
        state.wall_ms = state.wall_ms.saturating_add_signed(by_ms);
    }

    /// What the clock on the wall shows.
    pub(super) fn wall(&self) -> Timestamp {
        let state = self.lock();
        Timestamp(state.wall_ms + state.passed_ms)
    }

    /// Nobody sleeps any more: the process is dead.
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
            // A sleeper of a dead process never wakes: the world it would wake in is gone.
            if woken.await.is_err() {
                std::future::pending::<()>().await;
            }
        })
    }
}
