//! Statements of claims: the first ready jobs of lanes, the locks on them, and the claimants.

use std::collections::{BTreeSet, HashSet};

use agenix_protocol::time::Timestamp;
use agenix_rules::worker::Worker;
use sqlx::{Result, Row, postgres::PgRow};

use crate::store::{
    Claimant,
    postgres::{
        codec::{decode, or_skip},
        connection::{Param, PreparedStatement},
        sql_types,
        txn::ready_jobs::LaneRead,
    },
};

/// Claimant with the parameters of its claim.
#[derive(Clone, Copy)]
pub(crate) struct ClaimRequest<'w> {
    pub(crate) claimant: &'w Claimant,
    pub(crate) now: Timestamp,
    pub(crate) start_timeout_ms: u64,
}

/// Holders that may not take jobs.
pub(crate) type Barred = HashSet<String>;

/// Joins the lanes `$1` with their first ready jobs, as many as `$2` for each. Jobs of paused
/// queues and of halted actions are passed over.
///
/// The check for the halted mark is a subquery, because a join would sort all ready jobs. A lane
/// costs one index lookup and its rows. Each lane is read from a position on (`$3`, `$4`), which
/// skips the index entries of claimed jobs (see `ready_positions`).
macro_rules! of_first_jobs {
    ($columns:literal, $of_jobs:literal, $lock:literal) => {
        concat!(
            "SELECT ",
            $columns,
            " FROM unnest($1::integer[], $2::bigint[], $3::smallint[], $4::bigint[]) AS w (lane, most, rank, turn) \
             JOIN agq.lanes AS l ON l.lane = w.lane AND NOT EXISTS (SELECT FROM agq.paused WHERE paused.queue = l.queue) \
             CROSS JOIN LATERAL (SELECT j.lane, j.rank, j.turn",
            $of_jobs,
            " FROM agq.jobs AS j WHERE j.lane = l.lane AND j.is_ready AND (j.rank, j.turn) >= (w.rank, w.turn) \
             AND (SELECT true FROM agq.notes AS n WHERE n.kind = 'halted' AND n.id = j.action_id) IS NULL \
             ORDER BY j.rank, j.turn LIMIT w.most",
            $lock,
            ") AS c ORDER BY c.lane, c.rank, c.turn"
        )
    };
}
/// Query for the positions of the first ready jobs of lanes.
pub(crate) const FIRST: PreparedStatement =
    PreparedStatement { name: "agq_first", sql: of_first_jobs!("c.lane, c.rank, c.turn", "", "") };
/// Query that locks the first ready jobs of lanes. Jobs that another transaction has locked are
/// passed over.
pub(crate) const CANDIDATES: PreparedStatement = PreparedStatement {
    name: "agq_candidates",
    sql: of_first_jobs!(
        "c.lane, c.rank, c.turn, c.record, EXISTS (SELECT FROM agq.plans WHERE plan_id = c.plan_id) AS has_plan",
        ", j.plan_id, j.record",
        " FOR UPDATE SKIP LOCKED"
    ),
};
/// Query for the workers among the holders.
pub(crate) const TAKERS: PreparedStatement = PreparedStatement {
    name: "agq_takers",
    sql: "SELECT worker_id, record FROM agq.workers WHERE worker_id = ANY ($1::text[])",
};

/// Query for the paused queues.
pub(crate) const PAUSED: PreparedStatement =
    PreparedStatement { name: "agq_paused", sql: "SELECT queue FROM agq.paused" };

/// Returns the parameter of [`TAKERS`]: the holders for which the claims are.
pub(crate) fn takers(all: &[ClaimRequest<'_>]) -> Param {
    Param::texts(all.iter().map(|request| &*request.claimant.holder).collect::<BTreeSet<&str>>())
}

/// Returns the paused queues.
pub(crate) fn paused(rows: &[PgRow]) -> Result<HashSet<String>> {
    rows.iter().map(|row| row.try_get(0)).collect()
}

/// Returns the workers that may not take jobs. Workers are checked again, because a claimant may
/// have waited since its first check.
pub(crate) fn barred(workers: &[PgRow]) -> Result<Barred> {
    let mut barred = Barred::new();
    for row in workers {
        let worker: Option<Worker> = or_skip(decode(&row.try_get::<Vec<u8>, _>("record")?));
        if !worker.is_some_and(|worker| worker.may_claim()) {
            barred.insert(row.try_get("worker_id")?);
        }
    }
    Ok(barred)
}

/// Returns the parameters of reads of lanes.
pub(crate) fn params(reads: &[LaneRead]) -> Vec<Param> {
    let (ranks, turns) = reads.iter().map(|read| read.from).unzip();
    vec![
        Param::Integers(reads.iter().map(|read| read.lane).collect()),
        Param::Wides(reads.iter().map(|read| sql_types::limit(read.count)).collect()),
        Param::Shorts(ranks),
        Param::Wides(turns),
    ]
}
