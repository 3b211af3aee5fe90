//! Faulty records, rules and settings.

use agenix_protocol::{ids::JobId, time::Timestamp};
use agenix_rules::{capability::Needs, job::RuleOutcome};
use e2e::{Database, eventually};
use sqlx::{AssertSqlSafe, Connection, PgConnection, Row, query, query_scalar, raw_sql};

use super::{
    super::{PostgresSettings, PostgresStore, codec::encode, migrate, schema::migrate_first},
    between_nodes::other_session,
    making::{NOW, ack, cancel, claim, fresh_node, node, number, own, plain, submit},
    store_on,
};
use crate::store::{
    AckLevel, AddOutcome, DocumentStore, JobRule, JobStore, Retention, UnusedRecords, WorkerStore,
};

/// Statement that appends a field to the record of a job without an owner, as a later version may
/// do. That version writes the owner, which is the last field of this version, even if it is null.
const APPEND: &str = r"UPDATE agq.jobs SET record = '\xdc00'::bytea ||
    set_byte('\x00'::bytea, 0, get_byte(record, 2) + 2) || substr(record, 4) || '\xc001'::bytea WHERE job_id = $1";

#[tokio::test(flavor = "multi_thread")]
async fn unreadable_job_does_not_stop_its_queue() {
    let (_database, store) = fresh_node().await;
    let jobs = ["a-0", "a-1", "a-2", "a-3"].map(|id| own(id, None, None)).to_vec();
    submit(&store, "a", Needs::default(), jobs).await.unwrap();
    let broken = r"UPDATE agq.jobs SET record = '\xc0' WHERE job_id IN ('a-0', 'a-1')";
    raw_sql(broken).execute(&store.pool).await.unwrap();
    assert_eq!(query(APPEND).bind("a-2").execute(&store.pool).await.unwrap().rows_affected(), 1);
    let claims = claim(&store, 1).await;
    assert_eq!(claims.iter().map(|claim| claim.job.job_id.as_str()).collect::<Vec<_>>(), ["a-2"]);
    // The other decisions of a batch are made.
    let (unreadable, other) = (cancel(&store, "a-0"), cancel(&store, "a-3"));
    assert!(unreadable.await.is_err());
    assert!(other.await.unwrap().unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn nested_record_with_an_extra_field_is_read() {
    let (_database, store) = fresh_node().await;
    submit(&store, "a", Needs::default(), vec![own("a-0", None, None)]).await.unwrap();
    let job_id = JobId::new("a-0").unwrap();
    let before = store.job_record(&job_id).await.unwrap().unwrap();
    // A later version has one field more at the end of what a job of the Open Job Spec has.
    let bytes = encode(&before).unwrap();
    let mut record: Vec<serde_json::Value> = rmp_serde::from_slice(&bytes).unwrap();
    assert_eq!(encode(&record).unwrap(), bytes);
    let ojs: serde_json::Value = rmp_serde::from_slice(&encode(&before.ojs).unwrap()).unwrap();
    let nested = record.iter_mut().find(|field| **field == ojs).unwrap();
    nested.as_array_mut().unwrap().push("new".into());
    let sql = query("UPDATE agq.jobs SET record = $1").bind(encode(&record).unwrap());
    sql.execute(&store.pool).await.unwrap();
    assert_eq!(store.job_record(&job_id).await.unwrap().as_ref(), Some(&before));
    assert_eq!(claim(&store, 1).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn unreadable_workers_and_timers_are_skipped() {
    let (_database, store) = fresh_node().await;
    submit(&store, "a", Needs::default(), vec![plain("a-0"), plain("a-1")]).await.unwrap();
    raw_sql(r"INSERT INTO agq.workers VALUES ('w0', '\xc0')").execute(&store.pool).await.unwrap();
    assert_eq!(store.workers().await.unwrap(), []);
    // The first claimant gets no job, because its worker record is unreadable; the other claimant
    // gets one.
    let claims = claim(&store, 2).await;
    assert_eq!(claims.iter().map(|claim| claim.job.holder.as_deref()).collect::<Vec<_>>(), [Some("w1")]);
    let waiting = r"UPDATE agq.jobs SET due_at = 5000, is_ready = false,
        record = CASE WHEN job_id = 'a-0' THEN '\xc0' ELSE record END";
    raw_sql(waiting).execute(&store.pool).await.unwrap();
    let waits = store.pending_timers(NOW, Box::new(|_| true)).await.unwrap();
    assert_eq!(waits.iter().map(|job| job.job_id.as_str()).collect::<Vec<_>>(), ["a-1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn panicking_rule_fails_only_its_own_write() {
    let (_database, store) = fresh_node().await;
    submit(&store, "a", Needs::default(), vec![plain("a-0"), plain("a-1")]).await.unwrap();
    let decide =
        |id: &str, rule: JobRule| store.decide(&JobId::new(id).unwrap(), AckLevel::Durable, None, rule);
    let before = decide("a-0", Box::new(|_| Ok(RuleOutcome::Unchanged)));
    let panicking = decide("a-0", Box::new(|_| panic!("a rule that panics")));
    let after = decide("a-1", Box::new(|_| Ok(RuleOutcome::Unchanged)));
    assert!(before.await.is_ok() && after.await.is_ok());
    let error = panicking.await.unwrap_err();
    assert!(error.0.contains("a bug in agq"), "{error}");
    // The database takes a moment to end the session that was given up, and a claim passes over
    // what that session has locked.
    let mut claimed = 0;
    while claimed < 2 {
        claimed += claim(&store, 2).await.len();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn writer_overrides_the_default_isolation_level() {
    let (database, store) = fresh_node().await;
    for level in ["repeatable read", "serializable"] {
        let script = format!(
            "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_isolation TO %L', \
             current_database(), '{level}'); END $$"
        );
        raw_sql(AssertSqlSafe(script)).execute(&store.pool).await.unwrap();
        let other = node(&database).await;
        let isolation = other.write(AckLevel::Applied, |batch| {
            let row = batch.session.row(query("SHOW transaction_isolation"))?;
            row.ok_or(sqlx::Error::RowNotFound)?.try_get::<String, _>(0)
        });
        assert_eq!(isolation.await.unwrap(), "read committed");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lane_needs_may_be_longer_than_an_index_entry() {
    let (database, store) = fresh_node().await;
    let tools: Vec<String> = (0..200).map(|_| format!("{:032x}", fastrand::u128(..))).collect();
    let needs = Needs { tools, ..Needs::default() };
    assert_eq!(submit(&store, "a", needs.clone(), vec![plain("a-0")]).await, Ok(AddOutcome::New));
    // The same needs lead to the same lane, even at another node.
    let other = node(&database).await;
    assert_eq!(submit(&other, "b", needs, vec![plain("b-0")]).await, Ok(AddOutcome::New));
    assert_eq!(number(&store, "SELECT count(*) FROM agq.lanes").await, 1);
    assert_eq!(claim(&other, 3).await.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn submissions_do_not_use_up_lane_numbers() {
    let (database, store) = fresh_node().await;
    for n in 0..20 {
        submit(&store, &format!("a{n}"), Needs::default(), vec![plain(&format!("a{n}-0"))]).await.unwrap();
    }
    // Submissions at a node that has not seen the lane yet use up no number either.
    let other = node(&database).await;
    submit(&other, "b", Needs::default(), vec![plain("b-0")]).await.unwrap();
    assert_eq!(number(&store, "SELECT last_value FROM agq.lanes_lane_seq").await, 1);
    // The sequence starts again after the last number, and numbers in use are skipped.
    let fill = "INSERT INTO agq.lanes (lane, queue, needs) OVERRIDING SYSTEM VALUE \
         SELECT n, 'other', convert_to(n::text, 'UTF8') FROM generate_series(2, 5000) AS n; \
         SELECT setval('agq.lanes_lane_seq', 2147483646)";
    raw_sql(fill).execute(&store.pool).await.unwrap();
    for (id, lane) in [("c", i64::from(i32::MAX)), ("d", 5_001)] {
        let needs = Needs { tools: vec![id.into()], ..Needs::default() };
        assert_eq!(submit(&store, id, needs, vec![plain(&format!("{id}-0"))]).await, Ok(AddOutcome::New));
        let sql = query_scalar("SELECT lane::bigint FROM agq.jobs WHERE action_id = $1").bind(id);
        let used: i64 = sql.fetch_one(&store.pool).await.unwrap();
        assert_eq!(used, lane);
    }
    assert_eq!(number(&store, "SELECT count(*) FROM agq.jobs WHERE lane = 1").await, 21);
}

#[tokio::test(flavor = "multi_thread")]
async fn empty_lane_stays_while_its_number_is_among_the_next_ones() {
    let database = Database::new();
    let store = node(&database).await;
    submit(&store, "a", Needs::default(), vec![own("a-0", None, None)]).await.unwrap();
    let claimed = claim(&store, 1).await;
    ack(&store, &claimed[0].job.job_id).await;
    let keep = Retention { ended_since: Timestamp(NOW.0 + 1), dead_since: NOW, count: 0 };
    assert_eq!(store.prune(keep, 100).await.unwrap(), 1);
    for (last, count) in [(i64::from(i32::MAX), 0), (2_000_000_000, 1), (1, 1)] {
        let sql = query("SELECT setval('agq.lanes_lane_seq', $1)").bind(last);
        sql.execute(&store.pool).await.unwrap();
        assert_eq!(store.unused(NOW).await.unwrap().lanes.len(), count, "{last}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unused_lanes_and_limits_are_removed() {
    let database = Database::new();
    let (store, other) = (node(&database).await, node(&database).await);
    for (id, limit) in [("a", "k1"), ("b", "k2")] {
        let jobs = vec![own(&format!("{id}-0"), None, Some(limit))];
        submit(&store, id, Needs::default(), jobs).await.unwrap();
    }
    // Both nodes have both lanes in their caches.
    assert_eq!((claim(&other, 1).await.len(), claim(&store, 1).await.len()), (1, 1));
    for id in ["a-0", "b-0"] {
        ack(&store, &JobId::new(id).unwrap()).await;
    }
    // Lanes of ended jobs stay, because these jobs may run again.
    assert_eq!(store.unused(NOW).await.unwrap(), UnusedRecords::default());
    let keep = Retention { ended_since: Timestamp(NOW.0 + 1), dead_since: NOW, count: 0 };
    assert_eq!(store.prune(keep, 100).await.unwrap(), 2);
    // A lane that gets a job between the query and the removal stays, and so does a limit.
    let unused = store.unused(NOW).await.unwrap();
    assert_eq!(unused.lanes.len(), 2);
    submit(&other, "c", Needs::default(), vec![own("c-0", None, Some("k1"))]).await.unwrap();
    store.forget_unused(unused).await.unwrap();
    assert_eq!(number(&store, "SELECT count(*) FROM agq.lanes").await, 1);
    let unused = store.unused(NOW).await.unwrap();
    assert_eq!(unused.limits.iter().map(|(key, _)| key.as_str()).collect::<Vec<_>>(), ["k2"]);
    store.forget_unused(unused).await.unwrap();
    assert_eq!(number(&store, "SELECT count(*) FROM agq.notes WHERE kind = 'limit'").await, 1);
    // A node that has a removed lane in its cache creates the lane again.
    let jobs = vec![own("d-0", None, Some("k2"))];
    assert_eq!(submit(&other, "d", Needs::default(), jobs).await, Ok(AddOutcome::New));
    assert_eq!(claim(&store, 3).await.len(), 2);
    assert_eq!(store.queue_counts().await.unwrap()["q"], [0, 0, 0, 2, 0, 0, 0, 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn document_of_a_kind_that_another_session_holds_loses_a_removed_job() {
    let (database, store) = fresh_node().await;
    submit(&store, "a", Needs::default(), vec![own("a-0", Some("u"), None)]).await.unwrap();
    let claimed = claim(&store, 1).await;
    ack(&store, &claimed[0].job.job_id).await;
    let hold = "SELECT FROM agq.notes WHERE kind = 'unique' FOR UPDATE";
    let mut other = other_session(&database, hold).await;
    let keep = Retention { ended_since: Timestamp(NOW.0 + 1), dead_since: NOW, count: 0 };
    let pruning = tokio::spawn(store.prune(keep, 100));
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    while number(&store, waits).await == 0 && !pruning.is_finished() {}
    raw_sql("ROLLBACK").execute(&mut other).await.unwrap();
    assert_eq!(pruning.await.unwrap().unwrap(), 1);
    assert_eq!(number(&store, "SELECT count(*) FROM agq.notes WHERE kind = 'unique'").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn migration_moves_ended_jobs_out_of_the_jobs_that_have_not_ended() {
    let database = Database::new();
    let mut connection = PgConnection::connect(&database.url()).await.unwrap();
    migrate_first(11, &mut connection).await.unwrap();
    let jobs = "INSERT INTO agq.jobs (job_id, action_id, place, plan_id, lane, rank, turn, status, is_ready, created_at, record) \
        VALUES ('a-0', 'a', 0, 'p', 1, 100, 1, 0, true, 0, ''), ('a-1', 'a', 1, 'p', 1, 100, 2, 3, false, 0, '')";
    raw_sql(jobs).execute(&mut connection).await.unwrap();
    let store = store_on(&database).await;
    assert_eq!(number(&store, "SELECT count(*) FROM agq.jobs WHERE job_id = 'a-0'").await, 1);
    assert_eq!(number(&store, "SELECT count(*) FROM agq.jobs").await, 1);
    let moved = "SELECT count(*) FROM agq.ended WHERE job_id = 'a-1' AND status = 3 AND ended_at > 0";
    assert_eq!(number(&store, moved).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn grown_tables_are_analyzed() {
    let (database, store) = fresh_node().await;
    raw_sql("ALTER TABLE agq.jobs SET (autovacuum_enabled = off)").execute(&store.pool).await.unwrap();
    let jobs = (0..6_000).map(|n| plain(&format!("a-{n}"))).collect();
    submit(&store, "a", Needs::default(), jobs).await.unwrap();
    let mut psql = database.client("psql");
    psql.args(["-XAtc", "SELECT last_analyze IS NOT NULL FROM pg_stat_user_tables WHERE relname = 'jobs'"]);
    eventually("statistics of jobs", || {
        let answer = psql.output().expect("psql can be started");
        (answer.stdout == b"t\n").then_some(())
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn database_with_another_encoding_is_refused() {
    let database = Database::new();
    let name = format!("l{:016x}", fastrand::u64(..));
    let mut create = database.client("createdb");
    create.args(["--encoding=LATIN1", "--template=template0", "--locale=C", &name]);
    assert!(create.status().unwrap().success());
    let own = database.url();
    let (place, query) = own.split_once('?').unwrap();
    let (server, _) = place.rsplit_once('/').unwrap();
    let url = format!("{server}/{name}?{query}");
    let refused = PostgresStore::open(&url, PostgresSettings::default()).await.err().expect("it is refused");
    let text = format!("{refused:#}");
    assert!(text.contains("LATIN1") && text.contains("createdb --encoding=UTF8"), "{text}");
    assert!(migrate(&url).await.is_err());
}

#[test]
fn append_helper_relies_on_the_header_of_long_arrays() {
    // `APPEND` relies on this header.
    assert_eq!(encode(&vec![0_u8; 26]).unwrap()[..3], [0xdc, 0, 26]);
}

#[tokio::test(flavor = "multi_thread")]
async fn job_that_is_removed_while_it_is_read_is_absent() {
    let (database, store) = fresh_node().await;
    submit(&store, "a", Needs::default(), vec![plain("a-0")]).await.unwrap();
    let job_id = JobId::new("a-0").unwrap();
    assert_eq!(store.job(&job_id).await.unwrap().unwrap().input, "{}");
    let mut other = other_session(&database, "LOCK TABLE agq.inputs").await;
    let removing = async {
        let waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
        while number(&store, waits).await == 0 {}
        let remove = "DELETE FROM agq.jobs; DELETE FROM agq.inputs; COMMIT";
        raw_sql(remove).execute(&mut other).await.unwrap();
    };
    let (read, ()) = futures_util::future::join(store.job(&job_id), removing).await;
    assert_eq!(read.unwrap(), None);
}
