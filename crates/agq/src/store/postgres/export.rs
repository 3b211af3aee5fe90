//! Export and import of a PostgreSQL database as records that any store can read. Export and import
//! are one transaction each: an export sees one moment, and an import is done whole or not at all.

use std::{
    collections::{BTreeMap, HashMap},
    io::BufRead,
    time::Duration,
};

use agenix_protocol::{ids::JobId, time::Timestamp};
use agenix_rules::{
    action::{Action, JobCounts},
    job::Job,
    owner::Owner,
    worker::Worker,
};
use anyhow::{Context, bail};
use sqlx::{Error, Result, Row, query};
use tokio::runtime::Runtime;

use crate::store::{
    DocumentKind, KeyEntry, LaneKey, StoreError, StoredJob, StoredPlan, StoredValue, Totals,
    export::{Checksums, ExportRecord, Importer, RecordSink},
    postgres::{
        codec::{decode, encode},
        connection::{ConnectOptions, DatabaseSession, RoundTrip},
        keyspace::{bytes, entry_of},
        lane_cache::{self, lane_of},
        limit_ends::{document_in, documents},
        migrate, options, queries, sql_types,
        txn::{
            bulk_insert::{Deltas, JobRows, put_results},
            locked_rows,
        },
    },
};

/// Time limit of a statement, because one may sort the whole database, and export all its jobs.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);
/// Maximum number of records that are imported together.
const MAX_RECORDS: usize = 2_000;
/// Number of bytes of records at which they are imported, because PostgreSQL refuses a message of
/// 1 GB.
const MAX_BYTES: usize = 8 << 20;

const JOBS: &str = "SELECT record, i.json AS input, r.json AS results FROM (SELECT job_id, record FROM agq.jobs \
     UNION ALL SELECT job_id, record FROM agq.ended) AS j LEFT JOIN agq.inputs AS i USING (job_id) \
     LEFT JOIN agq.results AS r USING (job_id) ORDER BY job_id";
const WORKERS: &str =
    "SELECT record, json FROM agq.workers LEFT JOIN agq.registrations USING (worker_id) ORDER BY worker_id";
const ITEMS: &str = "SELECT k.key, place, item FROM agq.list_items JOIN agq.keys AS k ON sha256(k.key) = key_digest \
     ORDER BY k.key, place";
const SCORES: &str = "SELECT k.key, member, score FROM agq.scores JOIN agq.keys AS k ON sha256(k.key) = key_digest \
     ORDER BY k.key, member";
/// Script that begins an import, and keeps other sessions from writing.
const BEGIN_IMPORT: &str = "BEGIN; LOCK TABLE agq.plans, agq.actions, agq.jobs, agq.ended, agq.workers, agq.keys, agq.totals IN EXCLUSIVE MODE";
const IS_EMPTY: &str = "SELECT NOT EXISTS (SELECT FROM agq.plans) AND NOT EXISTS (SELECT FROM agq.actions) \
     AND NOT EXISTS (SELECT FROM agq.workers) AND NOT EXISTS (SELECT FROM agq.keys) \
     AND NOT EXISTS (SELECT FROM agq.notes) AND NOT EXISTS (SELECT FROM agq.paused)";

pub(crate) fn export(url: &str, sink: &mut RecordSink<'_>) -> anyhow::Result<()> {
    let (session, place) = open_session(url, false)?;
    session.script("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")?;
    let sought = session.row(query("SELECT to_regclass('agq.plans') IS NOT NULL"))?;
    if !sought.map_or(Ok(false), |row| row.try_get(0))? {
        bail!("there are no tables of agq in {place}");
    }
    export_all(&session, sink)
}

/// Imports records into a database, which stays empty on an error. Returns the checksums of the
/// records.
pub(crate) fn import(url: &str, from: &mut Importer<impl BufRead>) -> anyhow::Result<Checksums> {
    Runtime::new()?.block_on(migrate(url))?;
    let (session, place) = open_session(url, true)?;
    let session = &session;
    session.script(BEGIN_IMPORT)?;
    let is_empty = session.row(query(IS_EMPTY))?.ok_or(Error::RowNotFound)?;
    if !is_empty.try_get::<bool, _>(0)? {
        bail!("{place} is not empty, and what is in it is not overwritten: make another database");
    }
    session.script("DELETE FROM agq.totals; DELETE FROM agq.limit_ends")?;
    let mut buffer = ImportBuffer::default();
    while let Some(record) = from.take()? {
        buffer.put(session, record, from.line_bytes())?;
    }
    buffer.write(session)?;
    buffer.set_sequences(session)?;
    let sums = from.verify(|sink| export_all(session, sink))?;
    session.script("COMMIT")?;
    // The planner knows the numbers of rows at once, not only after the first autovacuum.
    session.script("ANALYZE agq.jobs, agq.ended, agq.inputs, agq.results, agq.keys")?;
    Ok(sums)
}

/// Opens a session, which rolls back when dropped. Returns also the place, for messages.
fn open_session(url: &str, writes: bool) -> anyhow::Result<(DatabaseSession, String)> {
    let (options, place) = options(url)?;
    let access = ConnectOptions::new(options, None);
    let connecting = async { if writes { access.connect().await } else { access.connect_to_read().await } };
    let session = DatabaseSession::connect(connecting, ANSWER_TIMEOUT).map_err(StoreError::from);
    Ok((session.with_context(|| format!("cannot use {place}"))?, place))
}

fn export_all(session: &DatabaseSession, sink: &mut RecordSink<'_>) -> anyhow::Result<()> {
    session.walk(
        "SELECT plan_id, json, created_at, owner, envelope FROM agq.plans ORDER BY plan_id",
        |row| {
            let plan_id = row.try_get::<String, _>(0)?.parse()?;
            let created_at = Timestamp(sql_types::count(row.try_get(2)?));
            let (owner, order) = (queries::owner_in(row, 3)?, row.try_get(4)?);
            sink(ExportRecord::Plan(StoredPlan { plan_id, json: row.try_get(1)?, created_at, owner, order }))
        },
    )?;
    session.walk(queries::ALL_ACTIONS, |row| {
        let (action, counts) = queries::action_of(row)?;
        sink(ExportRecord::Action { action: Box::new(action), counts })
    })?;
    export_jobs(session, sink)?;
    session.walk("SELECT queue FROM agq.paused ORDER BY queue", |row| {
        sink(ExportRecord::Paused { queue: row.try_get(0)? })
    })?;
    session.walk(WORKERS, |row| {
        let worker: Worker = decode(row.try_get(0)?)?;
        sink(ExportRecord::Worker { worker, registration: row.try_get(1)? })
    })?;
    export_keys(session, sink)?;
    session.walk(documents!("ORDER BY kind, id"), |row| {
        sink(ExportRecord::Note { kind: row.try_get(0)?, id: row.try_get(1)?, json: document_in(row)? })
    })?;
    let totals = session.row(query(queries::TOTALS))?;
    let totals = totals.as_ref().map_or(Ok(Totals::default()), queries::totals_of)?;
    if totals == Totals::default() { Ok(()) } else { sink(ExportRecord::Totals(totals)) }
}

fn export_jobs(session: &DatabaseSession, sink: &mut RecordSink<'_>) -> anyhow::Result<()> {
    let lanes = session.rows(query("SELECT lane, queue, needs FROM agq.lanes"))?;
    let lanes: Result<HashMap<i32, LaneKey>> = lanes.iter().map(lane_of).collect();
    let lanes = lanes?;
    session.walk(JOBS, |row| {
        let mut job: Job = decode(row.try_get("record")?)?;
        let lane =
            lanes.get(&sql_types::lane(job.lane)).with_context(|| format!("{} has no lane", job.job_id))?;
        job.lane = 0;
        let (queue, needs) = (lane.queue.clone(), lane.needs.clone());
        let input = row.try_get::<Option<String>, _>("input")?.unwrap_or_default();
        sink(ExportRecord::Job(Box::new(StoredJob {
            job,
            queue,
            needs,
            input,
            results: row.try_get("results")?,
        })))
    })
}

fn export_keys(session: &DatabaseSession, sink: &mut RecordSink<'_>) -> anyhow::Result<()> {
    let keys = "SELECT key, number, text, head, tail, members, expires_at FROM agq.keys ORDER BY key";
    session.walk(keys, |row| {
        let KeyEntry { content, expires_at } = entry_of(row)?;
        let number = sql_types::count(row.try_get("number")?);
        let expires_at_ms = expires_at.map(|at| at.0);
        sink(ExportRecord::Key { key: bytes(row, 0)?, number, content, expires_at_ms })
    })?;
    session.walk(ITEMS, |row| {
        sink(ExportRecord::Item { key: bytes(row, 0)?, place: row.try_get(1)?, item: bytes(row, 2)? })
    })?;
    session.walk(SCORES, |row| {
        let score = row.try_get::<f64, _>(2)?.to_string();
        sink(ExportRecord::Score { key: bytes(row, 0)?, member: bytes(row, 1)?, score })
    })
}

#[derive(Default)]
struct ImportBuffer {
    /// Number of records since the last call of `write`, and their bytes.
    count: usize,
    bytes: usize,
    lanes: HashMap<LaneKey, u32>,
    last_turn: i64,
    last_key: i64,
    jobs: JobRows,
    ended: JobRows,
    counts: Deltas,
    inputs: (Vec<String>, Vec<String>),
    results: BTreeMap<JobId, String>,
    keys: KeyRows,
    items: (Vec<Vec<u8>>, Vec<i64>, Vec<Vec<u8>>),
    scores: (Vec<Vec<u8>>, Vec<Vec<u8>>, Vec<f64>),
}

/// Rows of keys, one vector for each column.
#[derive(Default)]
struct KeyRows {
    key: Vec<Vec<u8>>,
    number: Vec<i64>,
    text: Vec<Option<Vec<u8>>>,
    head: Vec<Option<i64>>,
    tail: Vec<Option<i64>>,
    members: Vec<Option<i64>>,
    expires_at: Vec<Option<i64>>,
}

impl ImportBuffer {
    /// Adds a record of a number of bytes. Writes all records once there are enough.
    fn put(&mut self, session: &DatabaseSession, record: ExportRecord, bytes: usize) -> anyhow::Result<()> {
        match record {
            ExportRecord::Plan(plan) => put_plan(session, &plan)?,
            ExportRecord::Action { action, counts } => put_action(session, &action, &counts)?,
            ExportRecord::Job(stored) => self.put_job(session, *stored)?,
            ExportRecord::Paused { queue } => {
                session.run(query("INSERT INTO agq.paused (queue) VALUES ($1)").bind(queue))?;
            }
            ExportRecord::Worker { worker, registration } => put_worker(session, &worker, registration)?,
            ExportRecord::Key { key, number, content, expires_at_ms } => {
                self.last_key = self.last_key.max(sql_types::wide(number));
                self.keys.push(&key, number, content, expires_at_ms);
            }
            ExportRecord::Item { key, place, item } => {
                self.items.0.push(key.into());
                self.items.1.push(place);
                self.items.2.push(item.into());
            }
            ExportRecord::Score { key, member, score } => {
                self.scores.0.push(key.into());
                self.scores.1.push(member.into());
                self.scores.2.push(score.parse().with_context(|| format!("{score} is no score"))?);
            }
            ExportRecord::Note { kind, id, json } => {
                let kind = DocumentKind::parse(&kind)
                    .with_context(|| format!("{kind} is not a known kind of document"))?;
                locked_rows::put(session, kind, (vec![id], vec![json]))?;
            }
            ExportRecord::Totals(totals) => put_totals(session, &totals)?,
        }
        self.count += 1;
        self.bytes += bytes;
        if self.count >= MAX_RECORDS || self.bytes >= MAX_BYTES {
            self.write(session)?;
        }
        Ok(())
    }

    fn put_job(&mut self, session: &DatabaseSession, stored: StoredJob) -> Result<()> {
        let StoredJob { mut job, queue, needs, input, results } = stored;
        job.lane = self.lane(session, LaneKey { queue, needs })?;
        self.last_turn = self.last_turn.max(sql_types::wide(job.seq));
        self.inputs.0.push(job.job_id.to_string());
        self.inputs.1.push(input);
        if let Some(results) = results {
            self.results.insert(job.job_id.clone(), results);
        }
        self.counts.in_lane(&job, 1);
        let rows = if job.is_ended() { &mut self.ended } else { &mut self.jobs };
        rows.push(&job)
    }

    fn lane(&mut self, session: &DatabaseSession, key: LaneKey) -> Result<u32> {
        if let Some(number) = self.lanes.get(&key) {
            return Ok(*number);
        }
        let number = lane_cache::make(session, &key)?;
        self.lanes.insert(key, number);
        Ok(number)
    }

    fn write(&mut self, session: &DatabaseSession) -> Result<()> {
        use std::mem::take;
        (self.count, self.bytes) = (0, 0);
        let mut round_trip = RoundTrip::default();
        take(&mut self.jobs).insert(&mut round_trip, take(&mut self.inputs));
        take(&mut self.ended).end(&mut round_trip);
        put_results(&mut round_trip, take(&mut self.results));
        take(&mut self.counts).add(&mut round_trip, 0);
        session.send(round_trip).map_err(|failure| failure.error)?;
        take(&mut self.keys).insert(session)?;
        let (key, place, item) = take(&mut self.items);
        let sql = "INSERT INTO agq.list_items (key_digest, place, item) \
             SELECT sha256(n.key), n.place, n.item FROM unnest($1::bytea[], $2::bigint[], $3::bytea[]) AS n (key, place, item)";
        session.run(query(sql).bind(key).bind(place).bind(item))?;
        let (key, member, score) = take(&mut self.scores);
        let sql = "INSERT INTO agq.scores (key_digest, member, score) SELECT sha256(n.key), n.member, n.score \
             FROM unnest($1::bytea[], $2::bytea[], $3::double precision[]) AS n (key, member, score)";
        session.run(query(sql).bind(key).bind(member).bind(score)).map(drop)
    }

    /// Sets the sequences, so that later jobs and keys get numbers above the imported ones.
    fn set_sequences(&self, session: &DatabaseSession) -> Result<()> {
        let sql = "SELECT setval('agq.turns', greatest($1, 1)), setval('agq.key_numbers', greatest($2, 1))";
        session.run(query(sql).bind(self.last_turn).bind(self.last_key)).map(drop)
    }
}

impl KeyRows {
    fn push(&mut self, key: &[u8], number: u64, content: StoredValue, expires_at_ms: Option<u64>) {
        let (text, head, tail, members) = match content {
            StoredValue::Text(text) => (Some(text.into()), None, None, None),
            StoredValue::List { head, tail } => (None, Some(head), Some(tail), None),
            StoredValue::Sorted { members } => (None, None, None, Some(sql_types::wide(members))),
        };
        self.key.push(key.to_vec());
        self.number.push(sql_types::wide(number));
        self.text.push(text);
        self.head.push(head);
        self.tail.push(tail);
        self.members.push(members);
        self.expires_at.push(expires_at_ms.map(sql_types::wide));
    }

    fn insert(self, session: &DatabaseSession) -> Result<()> {
        let sql = "INSERT INTO agq.keys (key, number, text, head, tail, members, expires_at) SELECT * FROM unnest(\
             $1::bytea[], $2::bigint[], $3::bytea[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[])";
        let sql = query(sql).bind(self.key).bind(self.number).bind(self.text).bind(self.head);
        session.run(sql.bind(self.tail).bind(self.members).bind(self.expires_at)).map(drop)
    }
}

fn put_plan(session: &DatabaseSession, plan: &StoredPlan) -> Result<()> {
    let sql =
        "INSERT INTO agq.plans (plan_id, json, created_at, owner, envelope) VALUES ($1, $2, $3, $4, $5)";
    let sql =
        query(sql).bind(plan.plan_id.as_str()).bind(&plan.json).bind(sql_types::wide(plan.created_at.0));
    let sql = sql.bind(plan.owner.as_ref().map(Owner::as_str)).bind(plan.order.as_deref());
    session.run(sql).map(drop)
}

fn put_action(session: &DatabaseSession, action: &Action, counts: &JobCounts) -> Result<()> {
    let sql = query("INSERT INTO agq.actions (action_id, record, owner) VALUES ($1, $2, $3)");
    let sql = sql.bind(action.action_id.as_str()).bind(encode(action)?);
    session.run(sql.bind(action.owner.as_ref().map(Owner::as_str)))?;
    let sql = query(
        "INSERT INTO agq.tallies (action_id, shard, pending, running, completed, failed, dead, cancelled, last_ended_at, \
         started) VALUES ($1, 0, $2, $3, $4, $5, $6, $7, $8, $9)",
    );
    let sql = sql.bind(action.action_id.as_str());
    let sql = counts.jobs.iter().fold(sql, |sql, count| sql.bind(sql_types::wide(*count)));
    let sql = sql.bind(sql_types::time(counts.last_ended_at)).bind(sql_types::wide(counts.started));
    session.run(sql).map(drop)
}

fn put_worker(session: &DatabaseSession, worker: &Worker, registration: Option<String>) -> Result<()> {
    let id = worker.worker_id.as_str();
    let sql = query("INSERT INTO agq.workers (worker_id, record) VALUES ($1, $2)");
    session.run(sql.bind(id).bind(encode(worker)?))?;
    if let Some(registration) = registration {
        let sql = query("INSERT INTO agq.registrations (worker_id, json) VALUES ($1, $2)");
        session.run(sql.bind(id).bind(registration))?;
    }
    Ok(())
}

fn put_totals(session: &DatabaseSession, totals: &Totals) -> Result<()> {
    let sql = query("INSERT INTO agq.totals (shard, now, ever) VALUES (0, $1, $2)");
    let wide = |counts: [u64; 6]| counts.map(sql_types::wide).to_vec();
    session.run(sql.bind(wide(totals.now)).bind(wide(totals.ever))).map(drop)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use e2e::Database;
    use sqlx::{Result, Row, query};
    use tokio::runtime::Runtime;

    use super::{ImportBuffer, MAX_BYTES, migrate, open_session};
    use crate::store::export::ExportRecord;

    #[test]
    fn import_writes_large_records_before_many_wait() {
        let database = Database::new();
        Runtime::new().unwrap().block_on(migrate(&database.url())).unwrap();
        let (session, _place) = open_session(&database.url(), true).unwrap();
        let mut buffer = ImportBuffer::default();
        let mut written_after = |place, bytes| {
            let (key, item) = (Bytes::from_static(b"k"), Bytes::from_static(b"x"));
            buffer.put(&session, ExportRecord::Item { key, place, item }, bytes).unwrap();
            let row = session.row(query("SELECT count(*) FROM agq.list_items")).unwrap().unwrap();
            row.get::<i64, _>(0)
        };
        assert_eq!(written_after(0, MAX_BYTES - 1), 0);
        assert_eq!(written_after(1, 1), 2);
        assert_eq!(written_after(2, MAX_BYTES - 1), 2);
    }

    #[test]
    fn rows_are_passed_on_before_the_last_one_arrives() {
        let database = Database::new();
        let (session, _place) = open_session(&database.url(), false).unwrap();
        let mut passed = Vec::new();
        let walked: Result<()> =
            session.walk("SELECT n, 1 / (3 - n) FROM generate_series(1, 5) AS n", |row| {
                passed.push(row.try_get::<i32, _>(0)?);
                Ok(())
            });
        assert!(walked.is_err(), "the third row divides by zero");
        assert_eq!(passed, [1, 2]);
    }
}
