//! Tests that the check reports nothing for a consistent database, and every inconsistency with a
//! line of its own.

mod counts;
mod jobs;
mod keys;

use std::{borrow::Borrow, sync::Arc};

use agenix_protocol::{
    documents::{JobUpdate, Status, WorkerRegistration, parse},
    time::Timestamp,
};
use agenix_rules::{
    action::Action,
    capability::{ClaimantCapabilities, Needs},
    job::{self, Job, JobParams, NewJob},
    worker::{self, Worker},
};
use bytes::Bytes;
use redb::{Key, ReadableTable, Value, WriteTransaction};
use serde::{Serialize, de::DeserializeOwned};

use super::{MAX_LINES, inconsistencies};
use crate::store::{
    AckLevel, Claimant, JobRule, JobStore, KeyEntry, NewAction, ReportedResults, Retention, StoredPlan,
    StoredValue, WorkerStore, change,
    redb::{
        RedbStore,
        schema::{
            codec::{decode, encode},
            tables::{
                ACTIONS, Definition, FORMAT, JOB_COUNTS, JOBS, META, PAUSED, PLANS, REGISTRATIONS, RESULTS,
                TOTALS, WORKERS,
            },
        },
    },
};

/// Returns a store with jobs in every state, all of plan p: a-0 is active, a-1 completed, a-2
/// retryable, a-3 available, later-0 scheduled in a lane of its own, old-0 removed, old-1
/// cancelled. The store has a worker w1, and the keys text (which expires), list and set.
async fn consistent_store() -> RedbStore {
    let store = RedbStore::in_memory().unwrap();
    let plan = StoredPlan::unsigned("p".parse().unwrap(), "{}".into(), Timestamp(1));
    assert!(store.add_plan(plan.into()).await.unwrap().unwrap());
    add_action(&store, "a", 4, "ready", None).await;
    add_action(&store, "later", 1, "gpu", Some(Timestamp(1000))).await;
    add_action(&store, "old", 2, "ready", None).await;
    let claims = store.claim(["w1", "w2", "w3"].map(claimant).into(), Timestamp(10), 50).await.unwrap();
    assert!(claims.iter().all(Option::is_some));
    decide(&store, "a-1", Some("[]"), report(Status::Completed, "w2")).await;
    decide(&store, "a-2", Some("[]"), report(Status::Failed, "w3")).await;
    decide(&store, "old-0", None, cancel(Timestamp(5))).await;
    decide(&store, "old-1", None, cancel(Timestamp(30))).await;
    let keep = Retention { ended_since: Timestamp(10), dead_since: Timestamp(0), count: 0 };
    assert_eq!(store.prune(keep, 100).await.unwrap(), 1);

    let json = r#"{"worker_id":"w1","capabilities":["sort"]}"#;
    let registration: WorkerRegistration = parse(json.as_bytes()).unwrap();
    let rule =
        move |known: Option<&Worker>| worker::registered(known, &registration, "c1", Timestamp(10)).map(Some);
    let registered =
        store.decide_worker(&"w1".parse().unwrap(), AckLevel::Durable, Some(json.into()), Box::new(rule));
    registered.await.unwrap().unwrap();
    add_keys(&store).await;
    store
}

async fn add_action(store: &RedbStore, id: &str, count: usize, queue: &str, run_at: Option<Timestamp>) {
    let action = Action::new(id.parse().unwrap(), "p".parse().unwrap(), Timestamp(10));
    let action = Action { queue: queue.into(), run_at, ..action };
    let terms = JobParams { max_retries: 1, timeout_ms: 5000, priority: 0, run_at, ..JobParams::default() };
    let job = |n| NewJob { job_id: format!("{id}-{n}").parse().unwrap(), input: "{}".into(), own: None };
    let jobs = (0..count).map(job).collect();
    let (needs, documents, input_blobs) = (Needs::default(), Vec::new(), Vec::new());
    let new = NewAction { action, needs, terms, jobs, documents, input_blobs, charge: None };
    store.add_action(new).await.unwrap().unwrap();
}

fn claimant(holder: &str) -> Claimant {
    let queues = Arc::new(["ready".to_owned()]);
    Claimant {
        holder: holder.into(),
        capabilities: Arc::new(ClaimantCapabilities::Anything),
        queues,
        share_terms: Arc::default(),
        visibility_ms: None,
    }
}

async fn decide(store: &RedbStore, id: &str, results: Option<&'static str>, rule: JobRule) {
    let results = results.map(|json| ReportedResults::without_blobs(json.to_owned()));
    let decided = store.decide(&id.parse().unwrap(), AckLevel::Durable, results, rule);
    assert!(decided.await.unwrap().unwrap().is_some(), "{id} is as it was");
}

fn report(status: Status, reporter: &'static str) -> JobRule {
    let update = JobUpdate { status: Some(status), ..JobUpdate::default() };
    Box::new(move |job: Option<&Job>| job::updated(job.unwrap(), &update, reporter, None, Timestamp(20), 0.5))
}

fn cancel(now: Timestamp) -> JobRule {
    Box::new(move |job: Option<&Job>| job::cancelled(job.unwrap(), now))
}

async fn add_keys(store: &RedbStore) {
    let added = change(store, 0, |keys| {
        let entry = |content| KeyEntry { content, expires_at: None };
        let text = StoredValue::Text(Bytes::from_static(b"x"));
        keys.put_entry(b"text", &KeyEntry { content: text, expires_at: Some(Timestamp(99)) })?;
        keys.put_item(b"list", -1, b"x")?;
        keys.put_item(b"list", 0, b"y")?;
        keys.put_entry(b"list", &entry(StoredValue::List { head: -1, tail: 1 }))?;
        keys.put_score(b"set", b"m", 1.0)?;
        keys.put_score(b"set", b"n", 2.5)?;
        keys.put_entry(b"set", &entry(StoredValue::Sorted { members: 2 }))
    });
    added.await.unwrap();
}

/// Changes the consistent database, and returns the inconsistencies.
async fn tampered(tamper: impl FnOnce(&WriteTransaction)) -> Vec<String> {
    let store = consistent_store().await;
    let kept = store.versions.pin();
    let transaction = store.versions.begin_write().unwrap();
    kept.snapshot().write_recent(&transaction).unwrap();
    tamper(&transaction);
    transaction.commit().unwrap();
    store.versions.refresh(&kept).unwrap();
    inconsistencies(&store.versions.snapshot()).unwrap()
}

fn put<'k, 'v, K: Key + 'static, V: Value + 'static>(
    transaction: &WriteTransaction,
    Definition { table, .. }: Definition<K, V>,
    key: impl Borrow<K::SelfType<'k>>,
    value: impl Borrow<V::SelfType<'v>>,
) {
    transaction.open_table(table).unwrap().insert(key, value).unwrap();
}

fn cut<'k, K: Key + 'static, V: Value + 'static>(
    transaction: &WriteTransaction,
    Definition { table, .. }: Definition<K, V>,
    key: impl Borrow<K::SelfType<'k>>,
) {
    assert!(transaction.open_table(table).unwrap().remove(key).unwrap().is_some(), "it was not there");
}

type RecordTable = Definition<&'static str, &'static [u8]>;

fn read<T: DeserializeOwned>(transaction: &WriteTransaction, table: RecordTable, id: &str) -> T {
    let table = transaction.open_table(table.table).unwrap();
    let record = table.get(id).unwrap().unwrap();
    decode(record.value()).unwrap()
}

fn write<T: Serialize>(transaction: &WriteTransaction, table: RecordTable, id: &str, record: &T) {
    put(transaction, table, id, encode(record).unwrap().as_slice());
}

fn edit<T: Serialize + DeserializeOwned>(
    transaction: &WriteTransaction,
    table: RecordTable,
    id: &str,
    edit: impl FnOnce(&mut T),
) {
    let mut record = read(transaction, table, id);
    edit(&mut record);
    write(transaction, table, id, &record);
}

#[tokio::test]
async fn check_reports_nothing_for_a_sound_database() {
    assert_eq!(tampered(|_| {}).await, [""; 0]);
    assert_eq!(tampered(|t| put(t, PAUSED, "ready", ())).await, [""; 0]);
    let empty = RedbStore::in_memory().unwrap();
    assert_eq!(inconsistencies(&empty.versions.snapshot()).unwrap(), [""; 0]);
}

#[tokio::test]
async fn check_reports_wrong_meta_numbers() {
    let other = FORMAT + 1;
    let wrong = format!("meta: format is {other}, but should be {FORMAT}");
    assert_eq!(tampered(|t| put(t, META, "format", other)).await, [wrong]);
    assert_eq!(tampered(|t| cut(t, META, "format")).await, ["meta: there is no format"]);
    let behind = ["meta: next_seq is 6, but old-1 has place 7"];
    assert_eq!(tampered(|t| put(t, META, "next_seq", 6)).await, behind);
}

#[tokio::test]
async fn check_reports_unreadable_and_misplaced_records() {
    let garbage = |table: RecordTable| move |t: &WriteTransaction| put(t, table, "x", b"?".as_slice());
    for (name, table) in [("jobs", JOBS), ("actions", ACTIONS), ("plans", PLANS)] {
        let line = format!("{name}: x has a record that cannot be read");
        assert_eq!(tampered(garbage(table)).await, [line]);
    }
    let reported = tampered(|t| {
        put(t, WORKERS, "x", b"?".as_slice());
        put(t, REGISTRATIONS, "x", "{}");
    });
    assert_eq!(reported.await, ["workers: x has a record that cannot be read"]);
    let reported = tampered(|t| write(t, JOBS, "x", &read::<Job>(t, JOBS, "a-3")));
    assert_eq!(reported.await, ["jobs: x has the record of a-3"]);
    let reported = tampered(|t| write(t, ACTIONS, "x", &read::<Action>(t, ACTIONS, "a")));
    assert_eq!(reported.await, ["actions: x has the record of a"]);
    let reported = tampered(|t| write(t, PLANS, "x", &read::<StoredPlan>(t, PLANS, "p")));
    assert_eq!(reported.await, ["plans: x has the record of p"]);
    let reported = tampered(|t| put(t, JOB_COUNTS, "a", b"?".as_slice()));
    assert_eq!(reported.await, ["tallies: a has a record that cannot be read"]);
    let reported = tampered(|t| put(t, TOTALS, "totals", b"?".as_slice()));
    assert_eq!(reported.await, ["totals: the record cannot be read"]);
}

#[tokio::test]
async fn check_reports_workers_without_registrations() {
    let reported = tampered(|t| cut(t, REGISTRATIONS, "w1")).await;
    assert_eq!(reported, ["registrations: w1 has no registration"]);
    let reported = tampered(|t| cut(t, WORKERS, "w1")).await;
    assert_eq!(reported, ["registrations: w1 has a registration, but there is no such worker"]);
}

#[tokio::test]
async fn check_reports_a_bounded_number_of_lines() {
    let reported =
        tampered(|t| (0..MAX_LINES + 5).for_each(|n| put(t, RESULTS, format!("{n}").as_str(), "[]"))).await;
    assert_eq!(reported.len(), MAX_LINES + 1);
    assert_eq!(reported[MAX_LINES], "there are more than these 1000");
}
