//! Back-pressure: how many inputs agx submits ahead of the results that it has taken. The number is
//! high enough to keep every worker busy. A bound limits the memory and disk that endless inputs
//! take in agx and in agq.

use tokio::sync::watch;

/// Maximum number of submitted jobs whose results agx has not taken.
const MAX_JOBS: u64 = 10_000;
/// Maximum number of bytes of the inputs of the jobs ahead.
const MAX_BYTES: usize = 64 * 1024 * 1024;
/// Jobs per running job that may be ahead at any size: a worker should not wait for large inputs.
const FOR_EACH_THAT_RUNS: u64 = 4;
/// Number of jobs that may be ahead before any job runs.
const MIN_JOBS: u64 = 16;

/// Counts of submitted jobs whose results agx has not taken, shared by submitter and collector.
#[derive(Debug, Clone)]
pub(crate) struct ReadAhead(watch::Sender<ReadAheadCounts>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ReadAheadCounts {
    jobs: u64,
    bytes: usize,
    /// Number of jobs that may be ahead whatever their size.
    floor: u64,
    /// True while no further job may be submitted.
    is_held: bool,
}

impl ReadAheadCounts {
    fn has_room(&self) -> bool {
        let is_small = self.jobs < MAX_JOBS && self.bytes < MAX_BYTES;
        !self.is_held && (self.jobs < self.floor || is_small)
    }
}

impl ReadAhead {
    /// Creates the counts. `slots` is the number of jobs at once, or 0 if it is unknown.
    pub(crate) fn new(slots: u64) -> Self {
        let floor = MIN_JOBS.max(slots.saturating_mul(FOR_EACH_THAT_RUNS));
        Self(watch::Sender::new(ReadAheadCounts { jobs: 0, bytes: 0, floor, is_held: false }))
    }

    /// Returns the maximum number of jobs ahead, of inputs of at least `least_bytes` bytes.
    pub(crate) fn most_jobs(slots: u64, least_bytes: usize) -> u64 {
        let by_bytes = MAX_BYTES.div_ceil(least_bytes.max(1)) as u64 + 1;
        MIN_JOBS.max(slots.saturating_mul(FOR_EACH_THAT_RUNS)).max(MAX_JOBS.min(by_bytes))
    }

    /// Counts one more job, with an input of `bytes` bytes.
    pub(crate) fn add(&self, bytes: usize) {
        self.0.send_modify(|counts| {
            counts.jobs += 1;
            counts.bytes += bytes;
        });
    }

    /// Removes `jobs` jobs with inputs of `bytes` bytes from the counts.
    pub(crate) fn taken(&self, jobs: u64, bytes: usize) {
        self.0.send_modify(|counts| {
            counts.jobs = counts.jobs.saturating_sub(jobs);
            counts.bytes = counts.bytes.saturating_sub(bytes);
        });
    }

    /// Raises the floor if `jobs` running jobs need a higher one.
    pub(crate) fn running(&self, jobs: u64) {
        let floor = jobs.saturating_mul(FOR_EACH_THAT_RUNS);
        self.0.send_if_modified(|counts| {
            let is_more = floor > counts.floor;
            counts.floor = counts.floor.max(floor);
            is_more
        });
    }

    /// Stops submissions if `is_held`, and allows them otherwise.
    pub(crate) fn hold(&self, is_held: bool) {
        self.0.send_if_modified(|counts| std::mem::replace(&mut counts.is_held, is_held) != is_held);
    }

    /// Returns true if one more job may be submitted.
    pub(crate) fn has_room(&self) -> bool {
        self.0.borrow().has_room()
    }

    /// Waits until one more job may be submitted.
    pub(crate) async fn room(&self) {
        // The channel cannot close, because `self` is one of its senders.
        let mut counts = self.0.subscribe();
        let _open = counts.wait_for(ReadAheadCounts::has_room).await;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{FOR_EACH_THAT_RUNS, MAX_BYTES, MAX_JOBS, MIN_JOBS, ReadAhead};

    proptest! {
        /// Inputs are submitted while there is room; results are taken in between, in any order.
        #[test]
        fn submitting_ahead_is_bounded_for_any_split(
            slots in 0..64_u64,
            steps in prop::collection::vec((prop::option::of(0..MAX_BYTES / 3), 0..32_usize), 1..400),
        ) {
            let ahead = ReadAhead::new(slots);
            let floor = MIN_JOBS.max(slots * FOR_EACH_THAT_RUNS);
            let mut jobs: Vec<usize> = Vec::new();
            for (input, at) in steps {
                match input {
                    Some(bytes) if ahead.has_room() => {
                        ahead.add(bytes);
                        jobs.push(bytes);
                    }
                    // No room is no deadlock: the collector has a result to take.
                    None | Some(_) => {
                        prop_assert!(ahead.has_room() || !jobs.is_empty());
                        if !jobs.is_empty() {
                            let bytes = jobs.swap_remove(at % jobs.len());
                            ahead.taken(1, bytes);
                        }
                    }
                }
                let (count, bytes) = (jobs.len() as u64, jobs.iter().sum::<usize>());
                let largest = jobs.iter().max().copied().unwrap_or_default();
                prop_assert!(count <= floor.max(MAX_JOBS));
                prop_assert!(count <= floor || bytes < MAX_BYTES + largest, "{} jobs have {} bytes", count, bytes);
            }
        }
    }

    #[test]
    fn read_ahead_is_bounded_and_results_free_room() {
        let ahead = ReadAhead::new(1);
        (0..MAX_JOBS).for_each(|_| ahead.add(1));
        assert!(!ahead.has_room());
        ahead.taken(1, 1);
        assert!(ahead.has_room());
        let ahead = ReadAhead::new(1);
        (0..20).for_each(|_| ahead.add(MAX_BYTES / 20 + 1));
        assert!(!ahead.has_room());
        ahead.taken(1, MAX_BYTES / 20 + 1);
        assert!(ahead.has_room());
    }

    #[test]
    fn read_ahead_keeps_many_slots_busy_with_large_inputs() {
        let ahead = ReadAhead::new(100);
        (0..399).for_each(|_| ahead.add(MAX_BYTES));
        assert!(ahead.has_room());
        ahead.add(MAX_BYTES);
        assert!(!ahead.has_room());
        ahead.running(101);
        assert!(ahead.has_room(), "more run than was known");
    }

    #[test]
    fn read_ahead_stops_while_it_is_held() {
        let ahead = ReadAhead::new(1);
        ahead.hold(true);
        assert!(!ahead.has_room());
        ahead.hold(false);
        assert!(ahead.has_room());
    }

    #[test]
    fn read_ahead_bound_depends_on_the_size_of_inputs() {
        assert_eq!(ReadAhead::most_jobs(2, 1), MAX_JOBS);
        assert_eq!(ReadAhead::most_jobs(2, 1024 * 1024), 65);
        assert_eq!(ReadAhead::most_jobs(100, 1024 * 1024), 400);
        assert_eq!(ReadAhead::most_jobs(10_000, 1), 40_000);
    }
}
