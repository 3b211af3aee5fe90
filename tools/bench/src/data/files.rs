//! Input files: ten parts of random words, and one file with the same content.

use std::{
    fs::File,
    io::{self, Write},
};

use e2e::Lab;

const PARTS: usize = 10;
/// Bytes of distinct words. Files consist of parts that begin at random positions in the words.
const BLOCK: usize = 4_000_000;
const MEGABYTE: usize = 1_000_000;

pub(super) struct WordFiles {
    pub(super) whole: String,
    pub(super) parts: Vec<String>,
    /// Bytes of the whole file, which are those of all parts together.
    pub(super) bytes: usize,
}

impl WordFiles {
    pub(super) fn megabytes(&self) -> usize {
        self.bytes / MEGABYTE
    }

    /// Writes the files into the directory of `lab`.
    pub(super) fn make(lab: &Lab, part_megabytes: usize) -> io::Result<Self> {
        println!("  writing twice {} MB of words", PARTS * part_megabytes);
        let mut rng = fastrand::Rng::with_seed(7);
        let words = words(&mut rng);
        let path = |name: &str| lab.path().join(name);
        let mut whole = File::create(path("whole"))?;
        let mut parts = Vec::with_capacity(PARTS);
        for number in 0..PARTS {
            let name = path(&format!("part-{number}"));
            let mut part = File::create(&name)?;
            for _ in 0..part_megabytes {
                let at = rng.usize(..BLOCK - MEGABYTE);
                let piece = &words[at..at + MEGABYTE];
                part.write_all(piece)?;
                whole.write_all(piece)?;
            }
            parts.push(name.display().to_string());
        }
        let bytes = PARTS * part_megabytes * MEGABYTE;
        Ok(Self { whole: path("whole").display().to_string(), parts, bytes })
    }
}

/// Returns lines of short random words.
fn words(rng: &mut fastrand::Rng) -> Vec<u8> {
    let mut words = Vec::with_capacity(BLOCK + 16);
    while words.len() < BLOCK {
        for _ in 0..rng.usize(1..12) {
            words.push(rng.u8(b'a'..=b'z'));
        }
        words.push(if rng.u8(..10) == 0 { b'\n' } else { b' ' });
    }
    words
}
