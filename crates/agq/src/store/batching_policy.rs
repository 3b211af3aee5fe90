//! Group-commit policy: predicts how many submitters the next batch will have, and how long it is
//! worth to wait for them. No I/O, no clock.
//!
//! Submitters that share a sync get their answers together, and submit again together. A submitter
//! that arrives too late waits for the end of a whole sync, and from then on forms a group of its
//! own. Two groups that could share one sync then take two in turn. A batch that waits for a moment
//! merges such groups.

use std::time::Duration;

/// Exponent of the longest backoff. After failed probes for one more submitter, the next 2, 4, 8, …
/// batches do not probe, and at most two to this power.
const MAX_DOUBLINGS: u32 = 6;
/// Number of waiting submitters that wait for half a sync, for every missing submitter. More
/// waiting submitters wait for less.
const WAIT_FOR_ONE: u32 = 8;

/// Predicts the number of submitters of the next batch.
#[derive(Debug, Default)]
pub(crate) struct BatchSizePredictor {
    /// Number of submitters of the last batch.
    last_count: u32,
    /// Consecutive failed probes for one more submitter (failures minus successes).
    failed_probes: u32,
    /// Number of batches before the next probe.
    backoff: u32,
}

impl BatchSizePredictor {
    /// Returns the expected number of submitters: that of the last batch, and one more in a probe.
    pub(crate) fn expected(&self) -> u32 {
        self.last_count + u32::from(self.backoff == 0)
    }

    /// Returns how long `submitted` submitters should wait for the others: at most half of `sync`,
    /// and less if many wait for few.
    pub(crate) fn max_wait(&self, submitted: u32, sync: Duration) -> Duration {
        let missing = self.expected().saturating_sub(submitted);
        (sync * WAIT_FOR_ONE * missing / submitted.max(1)).min(sync) / 2
    }

    /// Learns from the number of submitters of a batch.
    pub(crate) fn observe(&mut self, count: u32) {
        if self.backoff > 0 {
            self.backoff -= 1;
        } else if count > self.last_count {
            self.failed_probes = self.failed_probes.saturating_sub(1);
        } else {
            self.failed_probes = (self.failed_probes + 1).min(MAX_DOUBLINGS);
            self.backoff = 1 << self.failed_probes;
        }
        self.last_count = count;
    }
}

/// Number of consecutive submissions after which a submitter counts as the only one.
const MIN_CONSECUTIVE: u32 = 8;

/// The last submitter, to recognise that there is only one.
#[derive(Debug, Default)]
pub(crate) struct SubmitterHistory {
    last: Option<u64>,
    /// Number of consecutive submissions of the last submitter.
    times: u32,
}

impl SubmitterHistory {
    /// Records a submission. `None` stands for several submitters.
    pub(crate) fn record(&mut self, submitter: Option<u64>) {
        self.times =
            if submitter.is_some() && submitter == self.last { self.times.saturating_add(1) } else { 1 };
        self.last = submitter;
    }

    /// Returns true if one submitter has been the only one for a while.
    pub(crate) fn is_one(&self) -> bool {
        self.times >= MIN_CONSECUTIVE
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{BatchSizePredictor, MIN_CONSECUTIVE, SubmitterHistory};

    const SYNC: Duration = Duration::from_micros(120);

    fn after(count: &[u32]) -> BatchSizePredictor {
        let mut predictor = BatchSizePredictor::default();
        count.iter().for_each(|count| predictor.observe(*count));
        predictor
    }

    fn wait_us(predictor: &BatchSizePredictor, submitted: u32) -> u128 {
        predictor.max_wait(submitted, SYNC).as_micros()
    }

    #[test]
    fn a_single_submitter_probes_with_exponential_backoff() {
        let mut predictor = BatchSizePredictor::default();
        let waits = (0..300).filter(|_| {
            let waits = wait_us(&predictor, 1) > 0;
            predictor.observe(1);
            waits
        });
        assert_eq!(waits.count(), 9, "the second batch and behind 2, 4, 8, 16, 32, 64, 64 and 64 others");
    }

    #[test]
    fn few_submitters_wait_longer_for_many_than_many_for_few() {
        assert_eq!([1, 4, 7, 8, 9].map(|submitted| wait_us(&after(&[8, 8]), submitted)), [60, 60, 60, 0, 0]);
        assert_eq!(
            [1, 56, 60, 63, 64].map(|submitted| wait_us(&after(&[64, 64]), submitted)),
            [60, 60, 32, 7, 0]
        );
    }

    #[test]
    fn two_groups_of_submitters_merge() {
        // In every round, one more submitter of the other group joins.
        let mut predictor = after(&[5, 3]);
        for _ in 0..20 {
            let submitted = predictor.expected().min(8);
            predictor.observe(submitted);
        }
        assert_eq!((predictor.last_count, predictor.failed_probes), (8, 3));
    }

    #[test]
    fn submitter_counts_as_the_only_one_until_another_submits() {
        let mut callers = SubmitterHistory::default();
        let mut is_one_after = |submitter| {
            callers.record(submitter);
            callers.is_one()
        };
        for _ in 0..2 {
            assert!((1..MIN_CONSECUTIVE).all(|_| !is_one_after(Some(7))));
            assert!(is_one_after(Some(7)) && is_one_after(Some(7)));
            assert!(!is_one_after(Some(8)) && (0..20).all(|_| !is_one_after(None)));
        }
    }

    #[test]
    fn absent_submitters_are_no_longer_waited_for() {
        let mut predictor = after(&[64, 64]);
        assert_eq!(wait_us(&predictor, 2), 60);
        predictor.observe(2);
        assert_eq!(wait_us(&predictor, 2), 0);
    }
}
