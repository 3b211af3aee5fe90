//! Reads of records. Each is a statement of its own, which sees what is committed when it starts.

use std::collections::BTreeMap;

use agenix_protocol::{
    documents::Status,
    ids::{ActionId, JobId, PlanId, WorkerId},
    request::{Search, Slice},
    time::Timestamp,
};
use agenix_rules::{
    action::{Action, JobCounts},
    job::Job,
    owner::Owner,
    worker::Worker,
};
use sqlx::{Error, Result, Row, postgres::PgRow, query, query_scalar};

use crate::store::{
    DocumentKind, JobFilter, LaneSummary, QueueCounts, Retention, StoredJob, StoredPlan, Totals,
    empty_actions,
    postgres::{
        codec::{decode, or_skip, readable},
        connection::Pool,
        lane_cache::lane_of,
        limit_ends::{document_in, documents},
        sql_types,
    },
};

pub(super) const TOTALS: &str = "SELECT array_agg(now ORDER BY i), array_agg(ever ORDER BY i) FROM \
     (SELECT i, sum(n)::bigint AS now, sum(e)::bigint AS ever FROM agq.totals, unnest(now, ever) WITH ORDINALITY AS s (n, e, i) \
     GROUP BY i) AS sums";

pub(super) fn ids<T, E>(rows: Vec<String>, id: fn(String) -> Result<T, E>) -> Result<Vec<T>>
where
    E: std::error::Error + Send + Sync + 'static,
{
    rows.into_iter().map(|text| id(text).map_err(|error| Error::Decode(Box::new(error)))).collect()
}

pub(super) fn job_ids(rows: Vec<String>) -> Result<Vec<JobId>> {
    ids(rows, JobId::new)
}

pub(super) async fn plan(pool: &Pool, plan_id: PlanId) -> Result<Option<StoredPlan>> {
    let sql = "SELECT json, created_at, owner, envelope FROM agq.plans WHERE plan_id = $1";
    let Some(row) = query(sql).bind(plan_id.as_str()).fetch_optional(pool).await? else { return Ok(None) };
    let created_at = Timestamp(sql_types::count(row.try_get(1)?));
    let (owner, order) = (owner_in(&row, 2)?, row.try_get(3)?);
    Ok(Some(StoredPlan { json: row.try_get(0)?, plan_id, created_at, owner, order }))
}

pub(super) fn owner_in(row: &PgRow, column: usize) -> Result<Option<Owner>> {
    Ok(row.try_get::<Option<String>, _>(column)?.map(Owner::from))
}

/// Query for actions with their job counts over all shards.
macro_rules! counted {
    ($which:literal) => {
        concat!(
            "SELECT record, t.* FROM agq.actions AS a, LATERAL (SELECT coalesce(sum(pending), 0)::bigint, \
             coalesce(sum(running), 0)::bigint, coalesce(sum(completed), 0)::bigint, coalesce(sum(failed), 0)::bigint, \
             coalesce(sum(dead), 0)::bigint, coalesce(sum(cancelled), 0)::bigint, max(last_ended_at), \
             coalesce(sum(started), 0)::bigint \
             FROM agq.tallies WHERE action_id = a.action_id) AS t ",
            $which
        )
    };
}
pub(super) const ACTION: &str = counted!("WHERE a.action_id = $1");
pub(super) const ALL_ACTIONS: &str = counted!("ORDER BY a.action_id");

pub(super) async fn action(pool: &Pool, action_id: ActionId) -> Result<Option<(Action, JobCounts)>> {
    let sql = query(ACTION).bind(action_id.as_str());
    sql.fetch_optional(pool).await?.as_ref().map(action_of).transpose()
}

pub(super) async fn these_actions(pool: &Pool, ids: Vec<ActionId>) -> Result<Vec<(Action, JobCounts)>> {
    let ids: Vec<String> = ids.into_iter().map(|id| id.to_string()).collect();
    let rows = query(counted!("WHERE a.action_id = ANY ($1)")).bind(ids).fetch_all(pool).await?;
    rows.iter().map(action_of).collect()
}

pub(super) fn action_of(row: &PgRow) -> Result<(Action, JobCounts)> {
    let mut counts = JobCounts::default();
    for (at, count) in counts.jobs.iter_mut().enumerate() {
        *count = sql_types::count(row.try_get(1 + at)?);
    }
    counts.last_ended_at = row.try_get::<Option<i64>, _>(7)?.map(|at| Timestamp(sql_types::count(at)));
    counts.started = sql_types::count(row.try_get(8)?);
    Ok((decode(row.try_get(0)?)?, counts))
}

pub(super) async fn jobs_of(
    pool: &Pool,
    action_id: ActionId,
    statuses: Vec<Status>,
    slice: Slice,
) -> Result<Vec<JobId>> {
    // Without statuses, the slice counts inputs, whether or not their jobs are kept. With statuses,
    // the query counts the jobs that are found.
    let (first, end, skip, take) = match statuses.as_slice() {
        [] => (slice.offset, slice.offset.saturating_add(slice.limit), 0, usize::MAX),
        _ => (0, usize::MAX, slice.offset, slice.limit),
    };
    let wanted: Option<Vec<i16>> = Some(statuses)
        .filter(|all| !all.is_empty())
        .map(|all| all.into_iter().map(sql_types::status).collect());
    let sql = "SELECT job_id FROM (SELECT job_id, place, status FROM agq.jobs WHERE action_id = $1 \
         UNION ALL SELECT job_id, place, status FROM agq.ended WHERE action_id = $1) AS j \
         WHERE place >= $2 AND place < $3 AND ($4::smallint[] IS NULL OR status = ANY ($4)) \
         ORDER BY place OFFSET $5 LIMIT $6";
    let sql =
        query_scalar(sql).bind(action_id.as_str()).bind(sql_types::limit(first)).bind(sql_types::limit(end));
    job_ids(sql.bind(wanted).bind(sql_types::limit(skip)).bind(sql_types::limit(take)).fetch_all(pool).await?)
}

const RECORD: &str =
    "SELECT record FROM agq.jobs WHERE job_id = $1 UNION ALL SELECT record FROM agq.ended WHERE job_id = $1";

pub(super) async fn job_record(pool: &Pool, job_id: JobId) -> Result<Option<Job>> {
    let row = query(RECORD).bind(job_id.as_str()).fetch_optional(pool).await?;
    row.map(|row| decode(row.try_get(0)?)).transpose()
}

/// Query for a job with its input and its results, as of one moment.
const STORED_JOB: &str = "SELECT record, (SELECT json FROM agq.inputs WHERE job_id = $1), \
     (SELECT json FROM agq.results WHERE job_id = $1) FROM (SELECT record FROM agq.jobs WHERE job_id = $1 \
     UNION ALL SELECT record FROM agq.ended WHERE job_id = $1) AS j";

pub(super) async fn job(pool: &Pool, job_id: JobId) -> Result<Option<StoredJob>> {
    let row = query(STORED_JOB).bind(job_id.as_str()).fetch_optional(pool).await?;
    let Some(row) = row else { return Ok(None) };
    let job: Job = decode(row.try_get(0)?)?;
    let (input, results) = (row.try_get::<Option<String>, _>(1)?.unwrap_or_default(), row.try_get(2)?);
    // Lanes never change, and a lane that is gone has no job any more.
    let sql = query("SELECT lane, queue, needs FROM agq.lanes WHERE lane = $1");
    let Some(lane) = sql.bind(sql_types::lane(job.lane)).fetch_optional(pool).await? else { return Ok(None) };
    let (_, key) = lane_of(&lane)?;
    Ok(Some(StoredJob { job, queue: key.queue, needs: key.needs, input, results }))
}

/// Query for jobs by conditions. Orders by id, because ids of jobs are in the order of their
/// submission.
macro_rules! sought {
    ($more:literal) => {
        concat!(
            "SELECT job_id FROM (SELECT job_id, status, plan_id, action_id, holder, created_at FROM agq.jobs \
             UNION ALL SELECT job_id, status, plan_id, action_id, holder, created_at FROM agq.ended) AS j \
             WHERE ($1::smallint IS NULL OR status = $1) AND ($2::text IS NULL OR plan_id = $2) \
             AND ($3::text IS NULL OR action_id = $3) AND ($4::text IS NULL OR holder = $4) \
             AND ($5::bigint IS NULL OR created_at >= $5) AND ($6::bigint IS NULL OR created_at < $6) ",
            $more,
            "ORDER BY job_id DESC LIMIT $7"
        )
    };
}
const SOUGHT: &str = sought!("");
const SOUGHT_OF_OWNER: &str =
    sought!("AND action_id IN (SELECT action_id FROM agq.actions WHERE owner = $8) ");

pub(super) async fn search(pool: &Pool, search: Search, owner: Option<Owner>) -> Result<Vec<JobId>> {
    let sql = query_scalar(if owner.is_none() { SOUGHT } else { SOUGHT_OF_OWNER })
        .bind(search.status.map(sql_types::status))
        .bind(search.plan_id.map(|id| id.to_string()))
        .bind(search.action_id.map(|id| id.to_string()))
        .bind(search.worker)
        .bind(sql_types::time(search.since))
        .bind(sql_types::time(search.until))
        .bind(sql_types::limit(search.limit));
    let sql = match owner {
        Some(owner) => sql.bind(owner.to_string()),
        None => sql,
    };
    job_ids(sql.fetch_all(pool).await?)
}

pub(super) async fn peek(pool: &Pool, queue: String, count: usize) -> Result<Vec<JobId>> {
    let sql = "SELECT job_id FROM agq.lanes AS l CROSS JOIN LATERAL (SELECT job_id, rank, turn FROM agq.jobs AS j \
         WHERE j.lane = l.lane AND is_ready ORDER BY rank, turn LIMIT $2) AS c WHERE l.queue = $1 ORDER BY rank, turn LIMIT $2";
    job_ids(query_scalar(sql).bind(queue).bind(sql_types::limit(count)).fetch_all(pool).await?)
}

pub(super) async fn position(pool: &Pool, job: Job, limit: usize) -> Result<u64> {
    let sql = "SELECT count(*) FROM (SELECT FROM agq.jobs WHERE lane = $1 AND is_ready AND (rank, turn) < ($2, $3) LIMIT $4) AS a";
    let sql = query_scalar::<_, i64>(sql)
        .bind(sql_types::lane(job.lane))
        .bind(sql_types::rank(&job))
        .bind(sql_types::wide(job.seq))
        .bind(sql_types::limit(limit));
    Ok(sql_types::count(sql.fetch_one(pool).await?))
}

/// Returns true if an ended job can be pruned. Reads the first job of each status.
pub(super) async fn is_prunable(pool: &Pool, keep: Retention) -> Result<bool> {
    let sql = "SELECT EXISTS (SELECT FROM agq.ended WHERE status = $1 AND ended_at < $2) \
         OR EXISTS (SELECT FROM unnest($3::smallint[]) AS s (status) \
         WHERE EXISTS (SELECT FROM agq.ended AS e WHERE e.status = s.status AND e.ended_at < $4)) \
         OR EXISTS (SELECT FROM agq.notes WHERE kind = $5 AND id < $6)";
    let others = [Status::Completed, Status::Failed, Status::Cancelled].map(sql_types::status);
    let sql = query_scalar(sql)
        .bind(sql_types::status(Status::Dead))
        .bind(sql_types::wide(keep.dead_since.0))
        .bind(others.to_vec())
        .bind(sql_types::wide(keep.ended_since.0))
        .bind(DocumentKind::EmptyAction.as_str())
        .bind(empty_actions::marks_from(keep.ended_since));
    Ok(sql.fetch_one(pool).await? || keep.count > 0 && totals(pool).await?.kept() > keep.count)
}

pub(super) async fn totals(pool: &Pool) -> Result<Totals> {
    totals_of(&query(TOTALS).fetch_one(pool).await?)
}

pub(super) fn totals_of(row: &PgRow) -> Result<Totals> {
    let counts = |at: usize| -> Result<[u64; 6]> {
        let sums: Option<Vec<i64>> = row.try_get(at)?;
        let mut sums = sums.unwrap_or_default().into_iter().map(sql_types::count);
        Ok(std::array::from_fn(|_| sums.next().unwrap_or_default()))
    };
    Ok(Totals { now: counts(0)?, ever: counts(1)? })
}

pub(super) async fn due(pool: &Pool, now: Timestamp, limit: usize) -> Result<Vec<JobId>> {
    let sql = "SELECT job_id FROM ((SELECT due_at, job_id FROM agq.jobs WHERE due_at <= $1 AND status = 0 \
         ORDER BY due_at, job_id LIMIT $2) UNION ALL (SELECT due_at, job_id FROM agq.jobs WHERE due_at <= $1 AND status = 1 \
         ORDER BY due_at, job_id LIMIT $2)) AS d ORDER BY due_at, job_id LIMIT $2";
    job_ids(
        query_scalar(sql).bind(sql_types::wide(now.0)).bind(sql_types::limit(limit)).fetch_all(pool).await?,
    )
}

const TIMERS_PER_QUERY: usize = 1_000;
/// Query for jobs that wait for a time, in order of that time, after a given time and job.
pub(super) const WAITING: &str = "SELECT record, due_at, job_id FROM agq.jobs \
     WHERE due_at IS NOT NULL AND status = 0 AND (due_at, job_id) > ($1, $2) ORDER BY due_at, job_id LIMIT $3";
pub(super) const LEASED: &str = "SELECT record, due_at, job_id FROM agq.jobs \
     WHERE due_at IS NOT NULL AND status = 1 AND (due_at, job_id) > ($1, $2) ORDER BY due_at, job_id LIMIT $3";

/// Reads in steps, so that the rejected jobs are never in memory all together.
pub(super) async fn pending_timers(pool: &Pool, now: Timestamp, wanted: JobFilter) -> Result<Vec<Job>> {
    let mut jobs: Vec<Job> = Vec::new();
    for sql in [WAITING, LEASED] {
        let mut last = (sql_types::wide(now.0), String::new());
        loop {
            let step = query(sql).bind(last.0).bind(&last.1).bind(sql_types::limit(TIMERS_PER_QUERY));
            let rows = step.fetch_all(pool).await?;
            jobs.extend(readable(&rows).into_iter().filter(|job| wanted(job)));
            match rows.last().filter(|_| rows.len() == TIMERS_PER_QUERY) {
                Some(row) => last = (row.try_get(1)?, row.try_get(2)?),
                None => break,
            }
        }
    }
    Ok(jobs)
}

pub(super) async fn scheduled(pool: &Pool) -> Result<(u64, Option<Timestamp>)> {
    let sql =
        "SELECT count(*), min(due_at) FROM agq.jobs WHERE due_at IS NOT NULL AND status = 0 AND NOT is_ready";
    let row = query(sql).fetch_one(pool).await?;
    let first: Option<i64> = row.try_get(1)?;
    Ok((sql_types::count(row.try_get(0)?), first.map(|at| Timestamp(sql_types::count(at)))))
}

pub(super) async fn queue_counts(pool: &Pool) -> Result<QueueCounts> {
    let sql = "SELECT queue, counts FROM agq.lane_counts JOIN agq.lanes USING (lane)";
    let mut sums: BTreeMap<String, [i64; 8]> = BTreeMap::new();
    for row in query(sql).fetch_all(pool).await? {
        let counts: Vec<i64> = row.try_get("counts")?;
        let sum = sums.entry(row.try_get("queue")?).or_default();
        sum.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }
    let counts = sums.into_iter().map(|(queue, sum)| (queue, sum.map(sql_types::count)));
    Ok(counts.filter(|(_, counts)| *counts != [0; 8]).collect())
}

pub(super) async fn documents(pool: &Pool, kind: DocumentKind) -> Result<Vec<(String, String)>> {
    documents_after(pool, kind, "", usize::MAX).await
}

/// No document has an empty id.
pub(super) async fn documents_after(
    pool: &Pool,
    kind: DocumentKind,
    after: &str,
    limit: usize,
) -> Result<Vec<(String, String)>> {
    let sql = query(documents!("WHERE kind = $1 AND id > $2 ORDER BY id LIMIT $3"));
    let rows = sql.bind(kind.as_str()).bind(after).bind(sql_types::limit(limit)).fetch_all(pool).await?;
    rows.iter().map(|row| Ok((row.try_get("id")?, document_in(row)?))).collect()
}

pub(super) async fn lanes(pool: &Pool) -> Result<Vec<LaneSummary>> {
    let sql = "SELECT lane, queue, needs, count(*) AS length, min(created_at) AS first, max(created_at) AS last \
         FROM agq.jobs JOIN agq.lanes USING (lane) WHERE is_ready GROUP BY lane, queue, needs ORDER BY lane";
    let lane = |row: &PgRow| {
        let (_, key) = lane_of(row)?;
        let at = |name: &str| Ok::<_, Error>(Timestamp(sql_types::count(row.try_get(name)?)));
        let length = sql_types::count(row.try_get("length")?);
        Ok(LaneSummary { queue: key.queue, needs: key.needs, length, span: (at("first")?, at("last")?) })
    };
    query(sql).fetch_all(pool).await?.iter().map(lane).collect()
}

pub(super) async fn worker(pool: &Pool, worker_id: WorkerId) -> Result<Option<Worker>> {
    let sql = "SELECT record FROM agq.workers WHERE worker_id = $1";
    let row = query(sql).bind(worker_id.as_str()).fetch_optional(pool).await?;
    row.map(|row| decode(row.try_get(0)?)).transpose()
}

pub(super) async fn workers(pool: &Pool) -> Result<Vec<(Worker, u64)>> {
    let sql = "SELECT record, (SELECT count(*) FROM agq.jobs WHERE holder = worker_id AND status = 1) \
         FROM agq.workers ORDER BY worker_id";
    let rows = query(sql).fetch_all(pool).await?;
    let mut workers = Vec::with_capacity(rows.len());
    for row in rows {
        if let Some(worker) = or_skip::<Worker>(decode(row.try_get(0)?)) {
            workers.push((worker, sql_types::count(row.try_get(1)?)));
        }
    }
    Ok(workers)
}

/// Query for keys that have expired. The index has the beginnings of keys in order.
pub(super) const OVERDUE_KEYS: &str =
    "SELECT key FROM agq.keys WHERE expires_at <= $1 ORDER BY expires_at, substr(key, 1, 1024), key LIMIT $2";

pub(super) async fn overdue_keys(pool: &Pool, now: Timestamp, limit: usize) -> Result<Vec<bytes::Bytes>> {
    let sql =
        query_scalar::<_, Vec<u8>>(OVERDUE_KEYS).bind(sql_types::wide(now.0)).bind(sql_types::limit(limit));
    Ok(sql.fetch_all(pool).await?.into_iter().map(Into::into).collect())
}
