//! Tests with damaged files: flipped bytes, lost sectors, and a cut end. agq must either start with
//! all data, or refuse to start with a message that names the next step. agq must never serve
//! anything else.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use crate::simulation::{
    crash_images::RecordedScenario,
    disk::JOURNAL,
    expectations::Expectations,
    report::say,
    run::{guarded, on_all_processors},
    world::World,
};

/// Unit in which a disk loses data, in bytes.
const SECTOR: usize = 512;
/// Number of bytes at the start of each file, each of which is damaged.
const HEADER: usize = 512;
/// Distance of the damaged bytes after the headers.
const STRIDE: usize = 29;

#[derive(Debug, Clone, Copy)]
enum Corruption {
    Flip {
        at: usize,
        mask: u8,
    },
    Lose {
        sector: usize,
    },
    Cut {
        len: usize,
    },
    /// The write-ahead log is a file of its own, and is lost as a whole.
    LoseJournal,
}

impl Corruption {
    fn apply(self, bytes: &mut Vec<u8>) {
        match self {
            Self::Flip { at, mask } => bytes[at] ^= mask,
            Self::Lose { sector } => {
                let end = bytes.len().min((sector + 1) * SECTOR);
                bytes[sector * SECTOR..end].fill(0);
            }
            // The write-ahead log never changes its size. agq refuses an empty database before redb
            // opens it.
            Self::Cut { len } => bytes.truncate(len.max(JOURNAL + 1)),
            Self::LoseJournal => bytes[..JOURNAL].fill(0),
        }
    }

    fn all(len: usize, every_byte: bool) -> Vec<Self> {
        let stride = if every_byte { 1 } else { STRIDE };
        let is_header = |at: &usize| at % JOURNAL < HEADER && *at < JOURNAL + HEADER;
        let places = (0..len).filter(|at| is_header(at) || at % stride == 0);
        let flips = places.flat_map(|at| {
            let masks = if is_header(&at) { vec![1, 2, 4, 8, 0x80, 0xff] } else { vec![1 << (at % 8)] };
            masks.into_iter().map(move |mask| Self::Flip { at, mask })
        });
        let sectors = 0..len / SECTOR;
        let cuts = sectors.clone().step_by(if every_byte { 1 } else { 8 });
        let losses = sectors.map(|sector| Self::Lose { sector });
        let cuts = cuts.map(|sector| Self::Cut { len: sector * SECTOR });
        flips.chain(losses).chain(cuts).chain([Self::LoseJournal]).collect()
    }
}

/// Applies every kind of damage to a scenario's file. Returns true if agq reacted correctly.
pub(super) fn run(seed: u64, steps: u64, every_byte: bool) -> anyhow::Result<bool> {
    let recorded = RecordedScenario::play(seed, steps).map_err(anyhow::Error::msg)?;
    let [.., last] = recorded.promised.as_slice() else { anyhow::bail!("nothing was written") };
    let last = last.with_blobs_of_all_times();
    let before = recorded.before_last_commit().with_blobs_of_all_times();
    let stopped = try_all("after a stop", &recorded.stopped, &[&last], every_byte);
    let killed = try_all("after a kill", &recorded.killed, &[&last, &before], every_byte);
    Ok(stopped && killed)
}

fn try_all(when: &str, file: &[u8], promised: &[&Expectations], every_byte: bool) -> bool {
    let (all, next) = (Corruption::all(file.len(), every_byte), AtomicUsize::new(0));
    let outcomes: Mutex<BTreeMap<String, (usize, Corruption)>> = Mutex::default();
    on_all_processors(|| {
        while let Some(damage) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
            let outcome = try_one(file, *damage, promised);
            let mut outcomes = outcomes.lock().unwrap_or_else(PoisonError::into_inner);
            outcomes.entry(outcome).or_insert((0, *damage)).0 += 1;
        }
    });
    let outcomes = outcomes.into_inner().unwrap_or_else(PoisonError::into_inner);
    say(&format!("{} kinds of damage {when}:", all.len()));
    for (outcome, (count, first)) in &outcomes {
        say(&format!("  {count:>8} {outcome} (the first: {first:?})"));
    }
    outcomes.keys().all(|outcome| is_fine(outcome))
}

const SERVED: &str = "started, and everything is there";
/// A damaged last commit has the form of a commit that a crash has torn. A database with one sync
/// per commit cannot distinguish the two.
const ROLLED_BACK: &str = "started with the commit before the last";
const REFUSED: &str = "refused: ";

fn is_fine(outcome: &str) -> bool {
    outcome == SERVED
        || outcome == ROLLED_BACK
        || (outcome.starts_with(REFUSED) && outcome.contains("agq restore"))
}

/// Starts agq on the damaged file, and returns the outcome, as the same text for each kind.
fn try_one(file: &[u8], damage: Corruption, promised: &[&Expectations]) -> String {
    let mut bytes = file.to_vec();
    damage.apply(&mut bytes);
    let mut first = None;
    for (promised, outcome) in promised.iter().zip([SERVED, ROLLED_BACK]) {
        match guarded(|| World::on(0, &bytes, promised).map(drop)) {
            Ok(()) => return outcome.to_owned(),
            Err(message) => drop(first.get_or_insert(message)),
        }
    }
    let message = first.unwrap_or_default();
    match message.strip_prefix("agq does not start: ") {
        Some(refusal) => format!("{REFUSED}{}", without_numbers(refusal)),
        None => format!("WRONG: {}", without_numbers(&message)),
    }
}

fn without_numbers(text: &str) -> String {
    let mut shown = String::new();
    for letter in text.chars() {
        match letter {
            '0'..='9' if shown.ends_with('#') => {}
            '0'..='9' => shown.push('#'),
            other => shown.push(other),
        }
    }
    shown
}
