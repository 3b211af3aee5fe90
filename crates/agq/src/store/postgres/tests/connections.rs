//! Opened connections, refused connections, and commands that wait for each other.

use std::time::Duration;

use agenix_protocol::{
    ids::{ActionId, PlanId},
    request::Page,
};
use agenix_rules::{action::Action, job::NewJob};
use bytes::Bytes;
use e2e::{Database, FOR_TESTS, Postgres, Proxy};
use futures_util::FutureExt;
use sqlx::{Connection, PgConnection, query, query_scalar};

use super::{
    fresh_store,
    making::{NOW, fresh_node, number, plain},
    run, store_on,
};
use crate::store::{
    JobStore, KeyEntry, Keyspace, NewAction, StoreAdmin, StoredValue,
    postgres::{
        PostgresSettings, PostgresStore,
        connection::{ConnectOptions, Pool},
        writer::KEYS_LOCK,
    },
};

/// Changes a default of the store's database. Open sessions do not see the change.
async fn set_default(store: &PostgresStore, setting: &str) {
    let name: String = query_scalar("SELECT current_database()").fetch_one(&store.pool).await.unwrap();
    run(store, &format!("ALTER DATABASE {name} SET {setting}")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn session_settings_override_defaults_of_the_database() {
    let (database, store) = fresh_store().await;
    let settings = [
        ("search_path", "public, pg_catalog", "pg_catalog"),
        ("default_transaction_isolation", "serializable", "read committed"),
        ("idle_session_timeout", "3000", "0"),
        ("statement_timeout", "50000", "1min"),
        ("synchronous_commit", "off", "on"),
        ("datestyle", "German", "ISO, MDY"),
    ];
    for (name, theirs, _) in settings {
        set_default(&store, &format!("{name} TO {theirs}")).await;
    }
    let again = store_on(&database).await;
    for (name, _, ours) in settings {
        let sql = query_scalar::<_, String>("SELECT current_setting($1)").bind(name);
        assert_eq!(sql.fetch_one(&again.pool).await.unwrap(), ours, "{name}");
    }
    // The store keeps a stronger setting than its own.
    set_default(&store, "synchronous_commit TO remote_apply").await;
    let strong = store_on(&database).await;
    let kept: String = query_scalar("SHOW synchronous_commit").fetch_one(&strong.pool).await.unwrap();
    assert_eq!(kept, "remote_apply");
}

#[tokio::test(flavor = "multi_thread")]
async fn read_only_server_is_refused() {
    let (database, store) = fresh_store().await;
    set_default(&store, "default_transaction_read_only TO on").await;
    let Err(error) = PostgresStore::open(&database.url(), PostgresSettings::default()).await else {
        panic!("it was opened");
    };
    let message = format!("{error:#}");
    assert!(
        message.contains("this server takes no writes: default_transaction_read_only is on"),
        "{message}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn pool_drops_connections_to_a_server_that_became_read_only() {
    let database = Database::new();
    // The pool has one connection, so the next caller waits until that connection is given back.
    let pool = Pool::new(ConnectOptions::new(database.url().parse().unwrap(), None), 1);
    let pid = "SELECT pg_backend_pid()";
    let before: i32 = query_scalar(pid).fetch_one(&pool).await.unwrap();
    let kept: i32 = query_scalar(pid).fetch_one(&pool).await.unwrap();
    assert_eq!(kept, before, "one that takes writes is used again");
    query("SET default_transaction_read_only TO on").execute(&pool).await.unwrap();
    // A connection in use is not checked each time.
    let after = loop {
        let after: i32 = query_scalar(pid).fetch_one(&pool).await.unwrap();
        if after != before {
            break after;
        }
    };
    query("SET default_transaction_read_only TO on").execute(&pool).await.unwrap();
    // Another connection of the node has failed, so this connection is checked at once.
    pool.note(&sqlx::Error::WorkerCrashed);
    assert_ne!(query_scalar::<_, i32>(pid).fetch_one(&pool).await.unwrap(), after);
}

#[tokio::test(flavor = "multi_thread")]
async fn pool_keeps_its_size_when_a_connection_stops_answering() {
    let cluster = Postgres::start_on_loopback(&FOR_TESTS, None);
    let proxy = Proxy::start(cluster.address(), fastrand::Rng::new());
    let url = format!("postgres://agq@{}/postgres", proxy.address());
    let pool = Pool::new(ConnectOptions::new(url.parse().unwrap(), None), 2);
    let pid = "SELECT pg_backend_pid()";
    // One connection is in use when the network stops carrying packets, and the other one is idle.
    let mut used = pool.acquire().await.unwrap();
    let idle = query_scalar::<_, i32>(pid).fetch_one(&pool).await.unwrap();
    let before = query_scalar::<_, i32>(pid).fetch_one(&mut *used).await.unwrap();
    while pool.idle() == 0 {
        tokio::task::yield_now().await;
    }
    assert!(proxy.strand_all() >= 2);
    drop(used);
    let mut again = Vec::new();
    while again.len() < 2 {
        let mut one = pool.acquire().await.unwrap();
        let now = query_scalar::<_, i32>(pid).fetch_one(&mut *one);
        // A connection that has just been in use is not checked, and never answers.
        let Ok(now) = tokio::time::timeout(Duration::from_secs(1), now).await else { continue };
        let now = now.unwrap();
        assert!(now != before && now != idle);
        again.push(one);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn role_without_create_rights_opens_a_migrated_database() {
    let (database, store) = fresh_store().await;
    let role = format!("r{:016x}", fastrand::u64(..));
    let all = "ON ALL TABLES IN SCHEMA agq";
    run(
        &store,
        &format!(
            "CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA agq TO {role}; \
             GRANT SELECT, INSERT, UPDATE, DELETE {all} TO {role}; GRANT USAGE ON ALL SEQUENCES IN SCHEMA agq TO {role}"
        ),
    )
    .await;
    let url = database.url().replace("agq@", &format!("{role}@"));
    let other = PostgresStore::open(&url, PostgresSettings::default()).await.unwrap();
    other.set_paused("queue", true).await.unwrap();
    assert_eq!(other.paused().await.unwrap(), ["queue"]);
    run(&store, &format!("DROP OWNED BY {role}")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn long_reads_leave_connections_for_short_ones() {
    let (_database, store) = fresh_store().await;
    let page = || Page { pattern: None, offset: 0, limit: 10 };
    assert!(store.plans(page(), None).await.unwrap().is_empty());
    let most = store.long_reads.available_permits();
    assert!(most < store.pool.most());
    let permits = store.long_reads.acquire_many(u32::try_from(most).unwrap()).await.unwrap();
    assert!(store.totals().await.is_ok());
    let refused = store.plans(page(), None).await.unwrap_err().to_string();
    assert!(refused.contains("too many long reads"), "{refused}");
    let refused = store.scan(Box::new(|_| Ok(()))).await.unwrap_err().to_string();
    assert!(refused.contains("too many long reads"), "{refused}");
    assert!(store.read(Box::new(|_| Ok(()))).await.is_ok());
    drop(permits);
    assert!(store.plans(page(), None).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_on_jobs_do_not_wait_for_writes_on_keys() {
    let (database, store) = fresh_store().await;
    // This session stands for another node that is in the middle of a large command.
    let mut other = PgConnection::connect(&database.url()).await.unwrap();
    query("SELECT pg_advisory_lock($1)").bind(KEYS_LOCK).execute(&mut other).await.unwrap();
    let entry = KeyEntry { content: StoredValue::Text(Bytes::from_static(b"v")), expires_at: None };
    let mut set = store.update(1, Box::new(move |keys| keys.put_entry(b"k", &entry)));
    store.set_paused("queue", true).await.unwrap();
    store.wait_until_applied().await.unwrap();
    assert!((&mut set).now_or_never().is_none(), "the other one holds the lock");
    query("SELECT pg_advisory_unlock($1)").bind(KEYS_LOCK).execute(&mut other).await.unwrap();
    set.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn batch_that_waits_too_long_for_the_lock_on_keys_is_refused_as_a_whole() {
    let database = Database::new();
    let timeout = Duration::from_secs(2);
    let settings = PostgresSettings { listens: false, timeout, ..PostgresSettings::default() };
    let store = PostgresStore::open(&database.url(), settings).await.unwrap();
    let mut other = PgConnection::connect(&database.url()).await.unwrap();
    query("SELECT pg_advisory_lock($1)").bind(KEYS_LOCK).execute(&mut other).await.unwrap();
    let set = |key: &'static [u8]| {
        let entry = KeyEntry { content: StoredValue::Text(Bytes::from_static(b"v")), expires_at: None };
        store.update(1, Box::new(move |keys| keys.put_entry(key, &entry)))
    };
    let first = set(b"a");
    let waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted \
         AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    while number(&store, waits).await == 0 {}
    // The writer waits for the lock, so these are one batch.
    let (second, third) = (set(b"b"), set(b"c"));
    assert!(first.await.is_err() && second.await.is_err());
    query("SELECT pg_advisory_unlock($1)").bind(KEYS_LOCK).execute(&mut other).await.unwrap();
    assert!(third.await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn large_command_on_keys_needs_few_statements() {
    let (_database, store) = fresh_store().await;
    run(
        &store,
        "CREATE TABLE public.statements (name text); \
         CREATE FUNCTION public.count_statement() RETURNS trigger LANGUAGE plpgsql AS \
         'BEGIN INSERT INTO public.statements VALUES (TG_TABLE_NAME); RETURN NULL; END'",
    )
    .await;
    for table in ["keys", "list_items", "scores"] {
        let sql = format!(
            "CREATE TRIGGER counted AFTER INSERT OR UPDATE OR DELETE ON agq.{table} \
             FOR EACH STATEMENT EXECUTE FUNCTION public.count_statement()"
        );
        run(&store, &sql).await;
    }
    let entry = |content| KeyEntry { content, expires_at: None };
    let many = 5_000_i64;
    store
        .update(
            0,
            Box::new(move |keys| {
                for n in 0..many {
                    keys.put_item(b"list", n, b"item")?;
                    keys.put_score(b"set", &n.to_be_bytes(), 1.0)?;
                    keys.put_entry(&n.to_be_bytes(), &entry(StoredValue::Text(Bytes::from_static(b"v"))))?;
                }
                keys.put_entry(b"list", &entry(StoredValue::List { head: 0, tail: many }))?;
                keys.put_entry(b"set", &entry(StoredValue::Sorted { members: 5_000 }))
            }),
        )
        .await
        .unwrap();
    store
        .update(
            0,
            Box::new(move |keys| {
                assert_eq!(keys.take_items(b"list", 0..many)?.len(), 5_000);
                for n in 0..many {
                    assert!(keys.remove_score(b"set", &n.to_be_bytes())?);
                    assert!(keys.remove(&n.to_be_bytes())?);
                }
                Ok(())
            }),
        )
        .await
        .unwrap();
    let count = "SELECT count(*) FROM public.statements";
    let count: i64 = query_scalar(count).fetch_one(&store.pool).await.unwrap();
    assert!((6..=12).contains(&count), "{count} statements");
}

#[tokio::test(flavor = "multi_thread")]
async fn large_write_whose_connection_ends_before_the_commit_was_not_made() {
    let (_database, store) = fresh_node().await;
    run(
        &store,
        "CREATE FUNCTION public.end_session() RETURNS trigger LANGUAGE plpgsql AS \
         'BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NEW; END'; \
         CREATE TRIGGER ended BEFORE INSERT ON agq.inputs FOR EACH ROW EXECUTE FUNCTION public.end_session()",
    )
    .await;
    // The statements of a large write are sent one after the other.
    let job = NewJob { input: format!("\"{}\"", "x".repeat(100_000)).into(), ..plain("a-0") };
    let action = Action::new(ActionId::new("a").unwrap(), PlanId::new("p").unwrap(), NOW);
    let refused = store.add_action(NewAction::new(action, vec![job])).await.unwrap_err().to_string();
    assert!(refused.contains("cannot be reached"), "{refused}");
}
