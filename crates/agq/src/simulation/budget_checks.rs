//! Invariants of the use of a budget.

use std::sync::Arc;

use agenix_protocol::resp::Reply;
use agenix_rules::{
    budget::{BudgetAmount, JobBudget, Usage},
    job::{self, Job, JobState},
};

use crate::{
    resp::outcome::CommandOutcome,
    service::budgets,
    simulation::{
        budgets::NAME,
        ledger::CheckResult,
        process::now,
        world::{IGNORED, World},
    },
    store::{DocumentKind, DocumentStore},
};

impl World {
    /// Removes the budget, as an admin does who wants all jobs to end.
    pub(super) fn lift_budget(&mut self) -> CheckResult {
        if self.budgets.is_empty() {
            return Ok(());
        }
        // Nothing is in flight, so every claim is before or after the change.
        self.write_all()?;
        self.budgets.clear();
        let Some(process) = &mut self.process else { return Ok(()) };
        let app = Arc::clone(&process.app);
        process.spawn(IGNORED, async move {
            let _failing = budgets::set_all(&app, [(NAME.to_owned(), None)].into()).await;
            CommandOutcome::plain(Reply::Nil)
        });
        self.write_all()
    }

    /// Checks that the budget is not passed, and that the charges equal the submitted and reported
    /// amounts. The store itself checks running jobs and reservations.
    pub(super) fn check_budget(&self, jobs: &[Job]) -> CheckResult {
        let Some(process) = &self.process else { return Ok(()) };
        let Some(json) = now(process.store.document(DocumentKind::Budget, NAME))? else { return Ok(()) };
        let usage: Usage = serde_json::from_str(&json).map_err(|error| error.to_string())?;
        let at = self.time.wall();
        for amount in BudgetAmount::ALL {
            let used = usage.used(amount, at);
            if let Some(limit) = usage.budget.limit(amount).filter(|limit| used > *limit) {
                return Err(format!("the budget has {used} {}, and {limit} at most", amount.as_str()));
            }
        }
        let own = || jobs.iter().filter_map(|job| Some((job, job::budget_of(job)?)));
        let (charged_jobs, stored) = (usage.used(BudgetAmount::Jobs, at), own().count() as u64);
        if charged_jobs < stored || charged_jobs > stored && !self.ledger.forgets {
            return Err(format!("{charged_jobs} jobs are charged, and {stored} jobs have the budget"));
        }
        // Of a job that has run several times, only the last run is known.
        let last_run = |(job, budget): (&Job, &JobBudget)| match job.attempt {
            0 => 0,
            _ if job.state == JobState::Active => 0,
            _ => budget.used.map_or(budget.bound.cpu_ms, |used| used.cpu_ms),
        };
        let (charged, least) =
            (usage.used(BudgetAmount::CpuMs, at) - usage.reserved().cpu_ms, own().map(last_run).sum());
        let is_exact = !self.ledger.forgets && own().all(|(job, _)| job.attempt <= 1);
        if charged < least || charged > least && is_exact {
            return Err(format!("{charged} ms are charged, and {least} ms were reported"));
        }
        Ok(())
    }
}
