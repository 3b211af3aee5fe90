//! Several nodes at one database, and foreign sessions that lock rows of it.

use std::{sync::Arc, time::Duration};

use agenix_protocol::{
    documents::WorkerRegistration,
    ids::{PlanId, WorkerId},
};
use agenix_rules::{
    capability::Needs,
    limit::Limit,
    worker::{self, Worker},
};
use e2e::{Database, eventually};
use futures_util::{FutureExt, future::join_all};
use sqlx::{Connection, Error, PgConnection, Row, query, query_scalar, raw_sql};
use tokio::task::block_in_place;

use crate::store::{
    AckLevel, DocumentKind, DocumentStore, JobStore, RuleResult, StoreAdmin, StoreFuture, StoredPlan,
    WorkerRule, WorkerStore,
    postgres::{
        PostgresSettings, PostgresStore,
        tests::{
            making::{NOW, ack, cancel, claim, claimants, fresh_node, node, number, own, plain, submit},
            waiting_claims::wait_for_a_job,
        },
        txn::{candidates::ClaimRequest, locked_rows::make},
    },
};

/// Opens a foreign session on the database, and runs `sql` in a transaction that stays open.
pub(super) async fn other_session(database: &Database, sql: &'static str) -> PgConnection {
    let mut connection = PgConnection::connect(&database.url()).await.unwrap();
    raw_sql("BEGIN").execute(&mut connection).await.unwrap();
    raw_sql(sql).execute(&mut connection).await.unwrap();
    connection
}

/// Opens three nodes on a database that checks for deadlocks early. By default, PostgreSQL checks
/// after a second, when the lock timeout of a node has ended the wait already and no deadlock would
/// be counted.
pub(super) async fn three_nodes(database: &Database) -> Vec<Arc<PostgresStore>> {
    let mut connection = PgConnection::connect(&database.url()).await.unwrap();
    let sql = "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET deadlock_timeout = 50', current_database()); END $$";
    raw_sql(sql).execute(&mut connection).await.unwrap();
    let mut nodes = Vec::new();
    for _ in 0..3 {
        nodes.push(Arc::new(node(database).await));
    }
    let mut fresh = PgConnection::connect(&database.url()).await.unwrap();
    let set: String = query_scalar("SHOW deadlock_timeout").fetch_one(&mut fresh).await.unwrap();
    assert_eq!(set, "50ms");
    nodes
}

/// Drops all nodes, and returns the number of deadlocks, which sessions report at their end.
pub(super) async fn deadlocks(database: &Database, nodes: Vec<Arc<PostgresStore>>) -> i64 {
    for node in nodes {
        drop(Arc::into_inner(node).expect("nobody else has it"));
    }
    let mut connection = PgConnection::connect(&database.url()).await.unwrap();
    let sql = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
    query_scalar(sql).fetch_one(&mut connection).await.unwrap()
}

/// Returns the ids of the jobs that `count` claimants get.
async fn got(store: &PostgresStore, count: usize) -> Vec<String> {
    claim(store, count).await.iter().map(|claim| claim.job.job_id.to_string()).collect()
}

async fn work_under_limits(at: usize, node: Arc<PostgresStore>) -> usize {
    let mut done = 0;
    for round in 0..60 {
        // Each round takes the limits in another order.
        let job = |n: usize| {
            let key = format!("k{}", (round * (at + 3) + n * (2 * at + 1)) % 6);
            own(&format!("a{at}-{round}-{n}"), None, Some(&key))
        };
        let jobs = (0..4).map(job).collect();
        submit(&node, &format!("a{at}-{round}"), Needs::default(), jobs).await.unwrap();
        let claims = claim(&node, 4).await;
        // The jobs of a lane have the same limit.
        let active = "SELECT coalesce(max(n), 0) FROM (SELECT count(*) AS n FROM agq.jobs WHERE status = 1 GROUP BY lane) AS l";
        assert!(number(&node, active).await <= 5);
        done += join_all(claims.iter().map(|claim| ack(&node, &claim.job.job_id))).await.len();
    }
    done
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_do_not_deadlock_on_limits() {
    let database = Database::new();
    let nodes = three_nodes(&database).await;
    let all =
        nodes.iter().enumerate().map(|(at, node)| tokio::spawn(work_under_limits(at, Arc::clone(node))));
    let done: usize = join_all(all).await.into_iter().map(Result::unwrap).sum();
    assert!(done > 0);
    for (key, json) in nodes[0].documents(DocumentKind::Limit).await.unwrap() {
        let limit: Limit = serde_json::from_str(&json).unwrap();
        assert_eq!(limit.active, 0, "{key}");
    }
    assert_eq!(deadlocks(&database, nodes).await, 0);
}

async fn add_unique(at: usize, node: Arc<PostgresStore>) {
    for round in 0..60 {
        let job = |n: usize| {
            let kind = format!("u{}", (round * 7 + n * (8 * at + 3)) % 40);
            own(&format!("a{at}-{round}-{n}"), Some(&kind), None)
        };
        let jobs = (0..5).map(job).collect();
        submit(&node, &format!("a{at}-{round}"), Needs::default(), jobs).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_do_not_deadlock_on_unique_kinds() {
    let database = Database::new();
    let nodes = three_nodes(&database).await;
    let all = nodes.iter().enumerate().map(|(at, node)| tokio::spawn(add_unique(at, Arc::clone(node))));
    join_all(all).await.into_iter().for_each(Result::unwrap);
    // Each kind has one job.
    assert_eq!(number(&nodes[0], "SELECT count(*) FROM agq.jobs").await, 40);
    assert_eq!(number(&nodes[0], "SELECT count(*) FROM agq.notes WHERE kind = 'unique'").await, 40);
    assert_eq!(deadlocks(&database, nodes).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_unique_jobs_need_few_locks() {
    let (_database, store) = fresh_node().await;
    let jobs = (0..5_000).map(|n| own(&format!("a-{n}"), Some(&format!("u{n}")), None)).collect();
    submit(&store, "a", Needs::default(), jobs).await.unwrap();
    assert_eq!(number(&store, "SELECT count(*) FROM agq.jobs").await, 5_000);
    let locks = store.write(AckLevel::Applied, |batch| {
        batch.lock_names((0..5_000).map(|n| format!("note unique u{n}")).collect())?;
        let sql = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()";
        batch.session.row(query(sql))?.ok_or(Error::RowNotFound)?.try_get::<i64, _>(0)
    });
    let locks = locks.await.unwrap();
    assert!((2..=1_024).contains(&locks), "{locks}");
}

#[tokio::test(flavor = "multi_thread")]
async fn claim_skips_a_locked_limit() {
    let (database, store) = fresh_node().await;
    let jobs = vec![own("a-0", None, Some("k1")), own("a-1", None, Some("k2"))];
    submit(&store, "a", Needs::default(), jobs).await.unwrap();
    let lock = "SELECT FROM agq.notes WHERE kind = 'limit' AND id = 'k1' FOR UPDATE";
    let mut other = other_session(&database, lock).await;
    assert_eq!(got(&store, 2).await, ["a-1"]);
    // A closed connection may hold its locks for a moment longer.
    raw_sql("ROLLBACK").execute(&mut other).await.unwrap();
    assert_eq!(got(&store, 2).await, ["a-0"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_claimant_gets_a_job_that_another_session_had_locked() {
    let database = Database::new();
    // Adds the plan.
    drop(node(&database).await);
    let poll = Duration::from_millis(20);
    let settings = PostgresSettings { listens: false, poll, ..PostgresSettings::default() };
    let store = Arc::new(PostgresStore::open(&database.url(), settings).await.unwrap());
    submit(&store, "a", Needs::default(), vec![plain("a-0")]).await.unwrap();
    let lock = "SELECT FROM agq.jobs WHERE job_id = 'a-0' FOR UPDATE";
    let mut other = other_session(&database, lock).await;
    assert!(got(&store, 1).await.is_empty());
    store.notifier.set_job_interest(true);
    store.join("", |_, _| {});
    let waiting = wait_for_a_job(&store, 1);
    raw_sql("ROLLBACK").execute(&mut other).await.unwrap();
    block_in_place(|| eventually("the job that was locked", || waiting.is_finished().then_some(())));
    assert_eq!(waiting.await.unwrap(), ["a-0"]);
    assert!(!store.nodes.has_peers());
}

#[tokio::test(flavor = "multi_thread")]
async fn make_limits_does_not_wait_for_existing_limits() {
    let (database, store) = fresh_node().await;
    submit(&store, "a", Needs::default(), vec![own("a-0", None, Some("k1"))]).await.unwrap();
    let change = "UPDATE agq.notes SET json = json WHERE kind = 'limit' AND id = 'k1'";
    let other = other_session(&database, change).await;
    let keys = ["k1", "k2"].map(str::to_owned);
    let made = store
        .write(AckLevel::Applied, move |batch| make::<Limit>(batch.session, DocumentKind::Limit, &keys))
        .await;
    other.close().await.unwrap();
    made.unwrap();
    assert_eq!(number(&store, "SELECT count(*) FROM agq.notes WHERE kind = 'limit'").await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn locked_job_delays_only_its_own_writes() {
    let (database, store) = fresh_node().await;
    let jobs = ["a-0", "a-1", "a-2"].map(plain).to_vec();
    submit(&store, "a", Needs::default(), jobs).await.unwrap();
    let other = other_session(&database, "SELECT FROM agq.jobs WHERE job_id = 'a-0' FOR UPDATE").await;
    // A later write about the same job stays behind the first one, however often it is submitted.
    let (locked, again) = (cancel(&store, "a-0"), cancel(&store, "a-0"));
    assert!(cancel(&store, "a-1").await.unwrap().unwrap().is_some());
    submit(&store, "b", Needs::default(), vec![plain("b-0")]).await.unwrap();
    assert_eq!(got(&store, 3).await, ["a-2", "b-0"]);
    other.close().await.unwrap();
    assert!(locked.await.unwrap().unwrap().is_some());
    // The job had ended by then.
    assert!(again.await.unwrap().is_ok_and(|change| change.is_none()));
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_of_locked_jobs_are_tried_and_not_awaited() {
    let (database, store) = fresh_node().await;
    submit(&store, "a", Needs::default(), ["a-0", "a-1"].map(plain).to_vec()).await.unwrap();
    let other = other_session(&database, "SELECT FROM agq.jobs WHERE job_id = 'a-0' FOR UPDATE").await;
    let (mut locked, free) = (cancel(&store, "a-0"), cancel(&store, "a-1"));
    store.wait_until_tried().expect("other sessions may hold locks").await.unwrap();
    assert!((&mut locked).now_or_never().is_none());
    assert!(free.now_or_never().expect("it is answered").unwrap().unwrap().is_some());
    other.close().await.unwrap();
    assert!(locked.await.unwrap().unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn late_writes_keep_their_order_for_queues_and_plans() {
    let (database, store) = fresh_node().await;
    store.set_paused("q", true).await.unwrap();
    let locks = "SELECT FROM agq.paused FOR UPDATE; SELECT FROM agq.plans FOR UPDATE";
    let other = other_session(&database, locks).await;
    let plan_id = PlanId::new("p").unwrap();
    let (deleted, resumed) = (store.delete_plan(&plan_id, None), store.set_paused("q", false));
    // The queue of the writer is worked off, so both writes have met the locks.
    store.set_paused("other", true).await.unwrap();
    let paused = store.set_paused("q", true);
    let again = StoredPlan::unsigned(plan_id, "{}".into(), NOW);
    let again = store.add_plan(again.into());
    store.set_paused("other", false).await.unwrap();
    other.close().await.unwrap();
    assert!(deleted.await.unwrap().unwrap());
    assert!(again.await.unwrap().unwrap(), "the plan is new");
    resumed.await.unwrap();
    paused.await.unwrap();
    assert_eq!(store.paused().await.unwrap(), ["q"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_are_notified_of_jobs_that_were_locked_and_left() {
    let (_database, store) = fresh_node().await;
    let jobs = vec![own("a-0", None, Some("k1")), own("a-1", None, Some("k2"))];
    submit(&store, "a", Needs::default(), jobs).await.unwrap();
    // The first claim locks the jobs of both limits and takes one, the second claim takes the
    // other one, and the third claim finds nothing.
    for expected in [(1, true), (1, false), (0, false)] {
        let claimed = store.write(AckLevel::Applied, |batch| {
            let claimants = claimants(1);
            let wanting = ClaimRequest { claimant: &claimants[0], now: NOW, start_timeout_ms: 0 };
            let claims = batch.claim(&[wanting])?;
            batch.write()?;
            Ok((claims.into_iter().flatten().count(), batch.has_left))
        });
        assert_eq!(claimed.await.unwrap(), expected);
    }
}

fn register(node: &PostgresStore, connection: &'static str) -> StoreFuture<RuleResult<()>> {
    let worker_id = WorkerId::new("w").unwrap();
    let registration = WorkerRegistration::of(worker_id.clone());
    let rule: WorkerRule = Box::new(move |known: Option<&Worker>| {
        worker::registered(known, &registration, connection, NOW).map(Some)
    });
    node.decide_worker(&worker_id, AckLevel::Durable, None, rule)
}

#[tokio::test(flavor = "multi_thread")]
async fn new_worker_id_is_accepted_by_one_of_two_nodes() {
    let (database, first) = fresh_node().await;
    let second = node(&database).await;
    // Both nodes see that the worker is unknown before one of them can add it.
    let other = other_session(&database, "LOCK TABLE agq.workers IN SHARE MODE").await;
    let answers = [register(&first, "c1"), register(&second, "c2")];
    let waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'agq.workers'::regclass \
         AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    while number(&first, waiting).await < 2 {}
    other.close().await.unwrap();
    let accepted = join_all(answers).await.into_iter().filter(|answer| answer.as_ref().unwrap().is_ok());
    assert_eq!(accepted.count(), 1);
}
