//! Budgets in a write transaction: charges of submissions, and the begins and ends of runs.
//!
//! Budgets are locked after limits. A transaction that holds budgets never waits for limits.

use std::collections::BTreeSet;

use agenix_protocol::time::Timestamp;
use agenix_rules::{
    budget::{BudgetAmount, RunChange, SubmissionCharge, Usage},
    job::{self, Job},
};
use sqlx::{Error, Result};

use crate::store::{
    DocumentKind, RuleResult,
    decisions::{self, accepted},
    postgres::{
        connection::DatabaseSession,
        txn::{
            PgTxn,
            locked_rows::{DocumentWrites, LockedRows, OnLocked},
        },
    },
};

/// Budgets that this transaction has locked, and runs that it has not counted yet.
pub(crate) struct LockedBudgets {
    rows: LockedRows<Usage>,
    /// Changes of runs that are not counted yet, with the names of their budgets.
    uncounted: Vec<(String, RunChange)>,
    /// True if a run has ended.
    pub(crate) has_room: bool,
}

impl Default for LockedBudgets {
    fn default() -> Self {
        Self { rows: LockedRows::new(DocumentKind::Budget), uncounted: Vec::new(), has_room: false }
    }
}

impl LockedBudgets {
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub(crate) fn has_passed_over(&self) -> bool {
        self.rows.has_passed_over
    }

    /// Counts the begin or the end of a run, at once if its budget is locked.
    pub(crate) fn note(&mut self, before: Option<&Job>, job: &Job) {
        let Some((name, change)) = job::run_change(before, job) else { return };
        self.has_room |= matches!(change, RunChange::Ended { .. });
        if !self.rows.change(name, |usage| usage.changed(change)) {
            self.uncounted.push((name.to_owned(), change));
        }
    }

    /// Locks the budgets `names`, and those of runs that are not counted yet.
    pub(crate) fn lock_with_uncounted(
        &mut self,
        session: &DatabaseSession,
        names: impl Iterator<Item = String>,
    ) -> Result<()> {
        let uncounted: Vec<String> = self.uncounted.iter().map(|(name, _)| name.clone()).collect();
        self.rows.lock(session, names.chain(uncounted), OnLocked::Wait)?;
        self.count();
        Ok(())
    }

    fn count(&mut self) {
        for (name, change) in std::mem::take(&mut self.uncounted) {
            self.rows.change(&name, |usage| usage.changed(change));
        }
    }

    /// Locks those of the budgets `names` that no other transaction holds at this moment.
    pub(crate) fn lock_free(&mut self, session: &DatabaseSession, names: BTreeSet<String>) -> Result<()> {
        self.rows.lock_free(session, names)
    }

    /// Returns true if this transaction has locked the budget `name`.
    pub(crate) fn has_locked(&self, name: &str) -> bool {
        self.rows.get(name).is_some()
    }

    /// Returns true if the budget `name` is locked and lets a run begin that reserves nothing.
    pub(crate) fn admits_any(&self, name: &str, now: Timestamp) -> bool {
        self.rows.get(name).is_some_and(|usage| usage.check(BudgetAmount::Running, 1, now).is_ok())
    }

    /// Returns true if the job has no budget, or if its budget is locked and lets a run begin.
    pub(crate) fn admits_job(&self, job: &Job, now: Timestamp) -> bool {
        job::start_of(job).is_none_or(|(name, bound)| {
            self.rows.get(name).is_some_and(|usage| usage.check_start(&bound, now).is_ok())
        })
    }

    /// Sets the bound of a run that begins to what the locked budget of the job lets it reserve.
    pub(crate) fn reserve(&self, job: &mut Job) {
        let usage = job::budget_of(job).and_then(|budget| self.rows.get(&budget.name));
        if let Some(usage) = usage {
            job::reserve(job, &usage.budget);
        }
    }

    /// Replaces a locked budget if `json` is its new document.
    pub(crate) fn replace(&mut self, kind: DocumentKind, name: &str, json: &str) {
        self.rows.replace(kind, name, json);
    }

    /// Counts the changes of runs that are not counted yet.
    pub(crate) fn count_runs(&mut self, session: &DatabaseSession) -> Result<()> {
        self.lock_with_uncounted(session, std::iter::empty())
    }

    /// Moves the changed budgets to `writes`.
    pub(crate) fn write(&mut self, session: &DatabaseSession, writes: &mut DocumentWrites) -> Result<()> {
        self.count_runs(session)?;
        self.rows.take_changed(writes);
        Ok(())
    }
}

impl PgTxn<'_> {
    /// Charges `jobs` new jobs and `plans` new plans to the budget of a submission that has one.
    pub(crate) fn charge_submission(
        &mut self,
        charge: Option<&SubmissionCharge>,
        jobs: usize,
        plans: u64,
    ) -> Result<RuleResult<()>> {
        let Some(charge) = charge else { return Ok(Ok(())) };
        self.budgets.lock_with_uncounted(self.session, std::iter::once(charge.name.clone()))?;
        let usage = self.budgets.rows.get(&charge.name).ok_or(Error::RowNotFound)?;
        let charged = accepted!(decisions::charged(usage, charge, jobs, plans));
        self.budgets.rows.change(&charge.name, |_| charged);
        Ok(Ok(()))
    }
}
