//! Rows that are written together: one array for each column, so that one statement writes any
//! number of rows.

use std::collections::BTreeMap;

use agenix_protocol::{
    ids::{ActionId, JobId},
    time::Timestamp,
};
use agenix_rules::job::{Job, JobState};
use sqlx::Result;

use crate::store::postgres::{
    codec::encode,
    connection::{Param, PreparedStatement, RoundTrip},
    sql_types,
};

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

/// Statement that inserts new jobs with their inputs. The transaction holds the lanes of the jobs.
const INSERT_JOBS: PreparedStatement = PreparedStatement {
    name: "agq_insert_jobs",
    sql: "WITH i AS (INSERT INTO agq.inputs (job_id, json) SELECT * FROM unnest($14::text[], $15::text[])) \
         INSERT INTO agq.jobs (job_id, action_id, place, plan_id, lane, rank, turn, status, is_ready, \
         due_at, holder, created_at, record) \
         SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::integer[], $6::smallint[], $7::bigint[], \
         $8::smallint[], $9::boolean[], $10::bigint[], $11::text[], $12::bigint[], $13::bytea[])",
};
const CHANGE_JOBS: PreparedStatement = PreparedStatement {
    name: "agq_change_jobs",
    sql: "UPDATE agq.jobs AS j SET status = n.status, is_ready = n.is_ready, due_at = n.due_at, holder = n.holder, \
         record = n.record, lane = n.lane \
         FROM unnest($1::text[], $2::smallint[], $3::boolean[], $4::bigint[], $5::text[], $6::bytea[], $7::integer[]) \
         AS n (job_id, status, is_ready, due_at, holder, record, lane) WHERE j.job_id = n.job_id",
};
const END_JOBS: PreparedStatement = PreparedStatement {
    name: "agq_end_jobs",
    sql: "WITH gone AS (DELETE FROM agq.jobs WHERE job_id = ANY ($1::text[])) \
         INSERT INTO agq.ended (job_id, action_id, place, plan_id, status, ended_at, holder, created_at, record) \
         SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::smallint[], $6::bigint[], $7::text[], \
         $8::bigint[], $9::bytea[])",
};
const REVIVE_JOBS: PreparedStatement = PreparedStatement {
    name: "agq_revive_jobs",
    sql: "DELETE FROM agq.ended WHERE job_id = ANY ($1::text[])",
};
/// Statement that updates ended jobs, for example with another status.
const AMEND_JOBS: PreparedStatement = PreparedStatement {
    name: "agq_amend_jobs",
    sql: "UPDATE agq.ended AS e SET status = n.status, ended_at = n.ended_at, holder = n.holder, record = n.record \
         FROM unnest($1::text[], $2::smallint[], $3::bigint[], $4::text[], $5::bytea[]) \
         AS n (job_id, status, ended_at, holder, record) WHERE e.job_id = n.job_id",
};
const PUT_RESULTS: PreparedStatement = PreparedStatement {
    name: "agq_put_results",
    sql: "INSERT INTO agq.results (job_id, json) SELECT * FROM unnest($1::text[], $2::text[]) \
         ON CONFLICT (job_id) DO UPDATE SET json = EXCLUDED.json",
};

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

    pub(crate) fn len(&self) -> usize {
        self.job_id.len()
    }

    pub(crate) fn lanes(&self) -> impl Iterator<Item = i32> {
        self.lane.iter().copied()
    }

    /// Inserts new jobs, and inputs: ids and texts.
    pub(crate) fn insert(self, round_trip: &mut RoundTrip, (inputs, texts): (Vec<String>, Vec<String>)) {
        if self.job_id.is_empty() && inputs.is_empty() {
            return;
        }
        let params = vec![
            Param::Texts(self.job_id),
            Param::Texts(self.action_id),
            Param::Wides(self.place),
            Param::Texts(self.plan_id),
            Param::Integers(self.lane),
            Param::Shorts(self.rank),
            Param::Wides(self.turn),
            Param::Shorts(self.status),
            Param::Flags(self.is_ready),
            Param::OptionalWides(self.due_at),
            Param::OptionalTexts(self.holder),
            Param::Wides(self.created_at),
            Param::Binaries(self.record),
            Param::Texts(inputs),
            Param::Texts(texts),
        ];
        round_trip.call(&INSERT_JOBS, params);
    }

    /// Updates jobs that have not ended.
    pub(crate) fn change(self, round_trip: &mut RoundTrip) {
        if self.job_id.is_empty() {
            return;
        }
        let params = vec![
            Param::Texts(self.job_id),
            Param::Shorts(self.status),
            Param::Flags(self.is_ready),
            Param::OptionalWides(self.due_at),
            Param::OptionalTexts(self.holder),
            Param::Binaries(self.record),
            Param::Integers(self.lane),
        ];
        round_trip.call(&CHANGE_JOBS, params);
    }

    /// Moves jobs to the ended ones, or inserts new jobs that have ended.
    pub(crate) fn end(self, round_trip: &mut RoundTrip) {
        if self.job_id.is_empty() {
            return;
        }
        let params = vec![
            Param::Texts(self.job_id),
            Param::Texts(self.action_id),
            Param::Wides(self.place),
            Param::Texts(self.plan_id),
            Param::Shorts(self.status),
            Param::Wides(self.ended_at),
            Param::OptionalTexts(self.holder),
            Param::Wides(self.created_at),
            Param::Binaries(self.record),
        ];
        round_trip.call(&END_JOBS, params);
    }

    /// Moves ended jobs back to the jobs that have not ended.
    pub(crate) fn revive(self, round_trip: &mut RoundTrip) {
        if self.job_id.is_empty() {
            return;
        }
        round_trip.call(&REVIVE_JOBS, vec![Param::Texts(self.job_id.clone())]);
        self.insert(round_trip, Default::default());
    }

    pub(crate) fn amend(self, round_trip: &mut RoundTrip) {
        if self.job_id.is_empty() {
            return;
        }
        let params = vec![
            Param::Texts(self.job_id),
            Param::Shorts(self.status),
            Param::Wides(self.ended_at),
            Param::OptionalTexts(self.holder),
            Param::Binaries(self.record),
        ];
        round_trip.call(&AMEND_JOBS, params);
    }
}

pub(crate) fn put_results(round_trip: &mut RoundTrip, results: BTreeMap<JobId, String>) {
    if results.is_empty() {
        return;
    }
    let (ids, texts) = results.into_iter().map(|(job_id, json)| (job_id.to_string(), json)).unzip();
    round_trip.call(&PUT_RESULTS, vec![Param::Texts(ids), Param::Texts(texts)]);
}

/// Statement that adds to the ends of jobs with limits. Each node has a shard, so rows differ.
const ADD_LIMIT_ENDS: PreparedStatement = PreparedStatement {
    name: "agq_add_limit_ends",
    sql: "INSERT INTO agq.limit_ends AS l SELECT n.limit_key, $1::smallint, n.ended \
          FROM unnest($2::text[], $3::bigint[]) AS n (limit_key, ended) \
          ON CONFLICT (limit_key, shard) DO UPDATE SET ended = l.ended + EXCLUDED.ended",
};

/// Adds numbers of ended jobs, by the keys of their limits.
pub(crate) fn add_limit_ends(round_trip: &mut RoundTrip, shard: i16, ends: BTreeMap<String, u64>) {
    if ends.is_empty() {
        return;
    }
    let (keys, counts) = ends.into_iter().map(|(key, ended)| (key, sql_types::wide(ended))).unzip();
    round_trip.call(&ADD_LIMIT_ENDS, vec![Param::Short(shard), Param::Texts(keys), Param::Wides(counts)]);
}

#[derive(Default)]
pub(crate) struct Deltas {
    job_counts: BTreeMap<ActionId, JobCountDelta>,
    /// Changes by lane and state.
    lanes: BTreeMap<u32, [i64; 8]>,
    pub(crate) totals: TotalsDelta,
}

#[derive(Default)]
pub(crate) struct JobCountDelta {
    pub(crate) jobs: [i64; 6],
    pub(crate) last_ended_at: Option<Timestamp>,
    pub(crate) started: i64,
}

#[derive(Default)]
pub(crate) struct TotalsDelta {
    pub(crate) now: [i64; 6],
    pub(crate) ever: [i64; 6],
}

/// Statement that adds to the counts. Each node has a shard, so rows differ.
const ADD_COUNTS: PreparedStatement = PreparedStatement {
    name: "agq_add_counts",
    sql: "WITH job_counted AS (INSERT INTO agq.tallies AS t SELECT n.action_id, $1::smallint, n.a, n.b, n.c, n.d, n.e, n.f, n.at, n.started \
            FROM unnest($2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[], \
            $9::bigint[], $10::bigint[]) AS n (action_id, a, b, c, d, e, f, at, started) \
            ON CONFLICT (action_id, shard) DO UPDATE SET pending = t.pending + EXCLUDED.pending, \
            running = t.running + EXCLUDED.running, completed = t.completed + EXCLUDED.completed, \
            failed = t.failed + EXCLUDED.failed, dead = t.dead + EXCLUDED.dead, cancelled = t.cancelled + EXCLUDED.cancelled, \
            last_ended_at = greatest(t.last_ended_at, EXCLUDED.last_ended_at), started = t.started + EXCLUDED.started), \
        counted AS (INSERT INTO agq.lane_counts AS c SELECT n.lane, $1::smallint, ARRAY[n.a, n.b, n.c, n.d, n.e, n.f, n.g, n.h] \
            FROM unnest($11::integer[], $12::bigint[], $13::bigint[], $14::bigint[], $15::bigint[], $16::bigint[], $17::bigint[], \
            $18::bigint[], $19::bigint[]) AS n (lane, a, b, c, d, e, f, g, h) \
            ON CONFLICT (lane, shard) DO UPDATE SET \
            counts = ARRAY[c.counts[1] + EXCLUDED.counts[1], c.counts[2] + EXCLUDED.counts[2], c.counts[3] + EXCLUDED.counts[3], \
            c.counts[4] + EXCLUDED.counts[4], c.counts[5] + EXCLUDED.counts[5], c.counts[6] + EXCLUDED.counts[6], \
            c.counts[7] + EXCLUDED.counts[7], c.counts[8] + EXCLUDED.counts[8]]) \
        INSERT INTO agq.totals AS t SELECT $1::smallint, $20::bigint[], $21::bigint[] WHERE $22::boolean \
            ON CONFLICT (shard) DO UPDATE SET \
            now = ARRAY[t.now[1] + EXCLUDED.now[1], t.now[2] + EXCLUDED.now[2], t.now[3] + EXCLUDED.now[3], \
            t.now[4] + EXCLUDED.now[4], t.now[5] + EXCLUDED.now[5], t.now[6] + EXCLUDED.now[6]], \
            ever = ARRAY[t.ever[1] + EXCLUDED.ever[1], t.ever[2] + EXCLUDED.ever[2], t.ever[3] + EXCLUDED.ever[3], \
            t.ever[4] + EXCLUDED.ever[4], t.ever[5] + EXCLUDED.ever[5], t.ever[6] + EXCLUDED.ever[6]]",
};

impl Deltas {
    pub(crate) fn counts(&mut self, action_id: &ActionId) -> &mut JobCountDelta {
        if !self.job_counts.contains_key(action_id) {
            self.job_counts.insert(action_id.clone(), JobCountDelta::default());
        }
        self.job_counts.get_mut(action_id).expect("it was put there if it was not")
    }

    pub(crate) fn in_lane(&mut self, job: &Job, by: i64) {
        self.lanes.entry(job.lane).or_default()[job.state as usize] += by;
    }

    pub(crate) fn actions(&self) -> impl Iterator<Item = ActionId> {
        self.job_counts.keys().cloned()
    }

    /// Adds the changes to the counts of `shard`.
    pub(crate) fn add(self, round_trip: &mut RoundTrip, shard: i16) {
        let Self { job_counts, lanes, totals } = self;
        let has_totals = totals.now != [0; 6] || totals.ever != [0; 6];
        if job_counts.is_empty() && lanes.is_empty() && !has_totals {
            return;
        }
        let mut params = vec![Param::Short(shard), Param::texts(job_counts.keys().map(ActionId::as_str))];
        let of = |status: usize| job_counts.values().map(|counts| counts.jobs[status]).collect();
        params.extend((0..6).map(|status| Param::Wides(of(status))));
        let ends = job_counts.values().map(|counts| sql_types::time(counts.last_ended_at));
        params.push(Param::OptionalWides(ends.collect()));
        params.push(Param::Wides(job_counts.values().map(|counts| counts.started).collect()));
        params.push(Param::Integers(lanes.keys().map(|lane| sql_types::lane(*lane)).collect()));
        let in_state = |state: usize| lanes.values().map(|counts| counts[state]).collect();
        params.extend((0..8).map(|state| Param::Wides(in_state(state))));
        let TotalsDelta { now, ever } = totals;
        params.extend([Param::Wides(now.to_vec()), Param::Wides(ever.to_vec()), Param::Flag(has_totals)]);
        round_trip.call(&ADD_COUNTS, params);
    }
}
