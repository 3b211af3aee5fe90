//! Names that a transaction holds, because a name may have no row to lock yet.

use sqlx::Result;

use crate::store::postgres::{
    connection::{Param, PreparedStatement},
    txn::PgTxn,
};

/// Statement that locks names, which share 1,024 locks of one class: the server's lock table is
/// small.
pub(crate) const LOCK_NAMES: PreparedStatement = PreparedStatement {
    name: "agq_lock_names",
    sql: "SELECT pg_advisory_xact_lock(24945, slot) FROM (\
         SELECT DISTINCT hashtext(name) & 1023 AS slot FROM unnest($1::text[]) AS n (name) ORDER BY slot) AS slots",
};

impl PgTxn<'_> {
    pub(crate) fn lock_names(&self, names: Vec<String>) -> Result<()> {
        self.session.rows(LOCK_NAMES.query(vec![Param::Texts(names)])).map(drop)
    }
}
