//! Tests of crash consistency. A scenario runs once on a disk that records all changes. Then agq is
//! started on the file as it was after every single change, and on subsets of the changes that were
//! not synced. Every other scenario is about blobs (`blob_steps`).

use std::{
    collections::HashSet,
    hash::{DefaultHasher, Hash, Hasher},
    ops::Range,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
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

/// Limits of the subsets of unsynced changes that are tried.
#[derive(Debug, Clone, Copy)]
struct SubsetLimits {
    /// Maximum number of unsynced changes of which every subset is tried. Of more changes, the test
    /// tries subsets with one change, subsets without one change, and random subsets.
    all: usize,
    /// Number of random subsets per change.
    random: usize,
}

const USUAL_LIMITS: SubsetLimits = SubsetLimits { all: 11, random: 200 };
/// Limits of a scenario about blobs. A file is removed or published between two changes, so such a
/// scenario needs many points of time, and few subsets at each.
const BLOB_LIMITS: SubsetLimits = SubsetLimits { all: 3, random: 8 };
/// Minimum average number of images of a scenario. With fewer images, the scenario has hardly
/// written to the database, and crashes during such writes would not be tested.
const MIN_IMAGES: u64 = 500;

pub(super) struct RecordedScenario {
    pub(super) before: Vec<u8>,
    pub(super) events: Vec<DiskEvent>,
    /// State that agq has acknowledged, by the number of the mark among the events.
    pub(super) promised: Vec<Expectations>,
    /// File after the scenario if agq is killed, and if agq is stopped.
    pub(super) killed: Vec<u8>,
    pub(super) stopped: Vec<u8>,
    /// Number of files of blobs that sweeps have removed.
    swept: u64,
}

impl RecordedScenario {
    /// Runs the steps of a seed without faults.
    pub(super) fn play(seed: u64, steps: u64) -> Result<Self, String> {
        let image = new_database().map_err(|error| error.to_string())?;
        let about_blobs = is_about_blobs(seed);
        let mut world =
            if about_blobs { World::of_blobs(seed, &image)? } else { World::new(seed, &image, false)? };
        let before = world.record();
        world.is_calm = true;
        for step in 0..steps {
            let chance = Rng::with_seed(seed ^ step.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            if about_blobs { world.blob_step(chance)? } else { world.step(chance)? }
        }
        world.write_all()?;
        let killed = world.disk.bytes();
        let (events, promised) = world.recorded();
        let swept = world.blobs.removed();
        world.end_process();
        Ok(Self { before, events, promised, killed, stopped: world.disk.bytes(), swept })
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

/// Returns true for every other scenario.
fn is_about_blobs(seed: u64) -> bool {
    seed % 2 == 1
}

/// File as a crash could leave it, with the number of the state that agq had acknowledged.
struct Image {
    bytes: Vec<u8>,
    promised: usize,
    shown: String,
}

/// Calls `check` with every image, up to the first one that fails.
fn each_image(
    recorded: &RecordedScenario,
    limits: SubsetLimits,
    mut check: impl FnMut(Image) -> Result<(), String>,
) -> Result<(), String> {
    let (mut synced, mut written) = (recorded.before.clone(), recorded.before.clone());
    let (mut unsynced, mut promised): (Vec<DiskChange>, usize) = (Vec::new(), 0);
    let mut rng = Rng::with_seed(1);
    for (at, event) in recorded.events.iter().enumerate() {
        match event {
            DiskEvent::Mark(number) => {
                promised = *number;
                // The blobs may have changed since the last write to the database.
                let shown = format!("at mark {number}");
                check(Image { bytes: written.clone(), promised, shown: format!("killed {shown}") })?;
                check(Image { bytes: synced.clone(), promised, shown: format!("power cut {shown}") })?;
            }
            DiskEvent::Synced(which) => {
                let durable = unsynced.extract_if(.., |change| which.has(change));
                durable.for_each(|change| change.apply(&mut synced));
            }
            DiskEvent::Changed(change) => {
                change.apply(&mut written);
                check(Image {
                    bytes: written.clone(),
                    promised,
                    shown: format!("killed after change {at}"),
                })?;
                // Every image contains the new change, because the images without it were tried
                // before.
                for kept in subsets(unsynced.len(), limits, &mut rng) {
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
                    })?;
                    check(Image { bytes, promised, shown })?;
                }
                unsynced.push(change.clone());
            }
        }
    }
    Ok(())
}

/// Returns subsets of `count` changes. True stands for a change that survives.
fn subsets(count: usize, limits: SubsetLimits, rng: &mut Rng) -> Vec<Vec<bool>> {
    if count <= limits.all {
        return (0..1_usize << count)
            .map(|bits| (0..count).map(|bit| bits >> bit & 1 == 1).collect())
            .collect();
    }
    let one = |is: bool| (0..count).map(move |which| (0..count).map(|at| (at == which) == is).collect());
    let some = (0..limits.random).map(|_| (0..count).map(|_| rng.bool()).collect()).collect::<Vec<_>>();
    one(true).chain(one(false)).chain(some).chain([vec![true; count], vec![false; count]]).collect()
}

/// Starts agq on every image of the scenarios `seeds`. Returns true if all starts pass.
pub(super) fn run(seeds: Range<u64>, steps: u64) -> anyhow::Result<bool> {
    let (tried, swept, next) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(seeds.start));
    let failures = Mutex::new(Vec::new());
    on_all_processors(|| {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return;
            }
            if let Err(message) = try_seed(seed, steps, &tried, &swept) {
                failures.lock().unwrap_or_else(PoisonError::into_inner).push((seed, message));
            }
        }
    });
    let failures = failures.into_inner().unwrap_or_else(PoisonError::into_inner);
    let (tried, swept) = (tried.into_inner(), swept.into_inner());
    say(&format!(
        "{tried} images that a crash could leave, of {} scenarios with {swept} removed blobs; {} failed",
        seeds.end - seeds.start,
        failures.len()
    ));
    failures.iter().for_each(|(seed, message)| say(&format!("  scenario {seed}: {message}")));
    let is_enough = tried >= (seeds.end - seeds.start) * MIN_IMAGES;
    if !is_enough {
        say(
            "  these are so few that the database was hardly written: is the write-ahead log too large, or flushed too late?",
        );
    }
    let has_swept = swept > 0 || !{ seeds }.any(is_about_blobs);
    if !has_swept {
        say("  no sweep has removed a blob, so crashes before and after a removal were not tried");
    }
    Ok(failures.is_empty() && is_enough && has_swept)
}

fn try_seed(seed: u64, steps: u64, tried: &AtomicU64, swept: &AtomicU64) -> Result<(), String> {
    let recorded = RecordedScenario::play(seed, steps)?;
    swept.fetch_add(recorded.swept, Ordering::Relaxed);
    let limits = if is_about_blobs(seed) { BLOB_LIMITS } else { USUAL_LIMITS };
    let mut seen = HashSet::new();
    each_image(&recorded, limits, |image| {
        let mut hasher = DefaultHasher::new();
        (image.promised, &image.bytes).hash(&mut hasher);
        if !seen.insert(hasher.finish()) {
            return Ok(());
        }
        tried.fetch_add(1, Ordering::Relaxed);
        let outcome = guarded(|| {
            let mut world = World::on(seed, &image.bytes, &recorded.promised[image.promised])?;
            if is_about_blobs(seed) { world.check_sweep() } else { Ok(()) }
        });
        outcome.map_err(|message| format!("{}: {message}", image.shown))
    })
}
