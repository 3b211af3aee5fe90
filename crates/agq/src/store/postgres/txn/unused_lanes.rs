//! Removes lanes and limits that nothing uses any more.

use std::collections::HashSet;

use agenix_protocol::time::Timestamp;
use agenix_rules::limit::Limit;
use sqlx::{Result, Row, query, query_scalar};
use tracing::debug;

use crate::store::{
    DocumentKind, UnusedRecords,
    postgres::{codec::or_skip, connection::Pool, lane_cache::lane_of, limit_ends::document_in, txn::PgTxn},
};

/// Maximum number of lanes, and of limits, that are removed at a time.
const MAX_REMOVED: usize = 1_000;
/// Query for lanes without any job, ended jobs included. A lane stays if its number is one of the
/// next ones, because nodes may have a removed lane in their caches, and its number must not be
/// used again as long as they have the lane.
const EMPTY_LANES: &str = "SELECT lane FROM agq.lanes AS l WHERE l.is_counted \
         AND (l.lane - 1 - (SELECT coalesce(last_value, 0) FROM pg_sequences \
         WHERE schemaname = 'agq' AND sequencename = 'lanes_lane_seq') + 2147483647) % 2147483647 >= 100000000 \
         AND NOT EXISTS (\
         SELECT FROM agq.lane_counts AS c, unnest(c.counts) WITH ORDINALITY AS s (n, i) WHERE c.lane = l.lane \
         GROUP BY i HAVING sum(n) <> 0) \
     ORDER BY lane LIMIT $1";
/// Query that locks those of the given lanes to which no transaction is adding jobs.
const LOCK_LANES: &str =
    "SELECT lane FROM agq.lanes WHERE lane = ANY ($1) ORDER BY lane FOR UPDATE SKIP LOCKED";
const REMOVE_LANES: &str = "WITH gone AS (DELETE FROM agq.lanes AS l WHERE lane = ANY ($1) AND NOT EXISTS (\
         SELECT FROM agq.lane_counts AS c, unnest(c.counts) WITH ORDINALITY AS s (n, i) WHERE c.lane = l.lane \
         GROUP BY i HAVING sum(n) <> 0) RETURNING lane) \
     DELETE FROM agq.lane_counts WHERE lane IN (SELECT lane FROM gone)";
/// Statement that removes those of the given limits that are as they were when read.
const REMOVE_LIMITS: &str = "WITH gone AS (DELETE FROM agq.notes WHERE kind = $1 AND id IN (\
         SELECT n.id FROM agq.notes AS n JOIN unnest($2::text[], $3::text[]) AS u (id, version) \
         ON n.id = u.id AND n.xmin::text = u.version WHERE n.kind = $1 FOR UPDATE OF n SKIP LOCKED) RETURNING id), \
     ends AS (DELETE FROM agq.limit_ends WHERE limit_key IN (SELECT id FROM gone)) SELECT count(*) FROM gone";

/// Returns lanes without jobs, and limits that have no job and hold nothing back.
pub(crate) async fn unused(pool: &Pool, now: Timestamp) -> Result<UnusedRecords> {
    // The limits are read before the lanes. A transaction that creates a lane also writes the limit
    // of the lane, and so changes the version of the limit.
    let mut limits = idle_limits(pool, now).await?;
    let lanes = query("SELECT lane, queue, needs FROM agq.lanes").fetch_all(pool).await?;
    let taken: HashSet<String> =
        lanes.iter().filter_map(|row| or_skip(lane_of(row))).filter_map(|(_, key)| key.needs.limit).collect();
    limits.retain(|(key, _)| !taken.contains(key));
    limits.truncate(MAX_REMOVED);
    let lanes = query_scalar(EMPTY_LANES)
        .bind(crate::store::postgres::sql_types::limit(MAX_REMOVED))
        .fetch_all(pool)
        .await?;
    Ok(UnusedRecords { lanes, limits })
}

/// Returns limits that hold nothing back, with their versions.
async fn idle_limits(pool: &Pool, now: Timestamp) -> Result<Vec<(String, String)>> {
    let sql = "SELECT id, json, xmin::text, (SELECT sum(ended)::bigint FROM agq.limit_ends WHERE limit_key = id) AS ended \
         FROM agq.notes WHERE kind = $1 ORDER BY id";
    let mut idle = Vec::new();
    for row in query(sql).bind(DocumentKind::Limit.as_str()).fetch_all(pool).await? {
        let limit: Result<Limit, _> = serde_json::from_str(&document_in(&row)?);
        if limit.is_ok_and(|limit| limit.is_idle(now)) {
            idle.push((row.try_get(0)?, row.try_get(2)?));
        }
    }
    Ok(idle)
}

impl PgTxn<'_> {
    /// Removes the lanes and limits of `unused` that are still unused.
    pub(crate) fn forget_unused(&mut self, unused: &UnusedRecords) -> Result<()> {
        if !unused.lanes.is_empty() {
            // Jobs may have been added after the query. The lanes are locked first, because their
            // counts include those jobs once no transaction can add more.
            let locked = self.session.rows(query(LOCK_LANES).bind(&unused.lanes))?;
            let locked = locked.iter().map(|row| row.try_get(0)).collect::<Result<Vec<i32>>>()?;
            self.session.run(query(REMOVE_LANES).bind(locked))?;
            self.lanes.clear();
        }
        if !unused.limits.is_empty() {
            let (keys, versions): (Vec<String>, Vec<String>) = unused.limits.iter().cloned().unzip();
            let sql = query(REMOVE_LIMITS).bind(DocumentKind::Limit.as_str()).bind(keys).bind(versions);
            let gone = self.session.row(sql)?.map_or(Ok(0), |row| row.try_get::<i64, _>(0))?;
            debug!(gone, "limits without jobs were removed");
        }
        Ok(())
    }
}
