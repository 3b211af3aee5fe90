//! Lanes that a transaction holds, so that nobody removes them before their new jobs are committed.

use std::collections::BTreeSet;

use sqlx::{Error, Result, postgres::PgRow};

use crate::store::postgres::{
    connection::{Param, PreparedStatement},
    txn::PgTxn,
};

pub(crate) const LOCK_LANES: PreparedStatement = PreparedStatement {
    name: "agq_lock_lanes",
    sql: "SELECT lane FROM agq.lanes WHERE lane = ANY ($1::integer[]) ORDER BY lane FOR KEY SHARE",
};

/// Fails if a lane is missing. A lane without jobs may have been removed meanwhile, and the retry
/// creates it again.
pub(crate) fn check_locked(rows: &[PgRow], wanted: usize) -> Result<()> {
    if rows.len() == wanted { Ok(()) } else { Err(Error::RowNotFound) }
}

impl PgTxn<'_> {
    /// Holds those of `lanes` that the transaction does not hold yet.
    pub(crate) fn lock_lanes(&mut self, lanes: impl Iterator<Item = i32>) -> Result<()> {
        let missing: BTreeSet<i32> = lanes.filter(|lane| !self.reads.locked_lanes.contains(lane)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let numbers = Param::Integers(missing.iter().copied().collect());
        check_locked(&self.session.rows(LOCK_LANES.query(vec![numbers]))?, missing.len())?;
        self.reads.locked_lanes.extend(missing);
        Ok(())
    }
}
