//! Which worker gets no more jobs: one whose jobs fail far more often than those of the others. Bounded: never more than
//! half of the fleet, for then the fault is more likely in the plans.

/// How many of a worker's latest outcomes are looked at.
pub const WINDOW: u32 = 50;
/// Fewest outcomes to judge a worker by, and the others together.
pub const MIN_OUTCOMES: u32 = 20;
/// A worker is suspect when at least this share of its jobs fails,
const MIN_FAILURE_PERCENT: u64 = 50;
/// and at least so many times the others' share.
const TIMES_OTHERS: u64 = 3;

/// The latest outcomes of one worker, or of several together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Outcomes {
    /// The latest of them, one bit each, the newest lowest; a failure is 1.
    bits: u64,
    count: u32,
}

impl Outcomes {
    /// With one more outcome; the oldest is forgotten after [`WINDOW`].
    #[must_use]
    pub fn with(self, failed: bool) -> Self {
        let mask = (1 << WINDOW) - 1;
        Self { bits: (self.bits << 1 | u64::from(failed)) & mask, count: (self.count + 1).min(WINDOW) }
    }

    /// How many failed, of how many.
    pub fn failures(self) -> (u32, u32) {
        (self.bits.count_ones(), self.count)
    }
}

/// Whether a worker fails so often that it is worth a comparison with the others.
pub fn is_suspect(own: Outcomes) -> bool {
    let (failed, all) = own.failures();
    all >= MIN_OUTCOMES && u64::from(failed) * 100 >= u64::from(all) * MIN_FAILURE_PERCENT
}

/// Why the worker with these outcomes is to be quarantined, if it is. `others` are the outcomes of the other workers that
/// live, `quarantined` of all `live` workers are already.
pub fn reason(own: Outcomes, others: &[Outcomes], quarantined: usize, live: usize) -> Option<String> {
    let (failed, all) = own.failures();
    let total = others.iter().map(|other| other.failures());
    let (others_failed, others_all) = total.fold((0u32, 0u32), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    let far_more =
        u64::from(failed) * u64::from(others_all) >= TIMES_OTHERS * u64::from(others_failed) * u64::from(all);
    let is_bounded = (quarantined + 1) * 2 <= live;
    (is_suspect(own) && others_all >= MIN_OUTCOMES && far_more && is_bounded).then(|| {
        format!(
            "{failed} of its last {all} jobs failed, {others_failed} of {others_all} on the other workers"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::{Outcomes, WINDOW, reason};

    fn outcomes(failed: u32, fine: u32) -> Outcomes {
        let outcomes = (0..failed).fold(Outcomes::default(), |outcomes, _| outcomes.with(true));
        (0..fine).fold(outcomes, |outcomes, _| outcomes.with(false))
    }

    #[test]
    fn only_one_who_fails_far_more_often_than_others() {
        let good = [outcomes(2, 38)];
        assert!(reason(outcomes(15, 15), &good, 0, 2).is_some());
        assert_eq!(reason(outcomes(14, 16), &good, 0, 2), None, "less than half of its jobs");
        assert_eq!(reason(outcomes(19, 0), &good, 0, 2), None, "too few jobs to judge by");
        assert_eq!(reason(outcomes(20, 0), &[outcomes(20, 20)], 0, 2), None, "the others fail too");
        assert_eq!(reason(outcomes(20, 0), &[outcomes(0, 19)], 0, 2), None, "nobody to compare with");
    }

    #[test]
    fn never_more_than_half_of_the_fleet() {
        let good = [outcomes(0, 40)];
        assert!(reason(outcomes(20, 0), &good, 1, 4).is_some());
        assert_eq!(reason(outcomes(20, 0), &good, 2, 4), None);
        assert_eq!(reason(outcomes(20, 0), &good, 0, 1), None);
    }

    #[test]
    fn the_oldest_are_forgotten() {
        assert_eq!(outcomes(20, WINDOW).failures(), (0, WINDOW));
        assert_eq!(outcomes(0, 10).with(true).failures(), (1, 11));
    }
}
