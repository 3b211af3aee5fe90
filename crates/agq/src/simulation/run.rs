//! Run of one seed: its steps, its end, and the search for the shortest script that still fails.

use std::{
    collections::BTreeSet,
    panic::{AssertUnwindSafe, catch_unwind},
    thread,
};

use fastrand::Rng;

use crate::{
    simulation::{disk::Disk, metrics::SimulationMetrics, world::World},
    store::redb::RedbStore,
};

/// Maximum number of runs in the search for the shortest script.
const MAX_SHRINKS: usize = 300;

#[derive(Debug, Clone)]
pub(super) struct SeedScript {
    pub(super) seed: u64,
    pub(super) steps: u64,
    /// Steps that are executed; `None` for all steps.
    pub(super) only: Option<BTreeSet<u64>>,
}

#[derive(Debug)]
pub(super) struct SeedOutcome {
    pub(super) counts: SimulationMetrics,
    /// Hash of the events, which is equal for equal scripts.
    pub(super) trace: u64,
    pub(super) failure: Option<SeedFailure>,
    pub(super) event_log: Vec<String>,
}

#[derive(Debug, Clone)]
pub(super) struct SeedFailure {
    /// Number of the failed step; `None` for the end of the seed.
    pub(super) step: Option<u64>,
    pub(super) message: String,
}

/// Returns the files of a new database, on which every seed starts.
pub(super) fn new_database() -> anyhow::Result<Vec<u8>> {
    let disk = Disk::empty();
    let [database, journal] = disk.open();
    drop(RedbStore::by_hand(database, journal, 1)?);
    Ok(disk.bytes())
}

impl SeedScript {
    /// Executes the steps. The outcome has the event log if `with_event_log` is true.
    pub(super) fn run(&self, image: &[u8], with_event_log: bool) -> SeedOutcome {
        let mut world = match World::new(self.seed, image, with_event_log) {
            Ok(world) => world,
            Err(message) => {
                let failure = Some(SeedFailure { step: Some(0), message });
                return SeedOutcome {
                    counts: SimulationMetrics::default(),
                    trace: 0,
                    failure,
                    event_log: Vec::new(),
                };
            }
        };
        let failure = self.play(&mut world).err();
        let (counts, trace) = (world.counts, world.trace());
        SeedOutcome { counts, trace, failure, event_log: world.event_log.take().unwrap_or_default() }
    }

    pub(super) fn play(&self, world: &mut World) -> Result<(), SeedFailure> {
        for step in 0..self.steps {
            if self.only.as_ref().is_some_and(|only| !only.contains(&step)) {
                continue;
            }
            world.tell(|| format!("-- step {step}"));
            let chance = self.chance(step);
            guarded(|| world.step(chance)).map_err(|message| SeedFailure { step: Some(step), message })?;
        }
        let chance = self.chance(u64::MAX);
        guarded(|| world.finish(chance)).map_err(|message| SeedFailure { step: None, message })
    }

    fn chance(&self, step: u64) -> Rng {
        let mut seed = Rng::with_seed(self.seed);
        Rng::with_seed(seed.u64(..) ^ step.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// Returns a shorter script with the same failure, after at most [`MAX_SHRINKS`] attempts.
    pub(super) fn shrunk(&self, image: &[u8], failure: &SeedFailure) -> Self {
        let last = failure.step.unwrap_or(self.steps.saturating_sub(1));
        let known = self.only.clone();
        let is_kept = |step: &u64| known.as_ref().is_none_or(|only| only.contains(step));
        let mut steps: Vec<u64> = (0..=last).filter(is_kept).collect();
        let (mut part, mut tries) = (steps.len().div_ceil(2).max(1), 0);
        loop {
            let mut at = 0;
            while at < steps.len() && tries < MAX_SHRINKS {
                let mut fewer = steps.clone();
                fewer.drain(at..(at + part).min(steps.len()));
                tries += 1;
                let is_same = |other: &SeedFailure| kind(&other.message) == kind(&failure.message);
                if self.with(&fewer).run(image, false).failure.as_ref().is_some_and(is_same) {
                    steps = fewer;
                } else {
                    at += part;
                }
            }
            if part == 1 || tries >= MAX_SHRINKS {
                return self.with(&steps);
            }
            part = part.div_ceil(2);
        }
    }

    fn with(&self, steps: &[u64]) -> Self {
        Self { only: Some(steps.iter().copied().collect()), ..self.clone() }
    }

    /// Returns the command line that repeats the script.
    pub(super) fn command(&self) -> String {
        let Self { seed, steps, only } = self;
        let only = only.as_ref().map(|only| only.iter().map(u64::to_string).collect::<Vec<_>>().join(","));
        let only = only.map_or_else(String::new, |only| format!(" --only {only}"));
        format!("cargo xtask simulate --seed {seed} --steps {steps}{only}")
    }
}

/// Returns the beginning of a message, without the names in it.
fn kind(message: &str) -> String {
    message.chars().take_while(|letter| !letter.is_ascii_digit() && *letter != '{').collect()
}

/// Runs `work` on as many threads as there are processors.
pub(super) fn on_all_processors(work: impl Fn() + Sync) {
    let threads = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(&work))));
}

/// Turns a panic of `work` into an error.
pub(super) fn guarded(work: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Err(format!("panic: {}", text.unwrap_or_else(|| "without a word".into())))
    })
}
