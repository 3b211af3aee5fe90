//! Quantities that claimed jobs use.

use std::collections::BTreeMap;

use agenix_protocol::documents::Quantities;
use agenix_rules::{capability::Needs, resources};
use sqlx::{Result, Row, postgres::PgRow, query};

use crate::store::postgres::{codec::decode, connection::Pool, sql_types};

/// Defines a query for the needs of claimed jobs by holder, each with the number of these jobs.
macro_rules! needs_of_claimed {
    ($condition:literal) => {
        concat!(
            "SELECT j.holder, l.needs, count(*) FROM agq.jobs AS j JOIN agq.lanes AS l USING (lane) \
             WHERE j.status = 1 AND ",
            $condition,
            " GROUP BY j.holder, l.lane"
        )
    };
}

/// Query for the jobs of one holder, or with NULL of all holders.
const USED: &str = needs_of_claimed!("($1::text IS NULL OR j.holder = $1)");
/// Query for the jobs of the given holders. A transaction runs the query after the statement that
/// locks these workers, so that the query sees all claims of earlier transactions with the locks.
pub(super) const USED_BY: &str = needs_of_claimed!("j.holder = ANY ($1)");

pub(super) async fn used_resources(
    pool: &Pool,
    holder: Option<String>,
) -> Result<BTreeMap<String, Quantities>> {
    used_of(&query(USED).bind(holder).fetch_all(pool).await?)
}

/// Returns the sums of the quantities of jobs by holder, from rows of holder, needs and number.
pub(super) fn used_of(rows: &[PgRow]) -> Result<BTreeMap<String, Quantities>> {
    let mut used: BTreeMap<String, Quantities> = BTreeMap::new();
    for row in rows {
        let needs: Needs = decode(row.try_get(1)?)?;
        if let Some(wanted) = needs.resources {
            let times = sql_types::count(row.try_get(2)?);
            resources::add_times(used.entry(row.try_get(0)?).or_default(), &wanted, times);
        }
    }
    Ok(used)
}
