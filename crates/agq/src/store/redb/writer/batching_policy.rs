//! How many are about to hand something in, by how many came lately: the rule by which a batch waits for more. Pure.
//!
//! Those who share a sync are answered together, and come again together. But who comes a moment too late waits for the end of a
//! whole sync, and goes on in a group of its own: eight who could share one sync take two by turns. A batch that waits for a moment
//! brings them together.

use std::time::Duration;

/// Where one more was waited for in vain, that is left alone for 2, 4, 8 batches, and never for more than two to this power.
const MOST_DOUBLINGS: u32 = 6;
/// For each that is missing so many wait for half a sync; the more they are beyond that, the shorter they wait.
const WAIT_FOR_ONE: u32 = 8;

/// Who is known to come.
#[derive(Debug, Default)]
pub(crate) struct BatchSizePredictor {
    /// How many came to the last batch.
    usual: u32,
    /// How much more often one more than those was waited for in vain than not.
    in_vain: u32,
    /// How many batches it is before that is tried again.
    rest: u32,
}

impl BatchSizePredictor {
    /// How many are expected: as many as to the last batch, and now and then one more.
    pub(crate) fn expected(&self) -> u32 {
        self.usual + u32::from(self.rest == 0)
    }

    /// How long those who have come wait for the others: half a sync, and less where they are many and few are missing.
    pub(crate) fn max_wait(&self, come: u32, sync: Duration) -> Duration {
        let missing = self.expected().saturating_sub(come);
        (sync * WAIT_FOR_ONE * missing / come.max(1)).min(sync) / 2
    }

    /// So many have come.
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

/// Whoever comes so often, and nobody else, is alone.
const OFTEN: u32 = 8;

/// Who came lately.
#[derive(Debug, Default)]
pub(crate) struct SubmitterHistory {
    last: Option<u64>,
    /// How often that one has come since anybody else did.
    times: u32,
}

impl SubmitterHistory {
    /// This one has come; `None` is many.
    pub(crate) fn came(&mut self, who: Option<u64>) {
        self.times = if who.is_some() && who == self.last { self.times.saturating_add(1) } else { 1 };
        self.last = who;
    }

    /// Whether nobody but one has come for a while.
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
    fn whoever_is_alone_waits_seldom_and_ever_more_seldom() {
        let mut company = BatchSizePredictor::default();
        let waits = (0..300).filter(|_| {
            let waits = patience_us(&company, 1) > 0;
            company.observe(1);
            waits
        });
        assert_eq!(waits.count(), 9, "the second batch and behind 2, 4, 8, 16, 32, 64, 64 and 64 others");
    }

    #[test]
    fn few_wait_for_many_longer_than_many_for_few() {
        assert_eq!([1, 4, 7, 8, 9].map(|come| patience_us(&after(&[8, 8]), come)), [60, 60, 60, 0, 0]);
        assert_eq!([1, 56, 60, 63, 64].map(|come| patience_us(&after(&[64, 64]), come)), [60, 60, 32, 7, 0]);
    }

    #[test]
    fn two_groups_become_one() {
        // Those of the other group come while this one waits, one more each time.
        let mut company = after(&[5, 3]);
        for _ in 0..20 {
            let come = company.expected().min(8);
            company.observe(come);
        }
        assert_eq!((company.usual, company.in_vain), (8, 3));
    }

    #[test]
    fn whoever_is_alone_is_so_until_somebody_else_comes() {
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
    fn those_who_stay_away_are_soon_not_waited_for() {
        let mut company = after(&[64, 64]);
        assert_eq!(patience_us(&company, 2), 60);
        company.observe(2);
        assert_eq!(patience_us(&company, 2), 0);
    }
}
