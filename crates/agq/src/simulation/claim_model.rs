//! Model of claims: terms, starts and charges of all jobs, and the batch that is being written.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    job_terms::{Amounts, JobTerms, KeyLimit, OFFERED},
    jobs_view::{JobsView, ViewedClaim},
    run_charges::{Charge, RunCharges},
    share_model::ShareModel,
    starts::StartHistories,
};
use agenix_rules::budget::Budget;

#[derive(Debug, Clone, Default)]
pub(super) struct ClaimModel {
    /// Terms by job.
    pub(super) terms: BTreeMap<String, JobTerms>,
    pub(super) starts: StartHistories,
    pub(super) charges: RunCharges,
    pub(super) shares: ShareModel,
    /// Jobs during the batch that is being written, until its replies are delivered.
    pub(super) batch: Option<JobsView>,
    /// States of the queues at the begin of the batch, as in the ledger.
    pub(super) paused: BTreeMap<String, Option<bool>>,
    /// Numbers of the last commands about workers, by actor.
    pub(super) changes_of_workers: BTreeMap<usize, u64>,
}

/// Conditions of a world that decide which claimant may have which job.
#[derive(Debug, Clone)]
pub(super) struct ClaimConditions<'w> {
    pub(super) has_sandboxes: bool,
    /// Plans that may be deleted.
    pub(super) unwanted_plans: &'w BTreeSet<String>,
    pub(super) budget: Option<Budget>,
    /// Timeout of an attempt whose plan names none, in milliseconds.
    pub(super) timeout_ms: u64,
}

impl ClaimConditions<'_> {
    /// Returns the maximum that a run of a job may use of the budget.
    pub(super) fn whole_charge(&self, terms: &JobTerms) -> Charge {
        let timeout_ms = terms.timeout_ms.unwrap_or(self.timeout_ms);
        self.budget.map_or_else(Charge::default, |budget| Charge::whole(&budget, timeout_ms))
    }
}

impl ClaimModel {
    /// Returns the held jobs of a view whose terms are known, with their holders.
    fn held<'v>(&'v self, view: &'v JobsView) -> impl Iterator<Item = (&'v str, &'v JobTerms)> {
        let with_terms =
            move |(job_id, holder): &'v (String, String)| Some((holder.as_str(), self.terms.get(job_id)?));
        view.held.iter().filter_map(with_terms)
    }

    /// Returns the sum of the quantities of the jobs that a holder has.
    pub(super) fn used_by(&self, view: &JobsView, holder: &str) -> Amounts {
        let own = self.held(view).filter(|(of, _)| *of == holder);
        own.fold([0, 0], |sum, (_, terms)| plus(sum, terms.wanted))
    }

    /// Returns the number of claimed jobs of a limit.
    pub(super) fn running(&self, view: &JobsView, limit: &KeyLimit) -> u64 {
        let is_its = |terms: &JobTerms| terms.limit.as_ref().is_some_and(|other| other.key == limit.key);
        self.held(view).filter(|(_, terms)| is_its(terms)).count() as u64
    }

    /// Returns the number of claimed jobs with terms.
    pub(super) fn running_of_all(&self, view: &JobsView) -> u64 {
        self.held(view).count() as u64
    }

    /// Returns the jobs of a view that a claim could certainly take: they are ready, the claimant
    /// covers their needs, they fit into what it has free, and their limits and budgets admit them.
    pub(super) fn claimable<'v>(
        &'v self,
        (view, conditions): (&'v JobsView, &'v ClaimConditions<'_>),
        claim: &'v ViewedClaim,
    ) -> impl Iterator<Item = (&'v str, &'v JobTerms)> {
        let used = self.used_by(view, &claim.holder);
        let offered = claim.worker.map_or([0, 0], |at| OFFERED[at]);
        let ready =
            view.ready.iter().filter_map(move |job_id| Some((job_id.as_str(), self.terms.get(job_id)?)));
        ready.filter(move |(_, terms)| {
            claim.queues.contains(&terms.queue)
                && !conditions.unwanted_plans.contains(&terms.plan_id)
                && terms.is_covered_by(claim.worker, conditions.has_sandboxes)
                && fits(offered, plus(used, terms.wanted), terms.wanted)
                && !self.may_be_held_back((view, conditions), claim, (offered, used, terms.wanted))
                && self.limit_admits(view, claim, terms)
                && self.budget_admits(view, conditions, terms)
        })
    }

    /// Returns true if a claim may leave quantities alone because it has reserved them for a job
    /// that does not fit yet.
    fn may_be_held_back(
        &self,
        (view, conditions): (&JobsView, &ClaimConditions<'_>),
        claim: &ViewedClaim,
        (offered, used, wanted): (Amounts, Amounts, Amounts),
    ) -> bool {
        let others = view.possibly_ready.iter().filter_map(|job_id| self.terms.get(job_id));
        let mut large = others.filter(|other| {
            let with_other = plus(used, other.wanted);
            other.is_covered_by(claim.worker, conditions.has_sandboxes)
                && !fits(offered, with_other, other.wanted)
                && !fits(offered, plus(with_other, wanted), wanted)
        });
        large.next().is_some()
    }

    fn limit_admits(&self, view: &JobsView, claim: &ViewedClaim, terms: &JobTerms) -> bool {
        terms.limit.as_ref().is_none_or(|limit| {
            limit.max_running.is_none_or(|most| self.running(view, limit) < most)
                && self.starts.admits(limit, claim.at_ms)
        })
    }

    /// A job with a large bound delays the jobs behind it, so the largest bound counts.
    fn budget_admits(&self, view: &JobsView, conditions: &ClaimConditions<'_>, terms: &JobTerms) -> bool {
        let Some(budget) = conditions.budget else { return true };
        let held: Vec<Charge> = self.held(view).map(|(_, terms)| conditions.whole_charge(terms)).collect();
        let ready = view.possibly_ready.iter().filter_map(|job_id| self.terms.get(job_id));
        let bounds = ready.chain([terms]).map(|terms| conditions.whole_charge(terms));
        bounds.into_iter().all(|bound| self.charges.admits(&budget, &held, bound))
    }
}

fn plus(first: Amounts, second: Amounts) -> Amounts {
    [first[0] + second[0], first[1] + second[1]]
}

/// Returns true if the amounts of those resources that are wanted do not exceed the offered ones.
pub(super) fn fits(offered: Amounts, sum: Amounts, wanted: Amounts) -> bool {
    (0..wanted.len()).all(|of| wanted[of] == 0 || sum[of] <= offered[of])
}
