//! Rows that are written together: one array for each column, so that one statement writes any
//! number of rows.

use std::collections::{BTreeMap, BTreeSet};

use agenix_protocol::{
    ids::{ActionId, JobId},
    time::Timestamp,
};
use agenix_rules::job::{Job, JobState};
use sqlx::{Error, Result, Row, query};

use crate::store::postgres::{codec::encode, connection::DatabaseSession, sql_types};

/// Rows of jobs, ended ones included. A statement binds the columns that its table has.
#[derive(Default)]
pub(crate) struct JobRows {
    job_id: Vec<String>,
    action_id: Vec<String>,
    place: Vec<i64>,
    plan_id: Vec<String>,
    lane: Vec<i32>,
    rank: Vec<i16>,
    turn: Vec<i64>,
    status: Vec<i16>,
    is_ready: Vec<bool>,
    due_at: Vec<Option<i64>>,
    ended_at: Vec<i64>,
    holder: Vec<Option<String>>,
    created_at: Vec<i64>,
    record: Vec<Vec<u8>>,
}

/// Statement that inserts new jobs with their inputs. The statement returns how many of their lanes
/// exist, and locks these lanes until the transaction is committed.
const INSERT_JOBS: &str = "WITH held AS (SELECT FROM agq.lanes WHERE lane = ANY ($16::integer[]) ORDER BY lane FOR KEY SHARE), \
     i AS (INSERT INTO agq.inputs (job_id, json) SELECT * FROM unnest($14::text[], $15::text[])), \
     j AS (INSERT INTO agq.jobs (job_id, action_id, place, plan_id, lane, rank, turn, status, is_ready, \
     due_at, holder, created_at, record) \
     SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::integer[], $6::smallint[], $7::bigint[], \
     $8::smallint[], $9::boolean[], $10::bigint[], $11::text[], $12::bigint[], $13::bytea[])) \
     SELECT count(*) FROM held";

impl JobRows {
    pub(crate) fn push(&mut self, job: &Job) -> Result<()> {
        self.record.push(encode(job)?);
        self.job_id.push(job.job_id.to_string());
        self.action_id.push(job.action_id.to_string());
        self.place.push(sql_types::wide(job.index));
        self.plan_id.push(job.plan_id.to_string());
        self.lane.push(sql_types::lane(job.lane));
        self.rank.push(sql_types::rank(job));
        self.turn.push(sql_types::wide(job.seq));
        self.status.push(sql_types::status(job.status()));
        self.is_ready.push(job.state == JobState::Available);
        self.due_at.push(sql_types::time(job.due_at));
        self.ended_at.push(sql_types::wide(job.ended_at.unwrap_or_default().0));
        self.holder.push(job.holder.clone());
        self.created_at.push(sql_types::wide(job.created_at.0));
        Ok(())
    }

    /// Inserts new jobs, and inputs: ids and texts.
    pub(crate) fn insert(self, session: &DatabaseSession, inputs: (Vec<String>, Vec<String>)) -> Result<()> {
        if self.job_id.is_empty() && inputs.0.is_empty() {
            return Ok(());
        }
        let lanes: Vec<i32> = self.lane.iter().copied().collect::<BTreeSet<i32>>().into_iter().collect();
        let count = sql_types::limit(lanes.len());
        let sql = query(INSERT_JOBS)
            .bind(self.job_id)
            .bind(self.action_id)
            .bind(self.place)
            .bind(self.plan_id)
            .bind(self.lane)
            .bind(self.rank)
            .bind(self.turn)
            .bind(self.status)
            .bind(self.is_ready)
            .bind(self.due_at)
            .bind(self.holder)
            .bind(self.created_at)
            .bind(self.record)
            .bind(inputs.0)
            .bind(inputs.1)
            .bind(lanes);
        let held: i64 = session.row(sql)?.ok_or(Error::RowNotFound)?.try_get(0)?;
        // A lane without jobs may have been removed meanwhile. The retry creates it again.
        if held == count { Ok(()) } else { Err(Error::RowNotFound) }
    }

    pub(crate) fn len(&self) -> usize {
        self.job_id.len()
    }

    /// Moves ended jobs back to the jobs that have not ended.
    pub(crate) fn revive(self, session: &DatabaseSession) -> Result<()> {
        if self.job_id.is_empty() {
            return Ok(());
        }
        session.run(query("DELETE FROM agq.ended WHERE job_id = ANY ($1)").bind(self.job_id.clone()))?;
        self.insert(session, Default::default())
    }

    /// Updates ended jobs, for example with another status.
    pub(crate) fn amend(self, session: &DatabaseSession) -> Result<()> {
        if self.job_id.is_empty() {
            return Ok(());
        }
        let sql = "UPDATE agq.ended AS e SET status = n.status, ended_at = n.ended_at, holder = n.holder, record = n.record \
             FROM unnest($1::text[], $2::smallint[], $3::bigint[], $4::text[], $5::bytea[]) \
             AS n (job_id, status, ended_at, holder, record) WHERE e.job_id = n.job_id";
        let sql = query(sql)
            .bind(self.job_id)
            .bind(self.status)
            .bind(self.ended_at)
            .bind(self.holder)
            .bind(self.record);
        session.run(sql).map(drop)
    }
}

#[derive(Default)]
pub(crate) struct Deltas {
    tallies: BTreeMap<ActionId, TallyDelta>,
    /// Changes by lane and state.
    lanes: BTreeMap<u32, [i64; 8]>,
    pub(crate) totals: TotalsDelta,
}

#[derive(Default)]
pub(crate) struct TallyDelta {
    pub(crate) jobs: [i64; 6],
    pub(crate) last_ended_at: Option<Timestamp>,
    pub(crate) started: i64,
}

#[derive(Default)]
pub(crate) struct TotalsDelta {
    pub(crate) now: [i64; 6],
    pub(crate) ever: [i64; 6],
}

/// Statement that writes what most batches change. Each node has a shard, so rows differ.
const STEP: &str = "WITH changed AS (\
        UPDATE agq.jobs AS j SET status = n.status, is_ready = n.is_ready, due_at = n.due_at, holder = n.holder, \
        record = n.record FROM unnest($1::text[], $2::smallint[], $3::boolean[], $4::bigint[], $5::text[], $6::bytea[]) \
        AS n (job_id, status, is_ready, due_at, holder, record) WHERE j.job_id = n.job_id), \
    gone AS (DELETE FROM agq.jobs WHERE job_id = ANY ($7::text[])), \
    ended AS (INSERT INTO agq.ended (job_id, action_id, place, plan_id, status, ended_at, holder, created_at, record) \
        SELECT * FROM unnest($7::text[], $8::text[], $9::bigint[], $10::text[], $11::smallint[], $12::bigint[], $13::text[], \
        $14::bigint[], $15::bytea[])), \
    kept AS (INSERT INTO agq.results (job_id, json) SELECT * FROM unnest($16::text[], $17::text[]) \
        ON CONFLICT (job_id) DO UPDATE SET json = EXCLUDED.json), \
    tallied AS (INSERT INTO agq.tallies AS t SELECT n.action_id, $18::smallint, n.a, n.b, n.c, n.d, n.e, n.f, n.at, n.started \
        FROM unnest($19::text[], $20::bigint[], $21::bigint[], $22::bigint[], $23::bigint[], $24::bigint[], $25::bigint[], \
        $26::bigint[], $39::bigint[]) AS n (action_id, a, b, c, d, e, f, at, started) \
        ON CONFLICT (action_id, shard) DO UPDATE SET pending = t.pending + EXCLUDED.pending, \
        running = t.running + EXCLUDED.running, completed = t.completed + EXCLUDED.completed, \
        failed = t.failed + EXCLUDED.failed, dead = t.dead + EXCLUDED.dead, cancelled = t.cancelled + EXCLUDED.cancelled, \
        last_ended_at = greatest(t.last_ended_at, EXCLUDED.last_ended_at), started = t.started + EXCLUDED.started), \
    counted AS (INSERT INTO agq.lane_counts AS c SELECT n.lane, $18::smallint, ARRAY[n.a, n.b, n.c, n.d, n.e, n.f, n.g, n.h] \
        FROM unnest($30::integer[], $31::bigint[], $32::bigint[], $33::bigint[], $34::bigint[], $35::bigint[], $36::bigint[], \
        $37::bigint[], $38::bigint[]) AS n (lane, a, b, c, d, e, f, g, h) \
        ON CONFLICT (lane, shard) DO UPDATE SET \
        counts = (SELECT array_agg(a + b ORDER BY i) FROM unnest(c.counts, EXCLUDED.counts) WITH ORDINALITY AS s (a, b, i))) \
    INSERT INTO agq.totals AS t SELECT $18::smallint, $27::bigint[], $28::bigint[] WHERE $29 \
        ON CONFLICT (shard) DO UPDATE SET \
        now = (SELECT array_agg(a + b ORDER BY i) FROM unnest(t.now, EXCLUDED.now) WITH ORDINALITY AS s (a, b, i)), \
        ever = (SELECT array_agg(a + b ORDER BY i) FROM unnest(t.ever, EXCLUDED.ever) WITH ORDINALITY AS s (a, b, i))";

impl Deltas {
    pub(crate) fn tally(&mut self, action_id: &ActionId) -> &mut TallyDelta {
        if !self.tallies.contains_key(action_id) {
            self.tallies.insert(action_id.clone(), TallyDelta::default());
        }
        self.tallies.get_mut(action_id).expect("it was put there if it was not")
    }

    pub(crate) fn in_lane(&mut self, job: &Job, by: i64) {
        self.lanes.entry(job.lane).or_default()[job.state as usize] += by;
    }

    pub(crate) fn actions(&self) -> impl Iterator<Item = ActionId> {
        self.tallies.keys().cloned()
    }

    /// Writes the counts, together with changed jobs, ended jobs, and results.
    pub(crate) fn write_with(
        self,
        session: &DatabaseSession,
        shard: i16,
        changed: JobRows,
        ended: JobRows,
        results: &BTreeMap<JobId, String>,
    ) -> Result<()> {
        let has_totals = self.totals.now != [0; 6] || self.totals.ever != [0; 6];
        let is_empty = changed.job_id.is_empty() && ended.job_id.is_empty() && results.is_empty();
        if is_empty && self.tallies.is_empty() && self.lanes.is_empty() && !has_totals {
            return Ok(());
        }
        let of = |status: usize| self.tallies.values().map(|tally| tally.jobs[status]).collect::<Vec<_>>();
        let sql = query(STEP)
            .bind(changed.job_id)
            .bind(changed.status)
            .bind(changed.is_ready)
            .bind(changed.due_at)
            .bind(changed.holder)
            .bind(changed.record)
            .bind(ended.job_id)
            .bind(ended.action_id)
            .bind(ended.place)
            .bind(ended.plan_id)
            .bind(ended.status)
            .bind(ended.ended_at)
            .bind(ended.holder)
            .bind(ended.created_at)
            .bind(ended.record)
            .bind(results.keys().map(|job_id| job_id.as_str()).collect::<Vec<_>>())
            .bind(results.values().map(String::as_str).collect::<Vec<_>>())
            .bind(shard)
            .bind(self.tallies.keys().map(|action_id| action_id.as_str()).collect::<Vec<_>>());
        let sql = (0..6)
            .fold(sql, |sql, status| sql.bind(of(status)))
            .bind(self.tallies.values().map(|tally| sql_types::time(tally.last_ended_at)).collect::<Vec<_>>())
            .bind(self.totals.now.to_vec())
            .bind(self.totals.ever.to_vec())
            .bind(has_totals)
            .bind(self.lanes.keys().map(|lane| sql_types::lane(*lane)).collect::<Vec<_>>());
        let in_state = |state: usize| self.lanes.values().map(|counts| counts[state]).collect::<Vec<_>>();
        let sql = (0..8).fold(sql, |sql, state| sql.bind(in_state(state)));
        let started: Vec<i64> = self.tallies.values().map(|tally| tally.started).collect();
        session.run(sql.bind(started)).map(drop)
    }
}
