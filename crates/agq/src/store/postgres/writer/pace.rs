//! Pace of a writer: whether a batch waits for more writes, and for how long.

use std::time::{Duration, Instant};

use crate::store::batching_policy::BatchSizePredictor;

/// Parts of the moving average of the time for a batch. The newest batch is one part.
const PARTS: u32 = 8;
/// Maximum time that counts for a batch. A batch that waits for locks takes longer.
const MAX_TIME: Duration = Duration::from_millis(20);
/// Number of writes from which on a batch does not wait. With fewer writes, those of two groups of
/// submitters share the round trips and the commit. With more writes, the database had better work
/// for one group while agq answers the other.
const ENOUGH: u32 = 16;

#[derive(Debug, Default)]
pub(crate) struct Pace {
    predictor: BatchSizePredictor,
    begun: Option<Instant>,
    /// Moving average of the time for a batch.
    time: Duration,
}

impl Pace {
    /// Returns how many writes the next batch may have, and how long `submitted` writes wait for
    /// the others.
    pub(crate) fn wait_for(&self, submitted: usize) -> (usize, Duration) {
        let submitted = u32::try_from(submitted).unwrap_or(u32::MAX);
        let expected = self.predictor.expected().min(ENOUGH);
        let wait =
            if submitted < expected { self.predictor.max_wait(submitted, self.time) } else { Duration::ZERO };
        (expected as usize, wait)
    }

    pub(crate) fn begin_batch(&mut self, count: usize) {
        self.predictor.observe(u32::try_from(count).unwrap_or(u32::MAX));
        self.begun = Some(Instant::now());
    }

    pub(crate) fn end_batch(&mut self) {
        let Some(begun) = self.begun.take() else { return };
        self.time = (self.time * (PARTS - 1) + begun.elapsed().min(MAX_TIME)) / PARTS;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{ENOUGH, Pace};

    fn pace_after(counts: &[usize]) -> Pace {
        let mut pace = Pace { time: Duration::from_millis(1), ..Pace::default() };
        counts.iter().for_each(|count| pace.begin_batch(*count));
        pace
    }

    #[test]
    fn small_batches_wait_for_the_writes_of_the_last_one() {
        let pace = pace_after(&[8, 8]);
        assert_eq!(pace.wait_for(4), (8, Duration::from_micros(500)));
        assert_eq!(pace.wait_for(8), (8, Duration::ZERO));
    }

    #[test]
    fn large_batches_do_not_wait() {
        let pace = pace_after(&[64, 64]);
        assert_eq!(pace.wait_for(ENOUGH as usize), (ENOUGH as usize, Duration::ZERO));
        assert!(pace.wait_for(1).1 > Duration::ZERO);
    }
}
