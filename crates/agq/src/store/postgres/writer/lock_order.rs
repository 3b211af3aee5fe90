//! Lock order of transactions: a transaction waits for all locks of one kind at once and in one
//! order, and for the kinds in one order. Therefore no two transactions wait for each other.
//!
//! A transaction locks names first, because a name may have no row yet; then jobs; then limits;
//! then budgets. Later locks are passed over if another transaction holds them, or are wanted by
//! one transaction at a time.

use agenix_protocol::ids::JobId;
use agenix_rules::job::JobState;
use sqlx::{Result, query};

use crate::store::{
    DocumentKind, NewAction,
    postgres::{
        txn::{
            PgTxn,
            checks::Checks,
            documents::{document_name, limits_of},
            held_rows::OnLocked,
        },
        writer::{
            grouped_writes::is_checked,
            queue::{PgWrite, WriteKind},
        },
    },
};

/// Class of the advisory locks for names.
const NAMES: i32 = 0x6171;
/// Statement that locks names, which share 1,024 locks: the server's lock table is small.
const LOCK_NAMES: &str = "SELECT pg_advisory_xact_lock($1, slot) FROM (\
     SELECT DISTINCT hashtext(name) & 1023 AS slot FROM unnest($2::text[]) AS n (name) ORDER BY slot) AS slots";

impl PgTxn<'_> {
    /// Locks names, and the jobs named or decided on. Returns the limits that these may leave.
    pub(crate) fn lock_first(&mut self, writes: &[PgWrite]) -> Result<Vec<String>> {
        let checks = checks(writes);
        let names = names(writes, &checks);
        if names.is_empty() {
            return Ok(Vec::new());
        }
        self.lock_names(names)?;
        if checks.ids.is_empty() && checks.kinds.is_empty() {
            return Ok(Vec::new());
        }
        let firsts = self.firsts(&checks.kinds)?;
        let mut ids = checks.ids;
        ids.extend(firsts.values().map(JobId::as_str));
        ids.extend(decided_jobs(writes));
        let jobs = self.jobs(&ids)?;
        let active = jobs.into_values().filter(|job| job.state == JobState::Active);
        Ok(active.filter_map(|job| job.ojs.and_then(|ojs| ojs.limit)).collect())
    }

    pub(crate) fn lock_names(&self, names: Vec<String>) -> Result<()> {
        self.session.rows(query(LOCK_NAMES).bind(NAMES).bind(names)).map(drop)
    }

    /// Locks the limits that new jobs set, together with `others`, and the budgets in which new
    /// jobs are booked.
    pub(crate) fn hold_bounds(&mut self, writes: &[PgWrite], others: Vec<String>) -> Result<()> {
        let set = new_actions(writes).flat_map(|new| limits_of(&new.jobs)).map(|(key, _)| key);
        let keys: Vec<String> = others.into_iter().chain(set).collect();
        if !keys.is_empty() {
            self.limits.hold_with_left(self.session, keys, OnLocked::Wait)?;
        }
        let names: Vec<String> =
            new_actions(writes).filter_map(|new| Some(new.booking.as_ref()?.name.clone())).collect();
        if names.is_empty() {
            return Ok(());
        }
        // The limits of ended jobs come before budgets.
        self.limits.settle(self.session, OnLocked::Wait)?;
        self.budgets.hold_with_uncounted(self.session, names.into_iter())
    }
}

fn checks(writes: &[PgWrite]) -> Checks<'_> {
    let mut checks = Checks::default();
    new_actions(writes).filter(|new| is_checked(new)).for_each(|new| checks.add(&new.jobs));
    checks
}

/// Returns the names that a transaction locks before anything else.
fn names(writes: &[PgWrite], checks: &Checks<'_>) -> Vec<String> {
    let kinds = checks.kinds.iter().map(|kind| document_name(DocumentKind::Unique, kind));
    let ids = checks.ids.iter().map(|id| format!("job {id}"));
    let others = writes.iter().filter_map(|write| match &write.work {
        WriteKind::Other(other) => other.name.clone(),
        _ => None,
    });
    ids.chain(kinds).chain(others).collect()
}

/// Returns true if a transaction locks names.
pub(crate) fn locks_names(writes: &[PgWrite]) -> bool {
    !names(writes, &checks(writes)).is_empty()
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
