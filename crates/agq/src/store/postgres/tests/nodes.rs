//! Live nodes, their leader, and notifications between nodes.

use std::{
    collections::{BTreeSet, HashSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use e2e::{Database, eventually};
use futures_util::FutureExt;
use sqlx::{AssertSqlSafe, Connection, postgres::PgListener, query, query_scalar};

use super::{between_nodes::other_session, fresh_store, run, store_on};
use crate::store::{
    StoreAdmin,
    postgres::{
        PostgresSettings, PostgresStore,
        cluster::{BusMessage, Nodes},
        connection::{ConnectOptions, Pool},
        migrate,
    },
};

/// Returns a node without a store, which sends heartbeats only on request, and a pool.
fn alone(database: &Database) -> (Nodes, Pool) {
    let access = ConnectOptions::new(database.url().parse().unwrap(), None);
    let pool = Pool::new(access.clone(), 2);
    (Nodes::new(Duration::from_secs(30), access, Arc::default()), pool)
}

/// Opens a store whose node has led for an hour.
async fn leading(database: &Database) -> PostgresStore {
    let store = store_on(database).await;
    assert!(store.leads());
    run(&store, "UPDATE agq.leader SET elected_at = now() - interval '1 hour'").await;
    store
}

#[tokio::test(flavor = "multi_thread")]
async fn live_nodes_are_known_only_to_a_leader_of_two_terms() {
    let (_database, store) = fresh_store().await;
    assert_eq!(store.nodes().await.unwrap(), None, "it leads since a moment ago");
    run(&store, "UPDATE agq.leader SET elected_at = now() - interval '1 hour'").await;
    let itself = HashSet::from([store.node().unwrap().to_owned()]);
    assert_eq!(store.nodes().await.unwrap(), Some(itself));
    run(&store, "UPDATE agq.leader SET node = 'another'").await;
    assert_eq!(store.nodes().await.unwrap(), None, "another one leads");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_node_leads_as_soon_as_the_leader_leaves() {
    let database = Database::new();
    // The heartbeats would take the lease half an hour later.
    let settings = PostgresSettings { term: Duration::from_secs(3_600), ..PostgresSettings::default() };
    let first = PostgresStore::open(&database.url(), settings).await.unwrap();
    let second = PostgresStore::open(&database.url(), settings).await.unwrap();
    second.join("", |_, _| {});
    tokio::task::block_in_place(|| {
        eventually("LISTEN", || second.notify_bus.ready_notices.is_listening().then_some(()));
    });
    assert!(first.leads() && !second.leads());
    drop(first);
    tokio::task::block_in_place(|| eventually("another leader", || second.leads().then_some(())));
}

#[tokio::test(flavor = "multi_thread")]
async fn live_nodes_are_unknown_after_a_crash_of_the_database() {
    let database = Database::new();
    let store = leading(&database).await;
    assert!(store.nodes().await.unwrap().is_some());
    // A crash empties unlogged tables, and so does a failover to a standby.
    run(&store, "TRUNCATE agq.instances, agq.leader").await;
    assert!(store.leads(), "it knows nothing of the crash yet");
    assert_eq!(store.nodes().await.unwrap(), None);
    // The node is elected again, and the other nodes have two terms to return.
    store.nodes.send_heartbeat().await.unwrap();
    assert!(store.leads());
    assert_eq!(store.nodes().await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn live_nodes_are_unknown_if_the_caller_is_missing() {
    let database = Database::new();
    migrate(&database.url()).await.unwrap();
    // Nothing shows this node again between the two statements of the test.
    let (nodes, pool) = alone(&database);
    nodes.send_heartbeat().await.unwrap();
    let sql = "UPDATE agq.leader SET elected_at = now() - interval '1 hour'";
    query(sql).execute(&pool).await.unwrap();
    assert!(nodes.all(&pool).await.unwrap().is_some());
    query("UPDATE agq.instances SET node = 'another'").execute(&pool).await.unwrap();
    assert_eq!(nodes.all(&pool).await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn heartbeat_does_not_bring_back_a_node_that_has_left() {
    let database = Database::new();
    migrate(&database.url()).await.unwrap();
    let (nodes, pool) = alone(&database);
    let nodes = Arc::new(nodes);
    nodes.send_heartbeat().await.unwrap();
    // The node leaves while this session holds its row, and a heartbeat arrives meanwhile.
    let mut other = pool.acquire().await.unwrap();
    let mut other = other.begin().await.unwrap();
    query("SELECT FROM agq.instances FOR UPDATE").execute(&mut *other).await.unwrap();
    let leaving = tokio::spawn({
        let nodes = Arc::clone(&nodes);
        async move { nodes.leave().await }
    });
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    while query_scalar::<_, i64>(waits).fetch_one(&pool).await.unwrap() == 0 {}
    let mut beat = Box::pin(nodes.send_heartbeat());
    assert!((&mut beat).now_or_never().is_none());
    other.commit().await.unwrap();
    leaving.await.unwrap().unwrap();
    beat.await.unwrap();
    nodes.send_heartbeat().await.unwrap();
    for table in ["instances", "leader"] {
        let sql = AssertSqlSafe(format!("SELECT count(*) FROM agq.{table}"));
        assert_eq!(query_scalar::<_, i64>(sql).fetch_one(&pool).await.unwrap(), 0, "{table}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_lease_starts_a_new_term() {
    let database = Database::new();
    let store = leading(&database).await;
    store.nodes.send_heartbeat().await.unwrap();
    assert!(store.nodes().await.unwrap().is_some(), "a lease that is kept goes on");
    // No node could reach the database for longer than the lease.
    run(&store, "UPDATE agq.leader SET expires_at = now() - interval '1 second'").await;
    store.nodes.send_heartbeat().await.unwrap();
    assert!(store.leads());
    assert_eq!(store.nodes().await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn new_node_is_found_by_polling() {
    let (database, store) = fresh_store().await;
    store.nodes.find_peers().await.unwrap();
    assert!(!store.nodes.has_peers());
    let (other, _) = alone(&database);
    other.send_heartbeat().await.unwrap();
    store.nodes.find_peers().await.unwrap();
    assert!(store.nodes.has_peers());
}

#[tokio::test(flavor = "multi_thread")]
async fn search_for_nodes_fails_without_the_database_even_if_one_is_known() {
    let database = Database::new();
    migrate(&database.url()).await.unwrap();
    let ((node, pool), (other, _)) = (alone(&database), alone(&database));
    tokio::try_join!(node.send_heartbeat(), other.send_heartbeat()).unwrap();
    node.find_peers().await.unwrap();
    assert!(node.has_peers());
    // An outage closes the connections of the nodes.
    let end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() \
         AND query ~ '^SELECT (node, is_listening|FROM agq.instances)'";
    while query_scalar::<_, i64>(end).fetch_one(&pool).await.unwrap() > 0 {}
    assert!(node.find_peers().await.is_err());
    node.find_peers().await.unwrap();
    assert!(node.has_peers());
}

#[tokio::test(flavor = "multi_thread")]
async fn node_counts_as_gone_after_its_own_silence() {
    let database = Database::new();
    let store = leading(&database).await;
    let sql = "INSERT INTO agq.instances (node, hostname, pid, last_seen_at, silence_secs) VALUES \
         ('silent', 'h', 1, now() - interval '10 minutes', 3600), ('gone', 'h', 2, now() - interval '10 minutes', 60)";
    run(&store, sql).await;
    let nodes = store.nodes().await.unwrap().unwrap();
    assert!(nodes.contains("silent") && !nodes.contains("gone"), "{nodes:?}");
    store.nodes.send_heartbeat().await.unwrap();
    let kept: Vec<String> = query_scalar("SELECT node FROM agq.instances WHERE hostname = 'h'")
        .fetch_all(&store.pool)
        .await
        .unwrap();
    assert_eq!(kept, ["silent"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn node_takes_the_lowest_number_that_no_live_node_has() {
    let database = Database::new();
    migrate(&database.url()).await.unwrap();
    let ((first, pool), (second, _), (third, _)) = (alone(&database), alone(&database), alone(&database));
    tokio::try_join!(first.send_heartbeat(), second.send_heartbeat(), third.send_heartbeat()).unwrap();
    let numbers = [&first, &second, &third].map(Nodes::number);
    assert_eq!(BTreeSet::from(numbers), BTreeSet::from([0, 1, 2]));
    second.leave().await.unwrap();
    let (next, _) = alone(&database);
    next.send_heartbeat().await.unwrap();
    assert_eq!(next.number(), second.number());
    // After a crash of the database, which empties the table, a node keeps its number.
    query("TRUNCATE agq.instances").execute(&pool).await.unwrap();
    third.send_heartbeat().await.unwrap();
    let kept: i16 = query_scalar("SELECT number FROM agq.instances").fetch_one(&pool).await.unwrap();
    assert_eq!([kept.cast_unsigned(), third.number()], [numbers[2]; 2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn heartbeat_succeeds_while_reads_use_every_connection() {
    let (_database, store) = fresh_store().await;
    let most = store.pool.most();
    let mut held = Vec::new();
    for _ in 0..most {
        held.push(store.pool.acquire().await.unwrap());
    }
    store.nodes.send_heartbeat().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn notices_are_sent_again_after_the_connection_was_closed() {
    let (database, store) = fresh_store().await;
    let mut listener = PgListener::connect(&database.url()).await.unwrap();
    listener.listen("agq_test").await.unwrap();
    for n in 0..3 {
        // The second and the third of these notices wait while the first one is sent.
        for m in 0..3 {
            store.notices.send(BusMessage::Event("agq_test", format!("{n}.{m}"))).await.unwrap();
        }
        for m in 0..3 {
            assert_eq!(listener.recv().await.unwrap().payload(), format!("{n}.{m}"));
        }
        let sql = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() \
             AND query LIKE 'SELECT pg_notify(n.channel%' AND pid <> pg_backend_pid()";
        let ended: i64 = query_scalar(sql).fetch_one(&store.pool).await.unwrap();
        assert_eq!(ended, 1);
        let sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
             AND query LIKE 'SELECT pg_notify(n.channel%' AND pid <> pg_backend_pid()";
        let runtime = tokio::runtime::Handle::current();
        tokio::task::block_in_place(|| {
            eventually("its end", || {
                let left: i64 = runtime.block_on(query_scalar(sql).fetch_one(&store.pool)).unwrap();
                (left == 0).then_some(())
            });
        });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn equal_messages_and_events_are_all_delivered() {
    let (database, store) = fresh_store().await;
    let mut listener = PgListener::connect(&database.url()).await.unwrap();
    listener.listen_all(["agq_test", "agq_messages"]).await.unwrap();
    let channel = Bytes::from_static(b"channel");
    // Later notices wait while the connection for the first one is opened.
    for _ in 0..5 {
        store.notices.send(BusMessage::Event("agq_test", "equal".into())).await.unwrap();
        store.notify_bus.messages.push(&channel, &Bytes::from_static(b"equal"));
    }
    store.notices.send(BusMessage::Event("agq_test", "last".into())).await.unwrap();
    store.notify_bus.messages.push(&channel, &Bytes::from_static(b"last"));
    let (mut events, mut messages, mut ended) = (0, 0, 0);
    while ended < 2 {
        match listener.recv().await.unwrap().payload() {
            "equal" => events += 1,
            // In hex.
            payload if payload == "last" || payload.contains(" 6c617374 ") => ended += 1,
            _ => messages += 1,
        }
    }
    assert_eq!((events, messages), (5, 5));
}

#[tokio::test(flavor = "multi_thread")]
async fn notices_do_not_wait_for_a_long_message() {
    let (database, store) = fresh_store().await;
    let mut listener = PgListener::connect(&database.url()).await.unwrap();
    listener.listen_all(["agq_test", "agq_messages"]).await.unwrap();
    let other = other_session(&database, "LOCK TABLE agq.messages IN SHARE MODE").await;
    for length in [100_000, 1] {
        let payload = Bytes::from(vec![b'x'; length]);
        store.notify_bus.messages.push(&Bytes::from_static(b"channel"), &payload);
    }
    let waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'agq.messages'::regclass \
         AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    while query_scalar::<_, i64>(waiting).fetch_one(&store.pool).await.unwrap() == 0 {}
    store.notices.send(BusMessage::Event("agq_test", "event".into())).await.unwrap();
    assert_eq!(listener.recv().await.unwrap().payload(), "event");
    other.close().await.unwrap();
    let stored: i64 = listener.recv().await.unwrap().payload().parse().unwrap();
    assert!(listener.recv().await.unwrap().payload().ends_with(" 78 0"), "the short message");
    let kept = "SELECT array_agg(message) FROM agq.messages";
    assert_eq!(query_scalar::<_, Vec<i64>>(kept).fetch_one(&store.pool).await.unwrap(), [stored]);
}

#[tokio::test(flavor = "multi_thread")]
async fn long_message_is_received_while_reads_use_every_connection() {
    let database = Database::new();
    let hears = PostgresStore::open(&database.url(), PostgresSettings::default()).await.unwrap();
    let received = Arc::new(Mutex::new(None));
    hears.join("", {
        let received = Arc::clone(&received);
        move |channel, payload| *received.lock().unwrap() = Some((channel, payload))
    });
    let mut held = Vec::new();
    for _ in 0..hears.pool.most() {
        held.push(hears.pool.acquire().await.unwrap());
    }
    let tells = store_on(&database).await;
    let (channel, payload) = (Bytes::from_static(b"channel"), Bytes::from(vec![b'x'; 100_000]));
    // The test cannot know when the first node begins to listen.
    tokio::task::block_in_place(|| {
        eventually("the message", || {
            tells.notify_bus.messages.push(&channel, &payload);
            received.lock().unwrap().take()
        });
    });
}
