//! Candidates of claims: the first ready jobs of lanes, and the locks on them.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};

use agenix_protocol::time::Timestamp;
use agenix_rules::{job::Job, worker::Worker};
use sqlx::{Result, Row, postgres::PgRow};

use crate::store::{
    Claimant,
    postgres::{
        codec::{decode, or_skip},
        connection::{Param, Statement},
        lane_cache::LaneCache,
        ready_positions::{END, Position, position_of},
        sql_types,
        txn::PgTxn,
    },
};

/// Claimant with the parameters of its claim.
#[derive(Clone, Copy)]
pub(crate) struct ClaimRequest<'w> {
    pub(crate) claimant: &'w Claimant,
    pub(crate) now: Timestamp,
    pub(crate) start_timeout_ms: u64,
}

/// Ready job that is locked by this transaction, or that this transaction adds.
pub(crate) struct LockedJob {
    pub(crate) job: Job,
    pub(crate) has_plan: bool,
}

/// Holders that may not take jobs.
pub(crate) type Barred = HashSet<String>;

pub(crate) type LockedJobs = BTreeMap<i32, VecDeque<LockedJob>>;

/// Jobs that one look has locked.
#[derive(Default)]
pub(crate) struct Candidates {
    pub(crate) jobs: LockedJobs,
    /// For each lane, the position from which on it may have ready jobs once all locked ones are
    /// claimed. Lanes with unreadable jobs are left out.
    pub(crate) rest_from: BTreeMap<i32, Position>,
}

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
pub(crate) const FIRST: Statement =
    Statement { name: "agq_first", sql: of_first_jobs!("c.lane, c.rank, c.turn", "", "") };
/// Query that locks the first ready jobs of lanes. Jobs that another transaction has locked are
/// passed over.
pub(crate) const CANDIDATES: Statement = Statement {
    name: "agq_candidates",
    sql: of_first_jobs!(
        "c.lane, c.record, EXISTS (SELECT FROM agq.plans WHERE plan_id = c.plan_id) AS has_plan",
        ", j.plan_id, j.record",
        " FOR UPDATE SKIP LOCKED"
    ),
};
/// Query for the workers among the holders.
pub(crate) const TAKERS: Statement = Statement {
    name: "agq_takers",
    sql: "SELECT worker_id, record FROM agq.workers WHERE worker_id = ANY ($1::text[])",
};

/// Returns the holders for which the claims are.
pub(crate) fn holders<'w>(all: &[ClaimRequest<'w>]) -> BTreeSet<&'w str> {
    all.iter().map(|wanting| &*wanting.claimant.holder).collect()
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

/// Returns the lanes in which a claim looks for jobs.
pub(crate) fn wanted(lanes: &LaneCache, all: &[ClaimRequest<'_>], barred: &Barred) -> BTreeSet<i32> {
    let claimants = || {
        let all = all.iter().map(|wanting| wanting.claimant);
        all.filter(|claimant| !barred.contains(&*claimant.holder))
    };
    let queues: BTreeSet<&String> = claimants().flat_map(|claimant| &*claimant.queues).collect();
    let mut wanted: BTreeSet<i32> = queues.iter().flat_map(|queue| lanes.of_queue(queue)).collect();
    let is_wanted = |lane: &i32| {
        claimants().any(|claimant| {
            claimant.queues.iter().any(|queue| lanes.is_for(*lane, queue, &claimant.abilities))
        })
    };
    wanted.retain(is_wanted);
    wanted
}

/// Returns the parameters of a look at lanes: the number of jobs of each, with `more` for each, and
/// the position from which on it may have ready jobs.
pub(crate) fn params(lanes: &LaneCache, counts: &[(i32, usize)], more: usize) -> Vec<Param> {
    let (ranks, turns) = counts.iter().map(|(lane, _)| lanes.ready_from(*lane)).unzip();
    vec![
        Param::Integers(counts.iter().map(|(lane, _)| *lane).collect()),
        Param::Wides(counts.iter().map(|(_, count)| sql_types::limit(count + more)).collect()),
        Param::Shorts(ranks),
        Param::Wides(turns),
    ]
}

/// Reads the jobs that a look has locked, with the largest number of unreadable jobs of a lane.
pub(crate) fn read(rows: &[PgRow], counts: &[(i32, usize)], more: usize) -> Result<(Candidates, usize)> {
    let mut found = Candidates::default();
    let mut unreadable: BTreeMap<i32, usize> = BTreeMap::new();
    for row in rows {
        let lane = row.try_get("lane")?;
        match or_skip(decode(&row.try_get::<Vec<u8>, _>("record")?)) {
            Some(job) => {
                let candidate = LockedJob { job, has_plan: row.try_get("has_plan")? };
                found.jobs.entry(lane).or_default().push_back(candidate);
            }
            None => *unreadable.entry(lane).or_default() += 1,
        }
    }
    for (lane, count) in counts.iter().filter(|(lane, _)| !unreadable.contains_key(lane)) {
        let is_full = |jobs: &&VecDeque<LockedJob>| jobs.len() >= count + more;
        // Fewer jobs than asked for are all jobs of the lane.
        let last = found.jobs.get(lane).filter(is_full).and_then(VecDeque::back);
        found.rest_from.insert(*lane, last.map_or(END, |last| position_of(&last.job)));
    }
    Ok((found, unreadable.into_values().max().unwrap_or_default()))
}

impl PgTxn<'_> {
    /// Locks the first ready jobs of lanes, as many as `counts` says.
    pub(crate) fn candidates(&self, counts: &[(i32, usize)]) -> Result<Candidates> {
        if counts.is_empty() {
            return Ok(Candidates::default());
        }
        // Unreadable jobs must not keep a claim from the jobs behind them.
        let mut more = 0;
        loop {
            let rows = self.session.rows(CANDIDATES.query(params(self.lanes, counts, more)))?;
            let (found, unreadable) = read(&rows, counts, more)?;
            if unreadable <= more {
                return Ok(found);
            }
            more = unreadable;
        }
    }

    /// Returns the holders among `all` that may not take jobs.
    pub(crate) fn barred(&self, all: &[ClaimRequest<'_>]) -> Result<Barred> {
        barred(&self.session.rows(TAKERS.query(vec![Param::texts(holders(all))]))?)
    }
}
