//! Quarantine: decides about workers that get no more jobs, because their jobs fail far more often
//! than jobs of the same plan or type on other workers. At most half of the workers are
//! quarantined, because beyond that the plans are the more likely cause.

use std::collections::VecDeque;

/// Maximum number of kinds of work in the history of a worker.
pub const MAX_KINDS: usize = 32;
/// Number of latest outcomes per kind of work that count.
pub const WINDOW: u32 = 50;
/// Minimum number of outcomes to judge a worker, and of all other workers together.
pub const MIN_OUTCOMES: u32 = 20;
/// Minimum percentage of failures of a suspect worker.
const MIN_FAILURE_PERCENT: u64 = 50;
/// Minimum ratio of the failure rate of a suspect worker to that of the others.
const TIMES_OTHERS: u64 = 3;

/// Latest outcomes of one worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Outcomes {
    /// Outcomes as bits, the newest lowest; a failure is 1.
    bits: u64,
    count: u32,
}

impl Outcomes {
    /// Appends an outcome, and drops the oldest beyond [`WINDOW`].
    pub fn with(self, failed: bool) -> Self {
        let mask = (1 << WINDOW) - 1;
        Self { bits: (self.bits << 1 | u64::from(failed)) & mask, count: (self.count + 1).min(WINDOW) }
    }

    /// Returns the number of failures, and the number of outcomes.
    pub fn failures(self) -> (u32, u32) {
        (self.bits.count_ones(), self.count)
    }
}

/// Latest outcomes of one worker by kind of work. A kind is a plan or a job type.
#[derive(Debug, Clone, Default)]
pub struct OutcomeHistory(VecDeque<(Box<str>, Outcomes)>);

impl OutcomeHistory {
    /// Adds an outcome. Beyond [`MAX_KINDS`], drops the kind with the least recent outcome.
    pub fn record(&mut self, kind: &str, failed: bool) {
        let known = self.0.iter().position(|(known, _)| **known == *kind).and_then(|at| self.0.remove(at));
        let (kind, outcomes) = known.unwrap_or_else(|| (kind.into(), Outcomes::default()));
        self.0.push_front((kind, outcomes.with(failed)));
        self.0.truncate(MAX_KINDS);
    }

    /// Returns the latest outcomes of `kind`.
    pub fn of(&self, kind: &str) -> Outcomes {
        let known = self.0.iter().find(|(known, _)| **known == *kind);
        known.map(|(_, outcomes)| *outcomes).unwrap_or_default()
    }
}

/// Returns true if a worker fails often enough for a comparison with other workers.
pub fn is_suspect(own: Outcomes) -> bool {
    let (failed, all) = own.failures();
    all >= MIN_OUTCOMES && u64::from(failed) * 100 >= u64::from(all) * MIN_FAILURE_PERCENT
}

/// Returns the reason to blame the worker instead of the work, if other workers did the same kind
/// of work well. `own` and `others` are outcomes of `kind` alone.
pub fn blame(kind: &str, own: Outcomes, others: impl Iterator<Item = Outcomes>) -> Option<String> {
    if !is_suspect(own) {
        return None;
    }
    let (failed, all) = own.failures();
    let total = others.map(Outcomes::failures);
    let (others_failed, others_all) = total.fold((0u32, 0u32), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    let far_more =
        u64::from(failed) * u64::from(others_all) >= TIMES_OTHERS * u64::from(others_failed) * u64::from(all);
    (others_all >= MIN_OUTCOMES && far_more).then(|| {
        format!(
            "{failed} of its last {all} jobs of '{kind}' failed, {others_failed} of {others_all} on the other workers"
        )
    })
}

/// Returns true if one more of `live` workers may be quarantined, beside `quarantined`.
pub fn is_bounded(quarantined: usize, live: usize) -> bool {
    (quarantined + 1) * 2 <= live
}

#[cfg(test)]
mod tests {
    use super::{MAX_KINDS, OutcomeHistory, Outcomes, WINDOW, blame, is_bounded};

    fn outcomes(failed: u32, fine: u32) -> Outcomes {
        let outcomes = (0..failed).fold(Outcomes::default(), |outcomes, _| outcomes.with(true));
        (0..fine).fold(outcomes, |outcomes, _| outcomes.with(false))
    }

    fn reason(own: Outcomes, others: &[Outcomes]) -> Option<String> {
        blame("p", own, others.iter().copied())
    }

    #[test]
    fn blame_needs_far_more_failures_than_on_other_workers() {
        let good = [outcomes(2, 38)];
        let text = reason(outcomes(15, 15), &good).unwrap();
        assert_eq!(text, "15 of its last 30 jobs of 'p' failed, 2 of 40 on the other workers");
        assert_eq!(reason(outcomes(14, 16), &good), None, "less than half of its jobs");
        assert_eq!(reason(outcomes(19, 0), &good), None, "too few jobs to judge by");
        assert_eq!(reason(outcomes(20, 0), &[outcomes(20, 20)]), None, "the others fail too");
        assert_eq!(reason(outcomes(20, 0), &[outcomes(0, 19)]), None, "nobody to compare with");
        assert!(reason(outcomes(20, 0), &[outcomes(0, 10), outcomes(0, 10)]).is_some(), "others together");
    }

    #[test]
    fn blame_compares_only_the_same_kind_of_work() {
        let (mut own, mut other) = (OutcomeHistory::default(), OutcomeHistory::default());
        (0..25).for_each(|_| own.record("typo", true));
        (0..25).for_each(|_| other.record("sound", false));
        let judged = |own: &OutcomeHistory, kind| blame(kind, own.of(kind), [other.of(kind)].into_iter());
        assert_eq!(judged(&own, "typo"), None, "nobody else ran the plan");
        (0..25).for_each(|_| own.record("sound", true));
        assert!(judged(&own, "sound").is_some(), "others ran the same, and did well");
        let mut well = OutcomeHistory::default();
        (0..25).for_each(|_| well.record("typo", true));
        (0..25).for_each(|_| well.record("sound", false));
        assert_eq!(judged(&well, "sound"), None, "failures at one kind are not held against another");
    }

    #[test]
    fn history_drops_the_kind_with_the_least_recent_outcome() {
        let mut history = OutcomeHistory::default();
        history.record("first", true);
        (1..MAX_KINDS).for_each(|number| history.record(&number.to_string(), false));
        history.record("first", true);
        history.record("one more", false);
        assert_eq!((history.of("first").failures(), history.of("1").failures()), ((2, 2), (0, 0)));
        assert_eq!(history.of("2").failures(), (0, 1));
    }

    #[test]
    fn quarantine_is_bounded_by_half_of_the_workers() {
        assert!(is_bounded(1, 4) && !is_bounded(2, 4) && !is_bounded(0, 1));
    }

    #[test]
    fn outcomes_drop_the_oldest_beyond_the_window() {
        assert_eq!(outcomes(20, WINDOW).failures(), (0, WINDOW));
        assert_eq!(outcomes(0, 10).with(true).failures(), (1, 11));
    }
}
