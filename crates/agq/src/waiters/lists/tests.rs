//! Tests of blocking pops from lists.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeSet,
    ops::{Bound, Range},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use agenix_protocol::{
    request::{KeyCommand, ListEnd, Request},
    resp::Reply,
    time::Timestamp,
};
use agenix_rules::rejection::Rejection;
use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};

use super::{ListRequest, ListWaiter, PopResult, WaitingPop, is_any_there, run};
use crate::clock::Clock;
use crate::redis;
use crate::store::{KeyEntry, KeyReader, RangeSlice, Store, StoreError, change, redb::RedbStore};

/// Store, with the channel that takes requests.
struct TestStore {
    store: Arc<dyn Store>,
    requests: mpsc::UnboundedSender<ListRequest>,
    next_number: AtomicU64,
}

impl TestStore {
    fn new() -> Self {
        let store: Arc<dyn Store> = Arc::new(RedbStore::in_memory().unwrap());
        let (requests, inputs) = mpsc::unbounded_channel();
        tokio::spawn(run(Arc::clone(&store), Clock::default(), inputs));
        Self { store, requests, next_number: AtomicU64::default() }
    }

    fn request(line: &str) -> Request {
        let words: Vec<Bytes> = line.split(' ').map(|word| Bytes::copy_from_slice(word.as_bytes())).collect();
        Request::parse(&words).unwrap().1
    }

    fn wait(&self, line: &str) -> oneshot::Receiver<PopResult> {
        let Request::BlockingPop(pop) = Self::request(line) else { panic!("{line} does not wait") };
        let (reply, get) = oneshot::channel();
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        assert!(self.requests.send(ListRequest::Enqueue(ListWaiter { number, pop, reply })).is_ok());
        get
    }

    /// Returns when all earlier requests have been handled.
    async fn wait_until_handled(&self) {
        self.run(&["RPUSH handled v"]).await;
        taken(self.wait("BRPOP handled 0")).await;
    }

    async fn run(&self, lines: &[&str]) -> Vec<Reply> {
        let command = |line: &&str| -> KeyCommand {
            let Request::Key(command) = Self::request(line) else { panic!("{line} is not on keys") };
            command
        };
        let (commands, now): (Vec<_>, _) = (lines.iter().map(command).collect(), Clock::default().now());
        change(&*self.store, 0, move |keyspace| redis::apply_all(keyspace, &commands, now)).await.unwrap()
    }
}

async fn taken(get: oneshot::Receiver<PopResult>) -> (Bytes, Bytes) {
    let element = get.await.unwrap().unwrap().unwrap().take();
    (element.key, element.value)
}

fn pair(key: &'static str, value: &'static str) -> (Bytes, Bytes) {
    (key.into(), value.into())
}

#[tokio::test]
async fn list_waiters_are_served_in_order_of_arrival() {
    let app = TestStore::new();
    let waiters: Vec<_> = (0..5).map(|_| app.wait("BRPOP l 0")).collect();
    app.run(&["LPUSH l 0 1 2 3 4"]).await;
    for (waiter, value) in waiters.into_iter().zip(["0", "1", "2", "3", "4"]) {
        assert_eq!(taken(waiter).await, pair("l", value));
    }
}

#[tokio::test]
async fn list_pop_takes_from_the_first_list_with_elements() {
    let app = TestStore::new();
    app.run(&["RPUSH b 1 2", "RPUSH c 3 4"]).await;
    assert_eq!(taken(app.wait("BRPOP a b c 0")).await, pair("b", "2"));
    assert_eq!(taken(app.wait("BLPOP c b 0")).await, pair("c", "3"));
    let (first, second) = (app.wait("BLPOP x y 0"), app.wait("BLPOP y 0"));
    app.run(&["RPUSH y 5 6"]).await;
    assert_eq!((taken(first).await, taken(second).await), (pair("y", "5"), pair("y", "6")));
}

#[tokio::test]
async fn dropped_element_goes_back_to_its_end_of_the_list() {
    let app = TestStore::new();
    app.run(&["RPUSH l a b c"]).await;
    for line in ["BLPOP l 0", "BRPOP l 0"] {
        drop(app.wait(line).await.unwrap().unwrap().unwrap());
    }
    assert_eq!(taken(app.wait("BLPOP l 0")).await, pair("l", "a"));
    assert_eq!(taken(app.wait("BRPOP l 0")).await, pair("l", "c"));
}

#[tokio::test]
async fn list_move_is_atomic_and_survives_a_lost_reply() {
    let app = TestStore::new();
    let (moved, next) = (app.wait("BLMOVE a b LEFT LEFT 0"), app.wait("BRPOP b 0"));
    app.run(&["RPUSH a 1"]).await;
    assert_eq!(taken(moved).await, pair("a", "1"));
    assert_eq!(taken(next).await, pair("b", "1"));
    app.run(&["RPUSH a 2"]).await;
    drop(app.wait("BLMOVE a b LEFT RIGHT 0").await.unwrap().unwrap().unwrap());
    assert_eq!(app.run(&["LRANGE b 0 -1", "EXISTS a"]).await, [Reply::bulks(["2"]), Reply::Integer(0)]);
}

#[tokio::test]
async fn wrong_type_fails_new_pops_and_is_ignored_by_waiters() {
    let app = TestStore::new();
    let mut waits = app.wait("BRPOP l 0");
    app.wait_until_handled().await;
    app.run(&["RPUSH l gone", "DEL l", "SET l text"]).await;
    let refused = app.wait("BRPOP l 0").await.unwrap().unwrap().unwrap_err();
    assert_eq!(refused, Rejection::WrongType);
    assert!(waits.try_recv().is_err());
    app.run(&["DEL l", "RPUSH l v"]).await;
    assert_eq!(taken(waits).await, pair("l", "v"));
    app.run(&["RPUSH full v", "SET text t"]).await;
    let refused = app.wait("BLMOVE full text LEFT LEFT 0").await.unwrap().unwrap().unwrap_err();
    assert_eq!(refused, Rejection::WrongType);
    assert_eq!(app.run(&["LLEN full"]).await, [Reply::Integer(1)]);
}

/// Keys of which none exists, and that must be announced before they are read.
#[derive(Default)]
struct AbsentKeys {
    announced: RefCell<BTreeSet<Bytes>>,
    announcements: Cell<usize>,
}

impl KeyReader for AbsentKeys {
    fn entry(&self, key: &[u8]) -> Result<Option<KeyEntry>, StoreError> {
        assert!(self.announced.borrow().contains(key), "the key is read alone");
        Ok(None)
    }

    fn read_ahead(&self, keys: &[&[u8]]) -> Result<(), StoreError> {
        self.announcements.set(self.announcements.get() + 1);
        self.announced.borrow_mut().extend(keys.iter().map(|key| Bytes::copy_from_slice(key)));
        Ok(())
    }

    fn count(&self, _now: Timestamp) -> Result<u64, StoreError> {
        Ok(0)
    }

    fn newest(&self, _below: u64, _limit: usize) -> Result<Vec<(u64, Bytes)>, StoreError> {
        Ok(Vec::new())
    }

    fn items(&self, _key: &[u8], _places: Range<i64>) -> Result<Vec<Bytes>, StoreError> {
        Ok(Vec::new())
    }

    fn score(&self, _key: &[u8], _member: &[u8]) -> Result<Option<f64>, StoreError> {
        Ok(None)
    }

    fn members(
        &self,
        _key: &[u8],
        _scores: (Bound<f64>, Bound<f64>),
        _part: RangeSlice,
    ) -> Result<Vec<(Bytes, f64)>, StoreError> {
        Ok(Vec::new())
    }
}

#[test]
fn lists_of_all_waiters_are_read_together() {
    let pop = |number: u64| WaitingPop {
        number,
        keys: vec![format!("l{number}").into(), "shared".into()],
        from: ListEnd::Tail,
        to: None,
        is_new: false,
    };
    let pops: Vec<WaitingPop> = (0..2_500).map(pop).collect();
    let keys = AbsentKeys::default();
    assert!(!is_any_there(&keys, &pops, Timestamp(0)).unwrap());
    assert_eq!((keys.announcements.get(), keys.announced.borrow().len()), (3, 2_501));
}
