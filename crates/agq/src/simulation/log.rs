//! The log of a simulation: nobody reads its lines, and the system refuses some of them, at moments
//! that the seed chooses.

use std::{
    cell::RefCell,
    io::{self, Write},
};

use fastrand::Rng;
use rustix::io::Errno;

use crate::startup::logging;

/// Errors with which a line of a log fails: a full disk, a reader that is gone, a bad disk.
const ERRORS: [Errno; 3] = [Errno::NOSPC, Errno::PIPE, Errno::IO];
/// Maximum number of lines in succession that have the same fate.
const LONGEST: u8 = 4;

thread_local! {
    static FATE: RefCell<LineFate> = RefCell::new(LineFate::of(0));
}

/// Fate of the next lines of a thread.
struct LineFate {
    rng: Rng,
    error: Option<Errno>,
    /// Number of lines that have it.
    left: u8,
}

impl LineFate {
    fn of(seed: u64) -> Self {
        Self { rng: Rng::with_seed(seed), error: None, left: 0 }
    }

    fn of_next_line(&mut self) -> Option<Errno> {
        if self.left == 0 {
            self.error = self.rng.bool().then(|| ERRORS[self.rng.usize(..ERRORS.len())]);
            self.left = self.rng.u8(1..=LONGEST);
        }
        self.left -= 1;
        self.error
    }
}

/// Writer of one line.
struct FaultyLineWriter;

impl Write for FaultyLineWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match FATE.with_borrow_mut(LineFate::of_next_line) {
            Some(error) => Err(error.into()),
            None => Ok(bytes.len()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Starts the log for all threads. `cargo xtask` starts the program with a full device as its
/// stderr, so that nobody can report the loss of a line there.
pub(super) fn start() {
    logging::start_on(|| FaultyLineWriter, false);
}

/// Begins a world in this thread: its lines have the fates that `seed` chooses.
pub(super) fn begin(seed: u64) {
    FATE.set(LineFate::of(seed));
}
