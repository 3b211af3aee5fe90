//! Model of the fairness of claims: while two shares have jobs that a claimant could take, their
//! claims, divided by their weights, differ by one claim of each at most.
//!
//! This difference is the bound of start-time fair queueing. The bound holds in every interval in
//! which both shares have such jobs before each claim, so the model has the extremes of the
//! difference since the interval began.

use std::collections::{BTreeMap, BTreeSet};

use super::ledger::CheckResult;

/// Named share; `None` for that of the user.
pub(super) type ShareOf = Option<String>;

/// Virtual time of a claim of weight 1: a multiple of all weights.
const CLAIM: i64 = 2;

/// Difference of the claims of two shares, in virtual time, in an interval.
#[derive(Debug, Clone, Copy, Default)]
struct Difference {
    now: i64,
    least: i64,
    most: i64,
}

/// Differences by class of claimants, queue, and pair of shares.
#[derive(Debug, Clone, Default)]
pub(super) struct ShareModel {
    of_classes: BTreeMap<(String, String), BTreeMap<(ShareOf, ShareOf), Difference>>,
}

impl ShareModel {
    /// Records a claim of a job of the share `served`, and checks the bound. `claimable` has the
    /// shares whose jobs the claim could have taken, by their weights.
    pub(super) fn record(
        &mut self,
        class: &(String, String),
        served: &ShareOf,
        claimable: &BTreeMap<ShareOf, i64>,
    ) -> CheckResult {
        let differences = self.of_classes.entry(class.clone()).or_default();
        let pairs: BTreeSet<(ShareOf, ShareOf)> = claimable
            .keys()
            .flat_map(|first| claimable.keys().map(move |second| (first.clone(), second.clone())))
            .filter(|(first, second)| first < second)
            .collect();
        differences.retain(|pair, _| pairs.contains(pair));
        for pair in pairs {
            let step = |share: &ShareOf| CLAIM / claimable[share];
            let (first, second) = (step(&pair.0), step(&pair.1));
            let difference = differences.entry(pair.clone()).or_default();
            if pair.0 == *served {
                difference.now += first;
            } else if pair.1 == *served {
                difference.now -= second;
            }
            difference.least = difference.least.min(difference.now);
            difference.most = difference.most.max(difference.now);
            if difference.most - difference.least > first + second {
                return Err(format!(
                    "the claims of the shares {pair:?} by {class:?} have the virtual times {difference:?}"
                ));
            }
        }
        Ok(())
    }

    /// Forgets all intervals, because agq has no virtual times after a start.
    pub(super) fn restart(&mut self) {
        self.of_classes.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::{BTreeMap, ShareModel, ShareOf};

    fn share(name: &str) -> ShareOf {
        Some(name.to_owned())
    }

    fn is_fair(served: &[&str], claimable: &[(&str, i64)]) -> bool {
        let claimable: BTreeMap<ShareOf, i64> =
            claimable.iter().map(|(name, weight)| (share(name), *weight)).collect();
        let mut model = ShareModel::default();
        let class = ("w0".to_owned(), "ready".to_owned());
        served.iter().all(|name| model.record(&class, &share(name), &claimable).is_ok())
    }

    #[test]
    fn claims_of_shares_differ_by_one_of_each_at_most() {
        let equal = [("a", 1), ("b", 1)];
        assert!(is_fair(&["a", "b", "b", "a", "a", "b"], &equal));
        assert!(is_fair(&["a", "a", "b", "b"], &equal));
        assert!(!is_fair(&["a", "a", "a"], &equal));
        assert!(!is_fair(&["b", "a", "b", "b", "b"], &equal));
        let weighted = [("a", 1), ("b", 2)];
        assert!(is_fair(&["b", "b", "a", "b", "b", "a", "b"], &weighted));
        assert!(is_fair(&["b", "b", "b", "a", "b", "b", "a"], &weighted));
        assert!(!is_fair(&["b", "b", "b", "b"], &weighted));
        assert!(is_fair(&["a", "a", "a"], &[("a", 1)]));
    }
}
