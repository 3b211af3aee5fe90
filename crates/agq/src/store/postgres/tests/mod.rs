//! Tests of the store on a real PostgreSQL.

mod between_nodes;
mod budgets;
mod connections;
mod limits;
mod long_keys;
mod making;
mod many_lanes;
mod nodes;
mod quantities;
mod records;
mod round_trips;
mod statements;
mod waiting_claims;

use e2e::Database;
use sqlx::{AssertSqlSafe, Row, query, query_scalar, raw_sql};

use crate::store::postgres::{PostgresSettings, PostgresStore, txn::candidates::CANDIDATES};

/// Opens a store on `database` that does not listen to other nodes.
async fn store_on(database: &Database) -> PostgresStore {
    let settings = PostgresSettings { listens: false, ..PostgresSettings::default() };
    PostgresStore::open(&database.url(), settings).await.unwrap()
}

async fn fresh_store() -> (Database, PostgresStore) {
    let database = Database::new();
    let store = store_on(&database).await;
    (database, store)
}

async fn run(store: &PostgresStore, sql: &str) {
    raw_sql(AssertSqlSafe(sql.to_owned())).execute(&store.pool).await.unwrap();
}

/// Inserts a million jobs in three lanes, nine of ten of them ready.
const FILL: &str = "INSERT INTO agq.lanes (queue, needs) SELECT 'ready', convert_to(n::text, 'UTF8') FROM generate_series(1, 3) AS n; \
    INSERT INTO agq.jobs (job_id, action_id, place, plan_id, lane, rank, turn, status, is_ready, created_at, record) \
    SELECT 'job-' || n, 'a', n, 'p', 1 + n % 3, 100, n, 0, n % 10 > 0, 0, '' FROM generate_series(1, 1000000) AS n; \
    INSERT INTO agq.inputs SELECT 'job-' || n, '{}' FROM generate_series(1, 1000000) AS n; \
    INSERT INTO agq.plans VALUES ('p', '{}', 0); ANALYZE";

#[tokio::test(flavor = "multi_thread")]
async fn claim_is_an_index_scan_among_a_million_jobs() {
    let (_database, store) = fresh_store().await;
    raw_sql(FILL).execute(&store.pool).await.unwrap();
    // As at the writer: planned once, for any parameters.
    let mut writers = store.pool.acquire().await.unwrap();
    let prepared = format!(
        "SET plan_cache_mode = force_generic_plan; PREPARE c (integer[], bigint[], smallint[], bigint[]) AS {}",
        CANDIDATES.sql
    );
    raw_sql(AssertSqlSafe(prepared)).execute(&mut *writers).await.unwrap();
    let explained = "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) EXECUTE c ('{1,2,3}', '{8,8,8}', '{1,1,1}', '{1,1,1}')";
    let plan: Vec<String> = raw_sql(explained)
        .fetch_all(&mut *writers)
        .await
        .unwrap()
        .iter()
        .map(|row| row.get::<String, _>(0))
        .collect();
    let plan = plan.join("\n");
    assert!(plan.contains("Index Scan using jobs_ready on jobs j (actual rows=8 loops=3)"), "{plan}");
    assert!(!plan.contains("Seq Scan on jobs"), "{plan}");
    // Without this setting, the estimated cost of the generic plan would cause JIT compilation,
    // which takes longer than the query.
    let jit: String = query_scalar("SHOW jit").fetch_one(&mut *writers).await.unwrap();
    assert_eq!(jit, "off");
    let locked = query(CANDIDATES.sql).bind(vec![1]).bind(vec![1_i64]).bind(vec![100_i16]).bind(vec![1_i64]);
    let locked = locked.fetch_all(&store.pool).await.unwrap();
    assert_eq!(locked.len(), 1);
}
