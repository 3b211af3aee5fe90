//! The threads that start processes and wait for them. To start a process takes its thread a fraction of a millisecond; on
//! threads of their own, what is said to agq, and what other jobs have to say, does not wait for that. None is made for a child.

use std::{
    io,
    time::{Duration, Instant},
};

use tokio::runtime::{Builder, Handle, Runtime};

/// Most of them. With fewer slots than this, a job whose disk hangs holds up no other.
const MOST: usize = 32;

/// The lanes; each has a thread and sees to the processes of its slots.
pub(crate) struct Lanes(Vec<Runtime>);

impl Lanes {
    /// One for each slot, up to a bound.
    pub(crate) fn new(slots: u32) -> io::Result<Self> {
        let count = (slots as usize).clamp(1, MOST);
        let lane = |_| Builder::new_multi_thread().worker_threads(1).thread_name("lane").enable_all().build();
        (0..count).map(lane).collect::<io::Result<_>>().map(Self)
    }

    /// What work is given to.
    pub(crate) fn handles(&self) -> Vec<Handle> {
        self.0.iter().map(|lane| lane.handle().clone()).collect()
    }

    /// Ends them; waits at most so long for what hangs in a system call.
    pub(crate) fn shut_down(self, bound: Duration) {
        let end = Instant::now() + bound;
        for lane in self.0 {
            lane.shutdown_timeout(end.saturating_duration_since(Instant::now()));
        }
    }
}
