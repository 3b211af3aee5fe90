//! Runs every target on its corpus, and on mutations of the corpus that are the same in every run.

#![allow(clippy::unwrap_used, reason = "a test that cannot read its corpus fails")]

use std::{fs, panic::catch_unwind, path::Path};

use agenix_fuzz::{FuzzTarget, targets};
use fastrand::Rng;

/// How many mutations of its corpus each target sees.
const MUTATIONS: usize = 6000;

fn corpus(target: &FuzzTarget) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target.name);
    let mut files: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.iter().map(|file| fs::read(file).unwrap()).collect()
}

/// Runs a target, and names the bytes on which the target panics.
fn run(target: &FuzzTarget, bytes: &[u8]) -> bool {
    let ran = catch_unwind(|| (target.run)(bytes));
    ran.unwrap_or_else(|_| panic!("{} fails on b\"{}\"", target.name, bytes.escape_ascii()))
}

#[test]
fn the_corpus_holds_what_is_accepted_and_what_is_not() {
    for target in targets() {
        let seeds = corpus(&target);
        let accepted = seeds.iter().filter(|seed| run(&target, seed)).count();
        let (name, all) = (target.name, seeds.len());
        assert!(accepted > 0 && accepted < all, "{name} accepts {accepted} of {all}");
    }
}

#[test]
fn mutations_of_the_corpus_break_nothing() {
    for target in targets() {
        let (seeds, mut random) = (corpus(&target), Rng::with_seed(7));
        for _ in 0..MUTATIONS {
            run(&target, &mutated(&seeds, &mut random));
        }
    }
}

/// One to four small changes of one of the seeds.
fn mutated(seeds: &[Vec<u8>], random: &mut Rng) -> Vec<u8> {
    let mut bytes = random.choice(seeds).unwrap().clone();
    for _ in 0..random.usize(1..=4) {
        let (from, to) = range(bytes.len(), random);
        match random.u8(0..6) {
            0 => bytes.truncate(from),
            1 => drop(bytes.drain(from..to)),
            2 => {
                let copy = bytes[from..to].to_vec();
                let times = if copy.len() <= 8 { random.choice([1, 2, 3, 9, 2000]) } else { Some(1) };
                bytes.splice(from..from, copy.repeat(times.unwrap()));
            }
            3 => {
                let other = random.choice(seeds).unwrap();
                let (first, last) = range(other.len(), random);
                bytes.splice(from..to, other[first..last].iter().copied());
            }
            4 => bytes.insert(from, random.u8(..)),
            _ => bytes.splice(from..to, random.choice(&EDGES).unwrap().bytes()).for_each(drop),
        }
    }
    bytes
}

/// Values that break programs often.
const EDGES: [&str; 12] = [
    "0",
    "-1",
    "9223372036854775807",
    "18446744073709551616",
    "1e400",
    "2.0065",
    "\0",
    "\r\n",
    "\"\"",
    "\\u0000",
    "{{input.a}}",
    "9999-12-31T23:59:59-23:59",
];

/// Returns the bounds of a random part of `length` bytes, mostly of a short part.
fn range(length: usize, random: &mut Rng) -> (usize, usize) {
    let from = random.usize(0..=length);
    let most = if random.bool() { 8 } else { length };
    (from, random.usize(from..=length.min(from + most)))
}
