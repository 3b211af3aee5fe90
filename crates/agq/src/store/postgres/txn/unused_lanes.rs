//! Removes lanes and limits that nothing uses any more.

use std::{collections::BTreeMap, iter::from_fn};

use agenix_protocol::time::Timestamp;
use agenix_rules::limit::Limit;
use sqlx::{Result, Row, query};
use tracing::debug;

use crate::store::{
    DocumentKind, UnusedRecords,
    postgres::{
        codec::or_skip, connection::Pool, lane_cache::lane_of, limit_ends::document_in, sql_types, txn::PgTxn,
    },
};

/// Maximum number of lanes, and of limits, that are read or removed at a time.
const STEP: usize = 1_000;
/// Number of limits in memory from which on no more are read before these are removed.
const MANY: usize = 100_000;
/// Query for the lanes after one, each with true if it has no job, ended jobs included. A lane also
/// counts as used if its number is one of the next ones, because nodes may have a removed lane in
/// their caches, and its number must not be used again as long as they have the lane.
pub(crate) const LANES: &str = "SELECT lane, queue, needs, (is_counted \
         AND (lane - 1 - (SELECT coalesce(last_value, 0) FROM pg_sequences \
         WHERE schemaname = 'agq' AND sequencename = 'lanes_lane_seq') + 2147483647) % 2147483647 >= 100000000 \
         AND NOT EXISTS (\
         SELECT FROM agq.lane_counts AS c, unnest(c.counts) WITH ORDINALITY AS s (n, i) WHERE c.lane = l.lane \
         GROUP BY i HAVING sum(n) <> 0)) IS TRUE AS is_empty \
     FROM (SELECT * FROM agq.lanes WHERE lane > $1 ORDER BY lane LIMIT $2) AS l ORDER BY lane";
/// Query for the limits after one, with their versions.
pub(crate) const LIMITS: &str = "SELECT id, json, xmin::text AS version, \
         (SELECT sum(ended)::bigint FROM agq.limit_ends WHERE limit_key = id) AS ended \
     FROM agq.notes WHERE kind = $1 AND id > $2 ORDER BY id LIMIT $3";
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

/// Search for lanes and limits that nothing uses. Each step reads a bounded number of them, and the
/// next step goes on there.
///
/// The limits are read before the lanes. A transaction that creates a lane also writes the limit of
/// the lane, and so changes the version of the limit.
#[derive(Debug, Default)]
pub(crate) struct UnusedSearch {
    stage: SearchStage,
    /// Limits that hold nothing back, with their versions. Those of the lanes that have been read
    /// are left out.
    idle: BTreeMap<String, String>,
    last_limit: String,
    last_lane: Option<i32>,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum SearchStage {
    #[default]
    Limits,
    Lanes,
    /// The limits in memory are to be removed.
    Removal,
}

impl UnusedSearch {
    /// Returns some lanes without jobs, and some limits that have no job and hold nothing back.
    pub(crate) async fn step(&mut self, pool: &Pool, now: Timestamp) -> Result<UnusedRecords> {
        let mut unused = UnusedRecords::default();
        if self.stage == SearchStage::Limits {
            self.read_limits(pool, now).await?;
        }
        if self.stage == SearchStage::Lanes {
            unused.lanes = self.read_lanes(pool).await?;
        }
        if self.stage == SearchStage::Removal {
            unused.limits = from_fn(|| self.idle.pop_first()).take(STEP).collect();
            if self.idle.is_empty() {
                self.stage = SearchStage::Limits;
            }
        }
        Ok(unused)
    }

    async fn read_limits(&mut self, pool: &Pool, now: Timestamp) -> Result<()> {
        let sql = query(LIMITS).bind(DocumentKind::Limit.as_str()).bind(&self.last_limit);
        let rows = sql.bind(sql_types::limit(STEP)).fetch_all(pool).await?;
        for row in &rows {
            let limit = document_in(row).ok().and_then(|json| serde_json::from_str::<Limit>(&json).ok());
            if limit.is_some_and(|limit| limit.is_idle(now)) {
                self.idle.insert(row.try_get("id")?, row.try_get("version")?);
            }
        }
        let next = rows.last().filter(|_| rows.len() == STEP);
        self.last_limit = next.map_or(Ok(String::new()), |row| row.try_get("id"))?;
        if self.last_limit.is_empty() || self.idle.len() >= MANY {
            self.stage = SearchStage::Lanes;
        }
        Ok(())
    }

    /// Returns the lanes without jobs among the next ones.
    async fn read_lanes(&mut self, pool: &Pool) -> Result<Vec<i32>> {
        let sql = query(LANES).bind(self.last_lane.unwrap_or(i32::MIN)).bind(sql_types::limit(STEP));
        let rows = sql.fetch_all(pool).await?;
        let mut empty = Vec::new();
        for row in &rows {
            if row.try_get::<bool, _>("is_empty")? {
                empty.push(row.try_get("lane")?);
            }
            if let Some(limit) = or_skip(lane_of(row)).and_then(|(_, key)| key.needs.limit) {
                self.idle.remove(&limit);
            }
        }
        let next = rows.last().filter(|_| rows.len() == STEP);
        self.last_lane = next.map(|row| row.try_get("lane")).transpose()?;
        if self.last_lane.is_none() {
            self.stage = SearchStage::Removal;
        }
        Ok(empty)
    }
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
