//! Tests of crash consistency. A scenario runs once on a disk that records all changes. Then agq is
//! started on the file as it was after every single change, and on subsets of the changes that were
//! not synced.

use std::{
    collections::HashSet,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use fastrand::Rng;

use crate::simulation::{
    disk::{DiskChange, DiskEvent},
    expectations::Expectations,
    report::say,
    run::{guarded, new_database, on_all_processors},
    world::World,
};

/// Maximum number of unsynced changes of which every subset is tried. Of more changes, it tries
/// subsets with one change, subsets without one change, and random subsets.
const ALL_SUBSETS: usize = 11;
/// Minimum average number of images of a scenario. With fewer, the scenario has hardly written to
/// the database, and crashes during such writes would not be tested.
const FEWEST_IMAGES: u64 = 500;
/// Number of random subsets per change.
const SOME_SUBSETS: usize = 200;

pub(super) struct RecordedScenario {
    pub(super) before: Vec<u8>,
    pub(super) events: Vec<DiskEvent>,
    /// State that agq has acknowledged, by the number of the mark among the events.
    pub(super) promised: Vec<Expectations>,
    /// File after the scenario if agq is killed, and if agq is stopped.
    pub(super) killed: Vec<u8>,
    pub(super) stopped: Vec<u8>,
}

impl RecordedScenario {
    /// Runs the steps of a seed without faults.
    pub(super) fn play(seed: u64, steps: u64) -> Result<Self, String> {
        let image = new_database().map_err(|error| error.to_string())?;
        let mut world = World::new(seed, &image, false)?;
        let before = world.record();
        world.is_calm = true;
        for step in 0..steps {
            let chance = Rng::with_seed(seed ^ step.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            world.step(chance)?;
        }
        world.write_all()?;
        let killed = world.disk.bytes();
        let (events, promised) = world.recorded();
        world.end_process();
        Ok(Self { before, events, promised, killed, stopped: world.disk.bytes() })
    }
}

impl RecordedScenario {
    /// Returns the state that was acknowledged before the last synced commit.
    pub(super) fn before_last_commit(&self) -> &Expectations {
        let (mut mark, mut last) = (0, 0);
        for event in &self.events {
            match event {
                DiskEvent::Mark(number) => mark = *number,
                DiskEvent::Synced(_) => last = mark,
                DiskEvent::Changed(_) => {}
            }
        }
        &self.promised[last]
    }
}

/// File as a crash could leave it, with the number of the state that agq had acknowledged.
struct Image {
    bytes: Vec<u8>,
    promised: usize,
    shown: String,
}

fn each_image(recorded: &RecordedScenario, mut check: impl FnMut(Image)) {
    let (mut synced, mut written) = (recorded.before.clone(), recorded.before.clone());
    let (mut unsynced, mut promised): (Vec<DiskChange>, usize) = (Vec::new(), 0);
    let mut rng = Rng::with_seed(1);
    for (at, event) in recorded.events.iter().enumerate() {
        match event {
            DiskEvent::Mark(number) => {
                promised = *number;
                // The blobs may have changed since the last write to the database.
                let shown = format!("at mark {number}");
                check(Image { bytes: written.clone(), promised, shown: format!("killed {shown}") });
                check(Image { bytes: synced.clone(), promised, shown: format!("power cut {shown}") });
            }
            DiskEvent::Synced(which) => {
                let durable = unsynced.extract_if(.., |change| which.has(change));
                durable.for_each(|change| change.apply(&mut synced));
            }
            DiskEvent::Changed(change) => {
                change.apply(&mut written);
                check(Image { bytes: written.clone(), promised, shown: format!("killed after change {at}") });
                // Every image contains the new change, because the images without it were tried
                // before.
                for kept in subsets(unsynced.len(), &mut rng) {
                    let mut bytes = synced.clone();
                    let left = unsynced.iter().zip(&kept).filter(|(_, kept)| **kept);
                    left.for_each(|(change, _)| change.apply(&mut bytes));
                    let torn = change.torn(&mut rng);
                    let mut torn_bytes = bytes.clone();
                    torn.iter().for_each(|change| change.apply(&mut torn_bytes));
                    change.apply(&mut bytes);
                    let shown = format!("power cut after change {at}, of those before left: {kept:?}");
                    check(Image {
                        bytes: torn_bytes,
                        promised,
                        shown: format!("{shown}, the last one torn"),
                    });
                    check(Image { bytes, promised, shown });
                }
                unsynced.push(change.clone());
            }
        }
    }
}

/// Returns subsets of `count` changes. True stands for a change that survives.
fn subsets(count: usize, rng: &mut Rng) -> Vec<Vec<bool>> {
    if count <= ALL_SUBSETS {
        return (0..1_usize << count)
            .map(|bits| (0..count).map(|bit| bits >> bit & 1 == 1).collect())
            .collect();
    }
    let one = |is: bool| (0..count).map(move |which| (0..count).map(|at| (at == which) == is).collect());
    let some = (0..SOME_SUBSETS).map(|_| (0..count).map(|_| rng.bool()).collect()).collect::<Vec<_>>();
    one(true).chain(one(false)).chain(some).chain([vec![true; count], vec![false; count]]).collect()
}

/// Starts agq on every image of `seeds` scenarios. Returns true if all starts pass.
pub(super) fn run(seeds: u64, steps: u64) -> anyhow::Result<bool> {
    let (tried, failures) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let next = AtomicUsize::new(0);
    on_all_processors(|| {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed) as u64;
            if seed >= seeds {
                return;
            }
            if let Err(message) = try_seed(seed, steps, &tried) {
                failures.lock().unwrap_or_else(PoisonError::into_inner).push((seed, message));
            }
        }
    });
    let failures = failures.into_inner().unwrap_or_else(PoisonError::into_inner);
    let tried = tried.into_inner();
    say(&format!("{tried} images that a crash could leave, of {seeds} scenarios; {} failed", failures.len()));
    failures.iter().for_each(|(seed, message)| say(&format!("  scenario {seed}: {message}")));
    let is_enough = tried as u64 >= seeds * FEWEST_IMAGES;
    if !is_enough {
        say(
            "  these are so few that the database was hardly written: is the journal too large, or brought in too late?",
        );
    }
    Ok(failures.is_empty() && is_enough)
}

fn try_seed(seed: u64, steps: u64, tried: &AtomicUsize) -> Result<(), String> {
    let recorded = RecordedScenario::play(seed, steps)?;
    let (mut seen, mut first) = (HashSet::new(), Ok(()));
    each_image(&recorded, |image| {
        let mut hasher = DefaultHasher::new();
        (image.promised, &image.bytes).hash(&mut hasher);
        if first.is_err() || !seen.insert(hasher.finish()) {
            return;
        }
        tried.fetch_add(1, Ordering::Relaxed);
        let outcome = guarded(|| World::on(seed, &image.bytes, &recorded.promised[image.promised]).map(drop));
        first = outcome.map_err(|message| format!("{}: {message}", image.shown));
    });
    first
}
