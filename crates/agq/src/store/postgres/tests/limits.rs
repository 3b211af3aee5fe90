//! Limits of jobs: submissions and ends of jobs lock none, and the count of running jobs is exact.

use std::collections::BTreeSet;

use agenix_protocol::time::Timestamp;
use agenix_rules::{capability::Needs, limit::Limit};
use e2e::Database;
use sqlx::raw_sql;

use crate::store::{
    AddOutcome, DocumentKind, DocumentStore, JobStore, Retention,
    postgres::{
        PostgresStore,
        tests::{
            between_nodes::other_session,
            making::{NOW, ack, claim, fresh_node, node, number, own, submit},
        },
    },
};

async fn limit(store: &PostgresStore, key: &str) -> Option<Limit> {
    let json = store.document(DocumentKind::Limit, key).await.unwrap()?;
    Some(serde_json::from_str(&json).unwrap())
}

/// Returns the number of running jobs of a limit, from each read that shows it.
async fn active(store: &PostgresStore, key: &str) -> u64 {
    let active = limit(store, key).await.unwrap().active;
    let all = store.documents(DocumentKind::Limit).await.unwrap();
    let listed = all.into_iter().find(|(id, _)| id == key).unwrap().1;
    assert_eq!(serde_json::from_str::<Limit>(&listed).unwrap().active, active);
    active
}

#[tokio::test(flavor = "multi_thread")]
async fn submissions_and_ends_do_not_wait_for_a_locked_limit() {
    let (database, store) = fresh_node().await;
    let jobs = (0..6).map(|n| own(&format!("a-{n}"), None, Some("k1"))).collect();
    submit(&store, "a", Needs::default(), jobs).await.unwrap();
    // The limit lets five jobs run.
    let claims = claim(&store, 6).await;
    assert_eq!((claims.len(), active(&store, "k1").await), (5, 5));
    let lock = "SELECT FROM agq.notes WHERE kind = 'limit' AND id = 'k1' FOR UPDATE";
    let other = other_session(&database, lock).await;
    for claim in &claims[..2] {
        ack(&store, &claim.job.job_id).await;
    }
    submit(&store, "b", Needs::default(), vec![own("b-0", Some("u"), Some("k1"))]).await.unwrap();
    assert_eq!(active(&store, "k1").await, 3);
    assert_eq!(claim(&store, 3).await.len(), 0, "another session holds the limit");
    drop(other);
    // The closed session may hold its lock for a moment longer.
    let mut again = Vec::new();
    while again.len() < 2 {
        again.extend(claim(&store, 3).await);
    }
    assert_eq!((again.len(), active(&store, "k1").await), (2, 5));
}

#[tokio::test(flavor = "multi_thread")]
async fn running_jobs_are_counted_over_the_ends_of_all_nodes() {
    let database = Database::new();
    let nodes = [node(&database).await, node(&database).await];
    for round in 0..20 {
        let jobs = (0..5).map(|n| own(&format!("a{round}-{n}"), None, Some("k1"))).collect();
        submit(&nodes[round % 2], &format!("a{round}"), Needs::default(), jobs).await.unwrap();
        let mut claims = claim(&nodes[0], 3).await;
        claims.extend(claim(&nodes[1], 3).await);
        assert_eq!((claims.len(), active(&nodes[0], "k1").await), (5, 5));
        for (n, claim) in claims.iter().enumerate() {
            ack(&nodes[(n + round) % 2], &claim.job.job_id).await;
        }
        assert_eq!(active(&nodes[1], "k1").await, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn limit_of_a_lane_that_was_created_meanwhile_stays() {
    let (_database, store) = fresh_node().await;
    submit(&store, "a", Needs::default(), vec![own("a-0", None, Some("k1"))]).await.unwrap();
    ack(&store, &claim(&store, 1).await[0].job.job_id).await;
    let keep = Retention { ended_since: Timestamp(NOW.0 + 1), dead_since: NOW, count: 0 };
    assert_eq!(store.prune(keep, 100).await.unwrap(), 1);
    let unused = store.unused(NOW).await.unwrap();
    store.forget_unused(unused).await.unwrap();
    assert_eq!(number(&store, "SELECT count(*) FROM agq.limit_ends").await, 1);
    let unused = store.unused(NOW).await.unwrap();
    assert_eq!(unused.limits.len(), 1);
    // The job has the terms that the limit has already.
    submit(&store, "b", Needs::default(), vec![own("b-0", None, Some("k1"))]).await.unwrap();
    store.forget_unused(unused).await.unwrap();
    assert_eq!(limit(&store, "k1").await.unwrap().terms.concurrency, Some(5));
    // Without jobs the limit is removed, with its ends.
    ack(&store, &claim(&store, 1).await[0].job.job_id).await;
    assert_eq!(store.prune(keep, 100).await.unwrap(), 1);
    for _ in ["the lane", "the limit"] {
        let unused = store.unused(NOW).await.unwrap();
        store.forget_unused(unused).await.unwrap();
    }
    assert_eq!(limit(&store, "k1").await, None);
    assert_eq!(number(&store, "SELECT count(*) FROM agq.limit_ends").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn action_that_another_node_adds_meanwhile_is_found() {
    let (database, store) = fresh_node().await;
    submit(&store, "x", Needs::default(), vec![own("x-0", None, None)]).await.unwrap();
    let insert = "INSERT INTO agq.actions (action_id, record) SELECT 'a', record FROM agq.actions WHERE action_id = 'x'";
    let mut other = other_session(&database, insert).await;
    let adding = submit(&store, "a", Needs::default(), vec![own("a-0", Some("u"), None)]);
    let committing = async {
        let waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
        while number(&store, waits).await == 0 {}
        raw_sql("COMMIT").execute(&mut other).await.unwrap();
    };
    let (added, ()) = futures_util::future::join(adding, committing).await;
    assert_eq!(added, Ok(AddOutcome::Same), "it has the record of the other one");
    assert_eq!(number(&store, "SELECT count(*) FROM agq.jobs").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn unused_lanes_and_limits_are_sought_in_steps() {
    let (_database, store) = fresh_node().await;
    // This lane has a job, and names one of the limits.
    submit(&store, "a", Needs::default(), vec![own("a-0", None, Some("k0500"))]).await.unwrap();
    let fill = "INSERT INTO agq.lanes (queue, needs) SELECT 'other', convert_to(n::text, 'UTF8') FROM generate_series(1, 1500) AS n; \
         INSERT INTO agq.notes (kind, id, json) SELECT 'limit', 'k' || lpad(n::text, 4, '0'), json \
         FROM agq.notes, generate_series(1, 2500) AS n WHERE kind = 'limit' AND id = 'k0500' AND n <> 500";
    raw_sql(fill).execute(&store.pool).await.unwrap();
    let (mut lanes, mut limits) = (BTreeSet::new(), BTreeSet::new());
    for _ in 0..6 {
        let unused = store.unused(NOW).await.unwrap();
        assert!(unused.lanes.len() <= 1_000 && unused.limits.len() <= 1_000);
        lanes.extend(unused.lanes);
        limits.extend(unused.limits.into_iter().map(|(key, _)| key));
    }
    assert_eq!((lanes.len(), limits.len()), (1_500, 2_499));
    assert!(!limits.contains("k0500"));
}
