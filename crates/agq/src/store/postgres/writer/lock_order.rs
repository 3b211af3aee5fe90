//! Lock order of transactions: a transaction waits for all locks of one kind at once and in one
//! order, and for the kinds in one order. Therefore no two transactions wait for each other.
//!
//! A transaction locks names first, because a name may have no row yet; then jobs; then limits;
//! then budgets. Later locks are passed over if another transaction holds them, or are wanted by
//! one transaction at a time.
//!
//! Plans and lanes are shared locks against removal, before or after the others. Only the deletion
//! of a plan waits for such a lock. If the batch of the deletion holds a limit that the other
//! transaction wants, the lock timeout ends the wait, and the batch is retried in halves.
//!
//! Retention waits for documents of unique keys after the jobs that it removes. If the transaction
//! that holds such a document waits for one of these jobs, the lock timeout ends that wait, too.

use sqlx::Result;

use crate::store::{
    DocumentKind, NewAction,
    postgres::{
        txn::{
            PgTxn,
            checks::{Checks, is_checked},
            documents::document_name,
        },
        writer::queue::{PgWrite, WriteKind},
    },
};

impl PgTxn<'_> {
    /// Locks the limits that new jobs change, and the budgets to which new jobs are charged.
    pub(crate) fn lock_bounds(&mut self, writes: &[PgWrite]) -> Result<()> {
        self.lock_changed_limits(new_actions(writes).flat_map(|new| &new.jobs))?;
        let names: Vec<String> =
            new_actions(writes).filter_map(|new| Some(new.charge.as_ref()?.name.clone())).collect();
        if names.is_empty() {
            return Ok(());
        }
        self.budgets.lock_with_uncounted(self.session, names.into_iter())
    }
}

pub(crate) fn checks(writes: &[PgWrite]) -> Checks<'_> {
    let mut checks = Checks::default();
    new_actions(writes).filter(|new| is_checked(new)).for_each(|new| checks.add(&new.jobs));
    checks
}

/// Returns the names that a transaction locks before anything else.
pub(crate) fn names(writes: &[PgWrite], checks: &Checks<'_>) -> Vec<String> {
    let kinds = checks.kinds.iter().map(|kind| document_name(DocumentKind::Unique, kind));
    let ids = checks.ids.iter().map(|id| format!("job {id}"));
    let others = writes.iter().filter_map(|write| match &write.work {
        WriteKind::Other(other) => other.name.clone(),
        _ => None,
    });
    ids.chain(kinds).chain(others).collect()
}

pub(crate) fn decided_jobs(writes: &[PgWrite]) -> impl Iterator<Item = &str> {
    writes.iter().filter_map(|write| match &write.work {
        WriteKind::Decide(deciding) => Some(deciding.decision.job_id.as_str()),
        _ => None,
    })
}

pub(crate) fn new_actions(writes: &[PgWrite]) -> impl Iterator<Item = &NewAction> {
    writes.iter().filter_map(|write| match &write.work {
        WriteKind::Add(adding) => Some(&adding.new),
        _ => None,
    })
}
