//! Log of the simulation: all lines are dropped, and some of them fail with an error, at moments
//! that the seed chooses.

use std::{
    cell::RefCell,
    io::{self, Write},
};

use fastrand::Rng;
use rustix::io::Errno;

use crate::startup::logging;

/// Errors with which a line fails: a full disk, a closed pipe, a bad disk.
const ERRORS: [Errno; 3] = [Errno::NOSPC, Errno::PIPE, Errno::IO];
/// Maximum number of successive lines with the same outcome.
const MAX_EQUAL_LINES: u8 = 4;

thread_local! {
    static FATE: RefCell<LineFate> = RefCell::new(LineFate::of(0));
}

/// Outcome of the next lines of a thread.
struct LineFate {
    rng: Rng,
    error: Option<Errno>,
    /// Number of remaining lines with this outcome.
    left: u8,
}

impl LineFate {
    fn of(seed: u64) -> Self {
        Self { rng: Rng::with_seed(seed), error: None, left: 0 }
    }

    fn of_next_line(&mut self) -> Option<Errno> {
        if self.left == 0 {
            self.error = self.rng.bool().then(|| ERRORS[self.rng.usize(..ERRORS.len())]);
            self.left = self.rng.u8(1..=MAX_EQUAL_LINES);
        }
        self.left -= 1;
        self.error
    }
}

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

/// Starts logging for all threads. `cargo xtask` starts the program with a full device as its
/// stderr, so that the loss of a line cannot be reported there.
pub(super) fn start() {
    logging::start_on(|| FaultyLineWriter, false);
}

/// Begins a world in this thread, whose lines have the outcomes that `seed` chooses.
pub(super) fn begin(seed: u64) {
    FATE.set(LineFate::of(seed));
}
