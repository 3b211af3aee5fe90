//! Budgets in a write transaction: charges of submissions, and the begins and ends of runs.

use agenix_protocol::{documents::to_json, time::Timestamp};
use agenix_rules::{
    budget::{RunChange, SubmissionCharge, Usage},
    job::{self, Job},
};
use redb::Error;

use crate::store::{
    DocumentKind, RuleResult,
    claim_index::{Block, Constraint},
    decisions::{self, accepted},
    redb::{schema::Result, txn::WriteTxn},
};

impl WriteTxn<'_> {
    /// Charges `jobs` new jobs and `plans` new plans to the budget of a submission that has one.
    pub(crate) fn charge_submission(
        &mut self,
        charge: Option<&SubmissionCharge>,
        jobs: usize,
        plans: u64,
    ) -> Result<RuleResult<()>> {
        let Some(charge) = charge else { return Ok(Ok(())) };
        let usage = accepted!(decisions::charged(&self.usage(&charge.name)?, charge, jobs, plans));
        self.put_usage(&charge.name, &usage);
        Ok(Ok(()))
    }

    /// Returns the budget of a job if it lets no run of the job begin.
    pub(crate) fn budget_block(&self, job: &Job, now: Timestamp) -> Result<Option<Block>> {
        let Some((name, bound)) = job::start_of(job) else { return Ok(None) };
        let has_room = self.usage(name)?.check_start(&bound, now).is_ok();
        let (constraint, name) = (Constraint::Budget, name.to_owned());
        Ok((!has_room).then(|| Block { constraint, name, until: Some(Usage::window_moves_at(now)) }))
    }

    /// Sets the bound of a run that begins to what the budget of the job lets it reserve.
    pub(crate) fn reserve(&self, job: &mut Job) -> Result<()> {
        let Some(budget) = job::budget_of(job) else { return Ok(()) };
        let usage = self.usage(&budget.name)?;
        job::reserve(job, &usage.budget);
        Ok(())
    }

    /// Counts the begin or the end of a run of a job that has a budget.
    pub(crate) fn charge_run(&mut self, before: Option<&Job>, job: &Job) -> Result<()> {
        let Some((name, change)) = job::run_change(before, job) else { return Ok(()) };
        let usage = self.usage(name)?.changed(change);
        self.put_usage(name, &usage);
        // Another job may start now.
        self.arrived.jobs |= matches!(change, RunChange::Ended { .. });
        Ok(())
    }

    fn usage(&self, name: &str) -> Result<Usage> {
        let document = self.tables.documents.get((DocumentKind::Budget.as_str(), name))?;
        document.map_or(Ok(Usage::default()), |document| {
            serde_json::from_str(document.value()).map_err(|error| Error::Corrupted(error.to_string()))
        })
    }

    fn put_usage(&mut self, name: &str, usage: &Usage) {
        self.put_document(DocumentKind::Budget, name, &to_json(usage));
    }
}
