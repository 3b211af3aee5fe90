//! Pages of the ids of plans and actions. A page that needs more than ids is read in steps, because
//! there may be a million actions, and the rows of a query are in memory all together.

use std::collections::BTreeMap;

use agenix_protocol::{glob, request::Page};
use agenix_rules::{
    action::{self, Action},
    owner::Owner,
};
use sqlx::{Result, Row, postgres::PgRow, query};

use crate::store::postgres::{
    codec::{decode, or_skip},
    connection::Pool,
    sql_types,
};

/// Number of rows of a step.
const STEP: usize = 1_000;

/// Queries for the rows after an id, in the order of ids: for all of them, and for those of an
/// owner. The arguments are that id, the number of rows to skip, the number of rows, and the owner.
type Listing = [&'static str; 2];

pub(super) const PLANS: Listing = [
    "SELECT plan_id FROM agq.plans WHERE plan_id > $1 ORDER BY plan_id OFFSET $2 LIMIT $3",
    "SELECT plan_id FROM agq.plans WHERE plan_id > $1 AND owner = $4 ORDER BY plan_id OFFSET $2 LIMIT $3",
];
pub(super) const ACTIONS: Listing = [
    "SELECT action_id FROM agq.actions WHERE action_id > $1 ORDER BY action_id OFFSET $2 LIMIT $3",
    "SELECT action_id FROM agq.actions WHERE action_id > $1 AND owner = $4 \
     ORDER BY action_id OFFSET $2 LIMIT $3",
];
/// Actions with their records, which have the labels.
pub(super) const LABELLED_ACTIONS: Listing = [
    "SELECT action_id, record FROM agq.actions WHERE action_id > $1 ORDER BY action_id OFFSET $2 LIMIT $3",
    "SELECT action_id, record FROM agq.actions WHERE action_id > $1 AND owner = $4 \
     ORDER BY action_id OFFSET $2 LIMIT $3",
];

/// Returns the ids of a page of a listing: of all that have `labels`, or of those of `owner`. SQL
/// has no globs of Redis and cannot read records, so both are matched here.
pub(super) async fn page_of(
    pool: &Pool,
    listing: Listing,
    owner: Option<Owner>,
    page: Page,
    labels: BTreeMap<String, String>,
) -> Result<Vec<String>> {
    if page.pattern.is_none() && labels.is_empty() {
        let rows = rows_after(pool, listing, owner.as_ref(), "", (page.offset, page.limit)).await?;
        return rows.iter().map(|row| row.try_get(0)).collect();
    }
    let wanted = page.offset.saturating_add(page.limit);
    let (mut found, mut last) = (Vec::new(), String::new());
    loop {
        let rows = rows_after(pool, listing, owner.as_ref(), &last, (0, STEP)).await?;
        for row in &rows {
            let id: String = row.try_get(0)?;
            let pattern = page.pattern.as_ref();
            let matches = pattern.is_none_or(|pattern| glob::matches(pattern, id.as_bytes()));
            if matches && has_labels(row, &labels) {
                found.push(id);
            }
        }
        match rows.last().filter(|_| rows.len() == STEP && found.len() < wanted) {
            Some(row) => last = row.try_get(0)?,
            None => return Ok(page.of(found.into_iter())),
        }
    }
}

async fn rows_after(
    pool: &Pool,
    [of_all, of_owner]: Listing,
    owner: Option<&Owner>,
    after: &str,
    (skip, most): (usize, usize),
) -> Result<Vec<PgRow>> {
    let sql = query(if owner.is_none() { of_all } else { of_owner });
    let sql = sql.bind(after).bind(sql_types::limit(skip)).bind(sql_types::limit(most));
    let sql = match owner {
        Some(owner) => sql.bind(owner.to_string()),
        None => sql,
    };
    sql.fetch_all(pool).await
}

/// Returns true if the action of a row has all of `labels`.
fn has_labels(row: &PgRow, labels: &BTreeMap<String, String>) -> bool {
    let action = || or_skip::<Action>(row.try_get(1).and_then(decode));
    labels.is_empty() || action().is_some_and(|action| action::has_labels(&action, labels))
}
