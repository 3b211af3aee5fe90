//! Statements read only the rows that they need, however many rows there are.

use std::collections::BTreeMap;

use agenix_protocol::{
    ids::{ActionId, JobId},
    request::Page,
};
use agenix_rules::{
    capability::Needs,
    job::{self, Job},
    owner::Owner,
};
use bytes::Bytes;
use e2e::Database;
use sqlx::{AssertSqlSafe, Connection, Error, PgConnection, Row, query, query_scalar, raw_sql};

use crate::store::{
    AckLevel, JobRule, JobStore, StoreAdmin,
    postgres::{
        keyspace::{
            ASCENDING, DESCENDING, ENTRIES, ITEMS, SCORES,
            write_buffer::{REMOVE, REMOVE_MEMBERS, UPDATE},
        },
        pages::{ACTIONS, LABELLED_ACTIONS},
        queries::{LEASED, OVERDUE_KEYS, WAITING},
        ready_lanes::READY_LANES,
        ready_positions::Position,
        tests::making::{NOW, claim, fresh_node, node, plain, submit},
        txn::{
            PgTxn,
            candidates::{CANDIDATES, FIRST},
            locked_rows::MAKE,
            retention::OLDEST,
            unused_lanes::{LANES, LIMITS},
        },
    },
};

/// Returns the plan of a statement, prepared as the writer does: with a generic plan.
async fn plan_of(connection: &mut PgConnection, types: &str, sql: &str, values: &str) -> String {
    let script = format!(
        "SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; SET jit = off; PREPARE s {types} AS {sql}"
    );
    raw_sql(AssertSqlSafe(script)).execute(&mut *connection).await.unwrap();
    let explain = format!("EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) EXECUTE s {values}");
    let rows = raw_sql(AssertSqlSafe(explain)).fetch_all(&mut *connection).await.unwrap();
    raw_sql("DEALLOCATE s").execute(&mut *connection).await.unwrap();
    rows.iter().map(|row| row.get::<String, _>(0)).collect::<Vec<_>>().join("\n")
}

/// Returns the largest number of rows that a step of a plan handled, discarded rows included.
fn most_rows(plan: &str) -> u64 {
    let number = |text: &str| {
        let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
        digits.parse::<u64>().unwrap_or_default()
    };
    let of_step = |line: &str| {
        let rows = line.split_once("actual rows=").map(|(_, rest)| number(rest));
        let loops = line.split_once("loops=").map_or(1, |(_, rest)| number(rest));
        let removed = line.split_once("Removed by Filter: ").map(|(_, rest)| number(rest));
        rows.or(removed).unwrap_or_default() * loops.max(1)
    };
    plan.lines().map(of_step).max().unwrap_or_default()
}

const FILL: &str = "INSERT INTO agq.ended (job_id, action_id, place, plan_id, status, ended_at, created_at, record) \
    SELECT 'e-' || n, 'a', n, 'p', (ARRAY[2, 3, 5])[1 + n % 3], n, n, '' FROM generate_series(1, 100000) AS n; \
    INSERT INTO agq.notes (kind, id, json) SELECT 'limit', n::text, '{}' FROM generate_series(1, 10000) AS n; \
    INSERT INTO agq.lanes (queue, needs) SELECT 'q', convert_to(n::text, 'UTF8') FROM generate_series(1, 10000) AS n; \
    INSERT INTO agq.jobs (job_id, action_id, place, plan_id, lane, rank, turn, status, is_ready, due_at, created_at, record) \
    SELECT 'j-' || n, 'b', n, 'p', 1 + n % 3, 100, n, (n % 2)::smallint, false, n, 0, '' FROM generate_series(1, 50000) AS n; \
    INSERT INTO agq.jobs (job_id, action_id, place, plan_id, lane, rank, turn, status, is_ready, created_at, record) \
    SELECT 'r-' || n, 'c', n, 'p', 4 + n % 3, 100, n, 0, true, 0, '' FROM generate_series(1, 50000) AS n; \
    INSERT INTO agq.lane_counts SELECT n, 0, ARRAY[0, 0, 0, 0, 1, 0, 0, 0]::bigint[] FROM generate_series(1, 10000) AS n";

#[tokio::test(flavor = "multi_thread")]
async fn statements_on_jobs_read_only_the_rows_they_need() {
    let (_database, store) = fresh_node().await;
    // The first round has statistics of empty tables, and the second one has those of the full
    // tables.
    raw_sql("ANALYZE").execute(&store.pool).await.unwrap();
    raw_sql(FILL).execute(&store.pool).await.unwrap();
    let mut connection = store.pool.acquire().await.unwrap();
    for _ in ["old", "new"] {
        let statements = [
            ("(smallint[], bigint)", OLDEST, "('{2,3,5}', 100)", 300),
            ("", READY_LANES, "", 5),
            ("(text, text[], text)", MAKE.sql, "('limit', '{1,2,new}', '{}')", 10),
            ("(bigint, text, bigint)", WAITING, "(1000, '', 100)", 100),
            ("(bigint, text, bigint)", LEASED, "(1000, '', 100)", 100),
            // A lane has eight counts.
            ("(integer, bigint)", LANES, "(500, 1000)", 8_000),
            ("(text, text, bigint)", LIMITS, "('limit', '5', 1000)", 1_000),
        ];
        for (types, sql, values, most) in statements {
            let plan = plan_of(&mut connection, types, sql, values).await;
            assert!(most_rows(&plan) <= most, "{sql}\n{plan}");
        }
        raw_sql("ANALYZE").execute(&mut *connection).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_read_only_the_jobs_they_ask_for() {
    let (_database, store) = fresh_node().await;
    raw_sql("ANALYZE").execute(&store.pool).await.unwrap();
    raw_sql(FILL).execute(&store.pool).await.unwrap();
    let mut connection = store.pool.acquire().await.unwrap();
    // The writer has this setting.
    raw_sql("SET enable_bitmapscan = off").execute(&mut *connection).await.unwrap();
    for _ in ["old", "new"] {
        for statement in [CANDIDATES, FIRST] {
            let types = "(integer[], bigint[], smallint[], bigint[])";
            let values = "('{4,5}', '{3,3}', '{0,100}', '{0,700}')";
            let plan = plan_of(&mut connection, types, statement.sql, values).await;
            assert!(most_rows(&plan) <= 6 && plan.contains("Index"), "{plan}");
        }
        raw_sql("ANALYZE").execute(&mut *connection).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn oldest_snapshot_names_its_session() {
    let (database, store) = fresh_node().await;
    let mut other = PgConnection::connect(&database.url()).await.unwrap();
    let script = "SET application_name TO 'dump'; BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1";
    raw_sql(script).execute(&mut other).await.unwrap();
    let pid: i32 = query_scalar("SELECT pg_backend_pid()").fetch_one(&mut other).await.unwrap();
    // A snapshot of an earlier moment may be in use still.
    let oldest = loop {
        let oldest = store.oldest_snapshot().await.unwrap();
        if let Some(oldest) = oldest.filter(|oldest| oldest.pid == pid) {
            break oldest;
        }
    };
    assert_eq!((oldest.application.as_str(), oldest.user.as_str()), ("dump", "agq"));
    raw_sql("ROLLBACK").execute(&mut other).await.unwrap();
    assert!(store.oldest_snapshot().await.unwrap().is_none_or(|oldest| oldest.pid != pid));
}

/// Returns the number of pages that the candidates of a claim are read from, in lane 1 from a
/// position on.
fn pages_read(batch: &PgTxn<'_>, (rank, turn): Position) -> Result<u64, Error> {
    let sql = format!("EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF, SUMMARY OFF) {}", CANDIDATES.sql);
    let sql = query(AssertSqlSafe(sql)).bind(vec![1]).bind(vec![1_i64]).bind(vec![rank]).bind(vec![turn]);
    let lines = batch.session.rows(sql)?;
    let lines = lines.iter().map(|row| row.try_get(0)).collect::<Result<Vec<String>, Error>>()?;
    // The first line is that of the whole statement.
    let buffers = lines.iter().find(|line| line.contains("Buffers:")).expect("it reads something");
    let words = buffers.split_whitespace().filter_map(|word| word.split_once('='));
    Ok(words
        .filter(|(kind, _)| matches!(*kind, "hit" | "read"))
        .filter_map(|(_, n)| n.parse::<u64>().ok())
        .sum())
}

#[tokio::test(flavor = "multi_thread")]
async fn claim_skips_the_index_entries_of_claimed_jobs_under_an_old_snapshot() {
    let database = Database::new();
    let store = node(&database).await;
    let jobs = (0..6_000).map(|n| plain(&format!("a-{n:04}"))).collect();
    submit(&store, "a", Needs::default(), jobs).await.unwrap();
    let mut other = PgConnection::connect(&database.url()).await.unwrap();
    raw_sql("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1").execute(&mut other).await.unwrap();
    for _ in 0..11 {
        assert_eq!(claim(&store, 500).await.len(), 500);
    }
    let pages = store.write(AckLevel::Applied, |batch| {
        let from = batch.lanes.ready_from(1);
        Ok((pages_read(batch, from)?, pages_read(batch, (i16::MIN, i64::MIN))?))
    });
    let (from_the_position, from_the_beginning) = pages.await.unwrap();
    assert!(from_the_position < 40, "{from_the_position}");
    assert!(from_the_beginning > 100, "the snapshot keeps no index entries: {from_the_beginning}");
    // A job that returns before the position is found.
    let rule: JobRule = Box::new(|job: Option<&Job>| {
        let job = job.expect("it is there");
        Ok(job::given_back(job, job.holder.as_deref().expect("it is claimed"), None, NOW))
    });
    let job_id = JobId::new("a-0007").unwrap();
    assert!(store.decide(&job_id, AckLevel::Durable, None, rule).await.unwrap().unwrap().is_some());
    assert_eq!(claim(&store, 1).await[0].job.job_id, job_id);
}

const FILL_KEYS: &str = "INSERT INTO agq.keys (key, number, text, expires_at) \
    SELECT convert_to('k' || n, 'UTF8'), n, '', n FROM generate_series(1, 50000) AS n; \
    INSERT INTO agq.list_items (key_digest, place, item) SELECT sha256('k1'), n, '' FROM generate_series(1, 50000) AS n; \
    INSERT INTO agq.scores (key_digest, member, score) SELECT sha256('k2'), convert_to('m' || n, 'UTF8'), n % 10 \
    FROM generate_series(1, 50000) AS n";

#[tokio::test(flavor = "multi_thread")]
async fn statements_on_keys_read_only_the_rows_they_need() {
    let (_database, store) = fresh_node().await;
    raw_sql("ANALYZE").execute(&store.pool).await.unwrap();
    raw_sql(FILL_KEYS).execute(&store.pool).await.unwrap();
    let mut connection = store.pool.acquire().await.unwrap();
    let part = "(bytea, float8, boolean, float8, boolean, bigint, bigint)";
    let entries = "(bytea[], bytea[], bigint[], bigint[], bigint[], bigint[])";
    for _ in ["old", "new"] {
        for (types, sql, values) in [
            ("(bytea[])", ENTRIES, "('{k1,k2}')"),
            ("(bytea, bigint, bigint)", ITEMS, "('k1', 100, 110)"),
            ("(bytea, bytea[])", SCORES, "('k2', '{m1,m2}')"),
            (part, ASCENDING, "('k2', '-inf', false, 'inf', false, 5, 10)"),
            (part, DESCENDING, "('k2', '-inf', false, 'inf', false, 5, 10)"),
            ("(bigint, bigint)", OVERDUE_KEYS, "(40000, 10)"),
            (entries, UPDATE, "('{k3}', '{a}', '{NULL}', '{NULL}', '{NULL}', '{9}')"),
            ("(bytea[])", REMOVE, "('{k4,k5}')"),
            ("(bytea, bytea[])", REMOVE_MEMBERS, "('k2', '{m3,m4}')"),
        ] {
            let plan = plan_of(&mut connection, types, sql, values).await;
            assert!(most_rows(&plan) <= 100 && plan.contains("Index"), "{sql}\n{plan}");
        }
        raw_sql("ANALYZE").execute(&mut *connection).await.unwrap();
    }
}

#[test]
fn plan_rows_include_discarded_rows() {
    let plan = "Sort (actual rows=3 loops=1)\n  Rows Removed by Filter: 299900\n  ->  Index Scan (actual rows=1 loops=3)";
    assert_eq!(most_rows(plan), 299_900);
    assert_eq!(most_rows("Limit (actual rows=100 loops=3)"), 300);
}

const FILL_ACTIONS: &str = "INSERT INTO agq.actions (action_id, record, owner) \
    SELECT 'a-' || lpad(n::text, 5, '0'), '', CASE WHEN n % 100 = 0 THEN 'alice' END FROM generate_series(1, 20000) AS n";

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_actions_read_only_the_rows_they_need() {
    let (_database, store) = fresh_node().await;
    raw_sql("ANALYZE").execute(&store.pool).await.unwrap();
    raw_sql(FILL_ACTIONS).execute(&store.pool).await.unwrap();
    let mut connection = store.pool.acquire().await.unwrap();
    let (of_all, of_owner) = ("(text, bigint, bigint)", "(text, bigint, bigint, text)");
    for _ in ["old", "new"] {
        for listing in [ACTIONS, LABELLED_ACTIONS] {
            for (types, sql, values) in [
                (of_all, listing[0], "('a-00500', 20, 10)"),
                (of_owner, listing[1], "('a-00500', 20, 10, 'alice')"),
            ] {
                let plan = plan_of(&mut connection, types, sql, values).await;
                assert!(most_rows(&plan) <= 30 && plan.contains("Index"), "{sql}\n{plan}");
            }
        }
        raw_sql("ANALYZE").execute(&mut *connection).await.unwrap();
    }
    // A page with a pattern is read in several steps.
    let page = |pattern: Option<&'static str>, owner: Option<&str>| {
        let page = Page { pattern: pattern.map(Bytes::from), offset: 15, limit: 2 };
        store.actions(page, BTreeMap::new(), owner.map(|owner| Owner::from(owner.to_owned())))
    };
    let id = |id: &str| ActionId::new(id).unwrap();
    assert_eq!(page(Some("*77"), None).await.unwrap(), [id("a-01577"), id("a-01677")]);
    assert_eq!(page(Some("*700"), Some("alice")).await.unwrap(), [id("a-15700"), id("a-16700")]);
    assert_eq!(page(None, Some("alice")).await.unwrap(), [id("a-01600"), id("a-01700")]);
    assert_eq!(page(Some("a-0000?"), None).await.unwrap(), []);
}
