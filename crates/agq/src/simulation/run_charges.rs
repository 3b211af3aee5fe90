//! Upper bound of what the runs of jobs have used of a budget.

use std::collections::BTreeSet;

use agenix_rules::budget::Budget;

/// Figures of the reports that name some: milliseconds of processor time, and bytes of output.
const REPORTED: Charge = Charge { cpu_ms: 270, output_bytes: 9 };

/// Use of a run, or of several runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Charge {
    pub(super) cpu_ms: u64,
    pub(super) output_bytes: u64,
}

impl Charge {
    /// Returns the maximum that one run may use.
    pub(super) fn whole(budget: &Budget, timeout_ms: u64) -> Self {
        let output_bytes = budget.output_bytes.unwrap_or_default();
        Self { cpu_ms: timeout_ms, output_bytes: output_bytes.div_ceil(budget.running.unwrap_or(1).max(1)) }
    }

    fn plus(self, other: Self) -> Self {
        Self { cpu_ms: self.cpu_ms + other.cpu_ms, output_bytes: self.output_bytes + other.output_bytes }
    }
}

/// Ended runs, and jobs that were reported completed without figures.
#[derive(Debug, Clone, Default)]
pub(super) struct RunCharges {
    ended: Charge,
    without_figures: BTreeSet<String>,
}

impl RunCharges {
    pub(super) fn reported_without_figures(&mut self, job_id: &str) {
        self.without_figures.insert(job_id.to_owned());
    }

    /// Records the end of a run that may have used `whole`, unless its report has figures.
    pub(super) fn ended(&mut self, job_id: &str, state: &str, whole: Charge) {
        let has_figures = state == "completed" && !self.without_figures.contains(job_id);
        self.add(if has_figures { REPORTED } else { whole });
    }

    pub(super) fn add(&mut self, charge: Charge) {
        self.ended = self.ended.plus(charge);
    }

    /// Returns true if the budget certainly admits another run beside those that are `held`.
    pub(super) fn admits(&self, budget: &Budget, held: &[Charge], next: Charge) -> bool {
        let sum = held.iter().fold(self.ended.plus(next), |sum, charge| sum.plus(*charge));
        let fits = |limit: Option<u64>, used: u64| limit.is_none_or(|limit| used <= limit);
        fits(budget.running, held.len() as u64 + 1)
            && fits(budget.cpu_secs.map(|seconds| seconds * 1000), sum.cpu_ms)
            && fits(budget.output_bytes, sum.output_bytes)
    }
}
