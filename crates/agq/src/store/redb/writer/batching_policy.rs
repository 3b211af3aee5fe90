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
const MOST_DOUBLINGS: u32 = 6;
/// For every missing submitter, this many waiting ones wait for half a sync. If more are waiting,
/// they wait for less.
const WAIT_FOR_ONE: u32 = 8;

/// Predicts the number of submitters of the next batch.
#[derive(Debug, Default)]
pub(crate) struct BatchSizePredictor {
    /// Number of submitters of the last batch.
    usual: u32,
    /// Consecutive failed probes for one more submitter (failures minus successes).
    in_vain: u32,
    /// Number of batches before the next probe.
    rest: u32,
}

impl BatchSizePredictor {
    /// Returns the expected number of submitters: that of the last batch, and one more in a probe.
    pub(crate) fn expected(&self) -> u32 {
        self.usual + u32::from(self.rest == 0)
    }

    /// Returns how long `come` submitters should wait for the others: at most half of `sync`, and
    /// less if many wait for few.
    pub(crate) fn max_wait(&self, come: u32, sync: Duration) -> Duration {
        let missing = self.expected().saturating_sub(come);
        (sync * WAIT_FOR_ONE * missing / come.max(1)).min(sync) / 2
    }

    /// Learns from the number of submitters of a batch.
    pub(crate) fn observe(&mut self, came: u32) {
        if self.rest > 0 {
            self.rest -= 1;
        } else if came > self.usual {
            self.in_vain = self.in_vain.saturating_sub(1);
        } else {
            self.in_vain = (self.in_vain + 1).min(MOST_DOUBLINGS);
            self.rest = 1 << self.in_vain;
        }
        self.usual = came;
    }
}

/// Number of consecutive submissions after which a submitter counts as the only one.
const OFTEN: u32 = 8;

/// The last submitter, to recognise that there is only one.
#[derive(Debug, Default)]
pub(crate) struct SubmitterHistory {
    last: Option<u64>,
    /// Number of its consecutive submissions.
    times: u32,
}

impl SubmitterHistory {
    /// Records a submission. `None` stands for several submitters.
    pub(crate) fn came(&mut self, who: Option<u64>) {
        self.times = if who.is_some() && who == self.last { self.times.saturating_add(1) } else { 1 };
        self.last = who;
    }

    /// Returns true if one submitter has been the only one for a while.
    pub(crate) fn is_one(&self) -> bool {
        self.times >= OFTEN
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{BatchSizePredictor, OFTEN, SubmitterHistory};

    const SYNC: Duration = Duration::from_micros(120);

    fn after(came: &[u32]) -> BatchSizePredictor {
        let mut company = BatchSizePredictor::default();
        came.iter().for_each(|came| company.observe(*came));
        company
    }

    fn patience_us(company: &BatchSizePredictor, come: u32) -> u128 {
        company.max_wait(come, SYNC).as_micros()
    }

    #[test]
    fn a_single_submitter_probes_with_exponential_backoff() {
        let mut company = BatchSizePredictor::default();
        let waits = (0..300).filter(|_| {
            let waits = patience_us(&company, 1) > 0;
            company.observe(1);
            waits
        });
        assert_eq!(waits.count(), 9, "the second batch and behind 2, 4, 8, 16, 32, 64, 64 and 64 others");
    }

    #[test]
    fn few_submitters_wait_longer_for_many_than_many_for_few() {
        assert_eq!([1, 4, 7, 8, 9].map(|come| patience_us(&after(&[8, 8]), come)), [60, 60, 60, 0, 0]);
        assert_eq!([1, 56, 60, 63, 64].map(|come| patience_us(&after(&[64, 64]), come)), [60, 60, 32, 7, 0]);
    }

    #[test]
    fn two_groups_of_submitters_merge() {
        // In every round, one more submitter of the other group joins.
        let mut company = after(&[5, 3]);
        for _ in 0..20 {
            let come = company.expected().min(8);
            company.observe(come);
        }
        assert_eq!((company.usual, company.in_vain), (8, 3));
    }

    #[test]
    fn submitter_counts_as_the_only_one_until_another_submits() {
        let mut callers = SubmitterHistory::default();
        let mut is_one_after = |who| {
            callers.came(who);
            callers.is_one()
        };
        for _ in 0..2 {
            assert!((1..OFTEN).all(|_| !is_one_after(Some(7))));
            assert!(is_one_after(Some(7)) && is_one_after(Some(7)));
            assert!(!is_one_after(Some(8)) && (0..20).all(|_| !is_one_after(None)));
        }
    }

    #[test]
    fn absent_submitters_are_no_longer_waited_for() {
        let mut company = after(&[64, 64]);
        assert_eq!(patience_us(&company, 2), 60);
        company.observe(2);
        assert_eq!(patience_us(&company, 2), 0);
    }
}
