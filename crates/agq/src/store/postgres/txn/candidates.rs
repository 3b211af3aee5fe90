//! Candidates of claims: the first ready jobs of lanes, and the locks on them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use agenix_protocol::time::Timestamp;
use agenix_rules::job::Job;
use sqlx::{Error, Row, query};

use crate::store::{
    Claimant,
    postgres::{
        codec::{decode, or_skip},
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

/// Ready job that is locked by this transaction.
pub(crate) struct LockedJob {
    pub(crate) job: Job,
    pub(crate) has_plan: bool,
    /// Texts of the job, if they were read with the job.
    pub(crate) texts: Option<JobTexts>,
}

/// Texts that a claim returns beside the record of the job.
#[derive(Default)]
pub(crate) struct JobTexts {
    pub(crate) input: String,
    pub(crate) plan: String,
    pub(crate) order: Option<String>,
}

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
const FIRST: &str = of_first_jobs!("c.lane, c.rank, c.turn", "", "");
/// Query that locks the first ready jobs of lanes. Jobs that another transaction has locked are
/// passed over.
///
/// Input and plan are subqueries for each job, because a generic plan does not know how few jobs
/// there are, and would join whole tables.
pub(crate) const CANDIDATES: &str = of_first_jobs!(
    "c.lane, c.record, EXISTS (SELECT FROM agq.plans WHERE plan_id = c.plan_id) AS has_plan, \
     CASE WHEN $5 THEN (SELECT json FROM agq.inputs WHERE job_id = c.job_id) END AS input, \
     CASE WHEN $5 THEN (SELECT ARRAY[json, envelope] FROM agq.plans WHERE plan_id = c.plan_id) END AS plan",
    ", j.job_id, j.plan_id, j.record",
    " FOR UPDATE SKIP LOCKED"
);
/// Maximum number of candidates that are read with their inputs and plans, which saves a round
/// trip. Of more candidates, agq reads only the inputs and plans of claimed jobs, because these
/// texts may be large.
const MAX_WITH_TEXTS: usize = 4;

impl PgTxn<'_> {
    /// Returns the number of jobs that a look locks in each lane, at most `most`.
    ///
    /// Other nodes pass over locked jobs. So if there are others, and several lanes to choose from,
    /// this look chooses from the positions of the jobs before it locks any. A look behind jobs
    /// that can no longer run does not, because it has to read more jobs than there are claimants.
    pub(crate) fn wanted_counts(
        &mut self,
        all: &[ClaimRequest<'_>],
        takers: &BTreeSet<&str>,
        lanes: &[i32],
        most: usize,
    ) -> Result<Vec<(i32, usize)>, Error> {
        let counts: Vec<(i32, usize)> = lanes.iter().map(|lane| (*lane, most)).collect();
        // A job with quantities may have to wait for room, while one of another lane starts.
        let may_wait = lanes.iter().any(|lane| self.lanes.resources_of(*lane).is_some());
        if lanes.len() < 2 || !self.lanes.has_peers || most > all.len() || may_wait {
            return Ok(counts);
        }
        let (limits, ranks, turns) = self.bounds(&counts, 0);
        let mut waiting: BTreeMap<i32, VecDeque<Position>> = BTreeMap::new();
        for row in self.session.rows(query(FIRST).bind(lanes).bind(limits).bind(ranks).bind(turns))? {
            waiting.entry(row.try_get(0)?).or_default().push_back((row.try_get(1)?, row.try_get(2)?));
        }
        for lane in lanes {
            let first = waiting.get(lane).and_then(VecDeque::front).copied();
            self.lanes.set_ready_from(*lane, first.unwrap_or(END));
        }
        let mut counts: BTreeMap<i32, usize> = BTreeMap::new();
        for claimant in all.iter().map(|wanting| wanting.claimant) {
            if !takers.contains(&*claimant.holder) {
                continue;
            }
            let first_of = |queue: &String| {
                let fits = |lane: &i32| self.lanes.is_for(*lane, queue, &claimant.abilities);
                let firsts = waiting.iter().filter(|(lane, _)| fits(lane));
                firsts.filter_map(|(lane, jobs)| Some((*jobs.front()?, *lane))).min()
            };
            if let Some((_, lane)) = claimant.queues.iter().find_map(first_of) {
                waiting.get_mut(&lane).and_then(VecDeque::pop_front);
                *counts.entry(lane).or_default() += 1;
            }
        }
        Ok(counts.into_iter().collect())
    }

    /// Returns the columns that bound a look at lanes: the number of jobs of each, with `more` for
    /// each, and the position from which on it may have ready jobs.
    fn bounds(&self, counts: &[(i32, usize)], more: usize) -> (Vec<i64>, Vec<i16>, Vec<i64>) {
        let limits = counts.iter().map(|(_, count)| sql_types::limit(count + more)).collect();
        let (ranks, turns) = counts.iter().map(|(lane, _)| self.lanes.ready_from(*lane)).unzip();
        (limits, ranks, turns)
    }

    /// Locks the first ready jobs of lanes, as many as `counts` says.
    pub(crate) fn candidates(&self, counts: &[(i32, usize)]) -> Result<Candidates, Error> {
        if counts.is_empty() {
            return Ok(Candidates::default());
        }
        let lanes: Vec<i32> = counts.iter().map(|(lane, _)| *lane).collect();
        let has_texts = counts.iter().map(|(_, count)| count).sum::<usize>() <= MAX_WITH_TEXTS;
        // Unreadable jobs must not keep a claim from the jobs behind them.
        let mut most_unreadable = 0;
        loop {
            let (limits, ranks, turns) = self.bounds(counts, most_unreadable);
            let sql = query(CANDIDATES).bind(&lanes).bind(limits).bind(ranks).bind(turns).bind(has_texts);
            let mut found = Candidates::default();
            let mut unreadable: BTreeMap<i32, usize> = BTreeMap::new();
            for row in self.session.rows(sql)? {
                let lane = row.try_get("lane")?;
                let Some(job) = or_skip(decode(row.try_get("record")?)) else {
                    *unreadable.entry(lane).or_default() += 1;
                    continue;
                };
                let (input, plan): (Option<String>, Option<[Option<String>; 2]>) =
                    (row.try_get("input")?, row.try_get("plan")?);
                let [plan, order] = plan.unwrap_or_default();
                let (input, plan) = (input.unwrap_or_default(), plan.unwrap_or_default());
                let texts = has_texts.then_some(JobTexts { input, plan, order });
                let candidate = LockedJob { job, has_plan: row.try_get("has_plan")?, texts };
                found.jobs.entry(lane).or_default().push_back(candidate);
            }
            for (lane, count) in counts.iter().filter(|(lane, _)| !unreadable.contains_key(lane)) {
                let is_full = |jobs: &&VecDeque<LockedJob>| jobs.len() >= count + most_unreadable;
                // Fewer jobs than asked for are all jobs of the lane.
                let last = found.jobs.get(lane).filter(is_full).and_then(VecDeque::back);
                found.rest_from.insert(*lane, last.map_or(END, |last| position_of(&last.job)));
            }
            let unreadable = unreadable.into_values().max().unwrap_or_default();
            if unreadable <= most_unreadable {
                return Ok(found);
            }
            most_unreadable = unreadable;
        }
    }
}
