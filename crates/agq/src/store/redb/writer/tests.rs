//! Tests of the writer, with a backend in memory that counts its syncs, and can be full.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures_util::poll;
use redb::{Database, StorageBackend, backends::InMemoryBackend};

use crate::store::{
    AckLevel, Durability, GroupCommit, KeyEntry, Keyspace, StoreAdmin, StoreFuture, StoredValue, look,
    redb::{RedbStore, WalFile, writer::queue::WriteSize},
};

/// Backend in memory that counts its syncs, and can be full.
#[derive(Debug, Default)]
struct Counting {
    memory: InMemoryBackend,
    syncs: Arc<AtomicU64>,
    is_full: Arc<AtomicBool>,
    /// Duration of each sync.
    sync_time: Duration,
}

impl StorageBackend for Counting {
    fn len(&self) -> io::Result<u64> {
        self.memory.len()
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.memory.read(offset, out)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.memory.set_len(len)
    }
    fn sync_data(&self) -> io::Result<()> {
        self.syncs.fetch_add(1, Ordering::Relaxed);
        #[expect(clippy::disallowed_methods, reason = "a disk that takes its time")]
        thread::sleep(self.sync_time);
        self.memory.sync_data()
    }
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        if self.is_full.load(Ordering::Relaxed) {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        self.memory.write(offset, data)
    }
}

fn set(store: &RedbStore, key: String, value: &'static str) -> StoreFuture<()> {
    let entry = KeyEntry { content: StoredValue::Text(Bytes::from(value)), expires_at: None };
    store.update(0, Box::new(move |keys| keys.put_entry(key.as_bytes(), &entry)))
}

fn leader(store: &RedbStore) -> Arc<GroupCommit> {
    store.group_commit.clone().unwrap()
}

#[tokio::test]
async fn writer_syncs_once_for_a_hundred_waiting_writes() {
    let backend = Counting::default();
    let syncs = Arc::clone(&backend.syncs);
    let store = RedbStore::with_wal(backend).unwrap();
    let ((go, gone), (begin, begun)) = (mpsc::channel(), mpsc::channel());
    // The writer is kept busy while a hundred writes are submitted.
    let mut first =
        store.write(AckLevel::Applied, move |_| Ok(begin.send(()).is_ok() && gone.recv().is_ok()));
    assert!(
        poll!(&mut first).is_pending() && poll!(&mut first).is_pending(),
        "the second poll wakes the writer"
    );
    begun.recv().unwrap();
    let waiting: Vec<_> = (0..100).map(|n| set(&store, format!("k{n}"), "")).collect();
    let before = syncs.load(Ordering::Relaxed);
    go.send(()).unwrap();
    assert!(first.await.unwrap());
    for write in waiting {
        write.await.unwrap();
    }
    assert_eq!(syncs.load(Ordering::Relaxed) - before, 1);
    let is_there = look(&store, |keys| Ok(keys.entry(b"k0")?.is_some() && keys.entry(b"k99")?.is_some()));
    assert!(is_there.await.unwrap());
    store.sync().await.unwrap();
    assert_eq!(syncs.load(Ordering::Relaxed) - before, 1, "there was nothing left to sync");
}

#[tokio::test]
async fn writer_lets_other_tasks_submit_first_and_writes_for_dropped_tasks() {
    let backend = Counting::default();
    // There is enough room for a leader.
    backend.set_len(1 << 20).unwrap();
    let syncs = Arc::clone(&backend.syncs);
    let store = Arc::new(RedbStore::with_wal(backend).unwrap());
    let before = syncs.load(Ordering::Relaxed);
    let hand_in = |number| {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            let answer = set(&store, format!("k{number}"), "");
            leader(&store).commit(Some(number)).await;
            answer.await.unwrap();
        })
    };
    let all: Vec<_> = (0..10).map(hand_in).collect();
    for one in all {
        one.await.unwrap();
    }
    assert_eq!(syncs.load(Ordering::Relaxed) - before, 1);
    let answer = set(&store, "gone".into(), "");
    drop(leader(&store).commit(None));
    answer.await.unwrap();
    assert_eq!(syncs.load(Ordering::Relaxed) - before, 2);
}

#[tokio::test]
async fn writer_writes_for_callers_that_neither_commit_nor_wait() {
    let store = RedbStore::in_memory().unwrap();
    let (note, noted) = mpsc::channel();
    let write = |size| {
        let note = note.clone();
        store.write_sized(AckLevel::Applied, size, move |_| Ok(note.send(size).is_ok()))
    };
    drop(write(WriteSize::Small));
    assert_eq!(noted.recv().unwrap(), WriteSize::Small);
    let mut polled = write(WriteSize::Jobs(1));
    // The writer may be done already.
    let _may_be_ready = poll!(&mut polled);
    drop(polled);
    assert_eq!(noted.recv().unwrap(), WriteSize::Jobs(1));
    // A large write is not left to a leader.
    let large = write(WriteSize::Jobs(17));
    drop(leader(&store).commit(None));
    assert_eq!(noted.recv().unwrap(), WriteSize::Jobs(17));
    assert!(large.await.unwrap());
}

#[tokio::test]
async fn writer_waits_briefly_for_submitters_of_the_last_batch() {
    let backend = Counting { sync_time: Duration::from_micros(100), ..Counting::default() };
    backend.set_len(1 << 20).unwrap();
    let store = RedbStore::with_wal(backend).unwrap();
    let leader = leader(&store);
    let both = async |number| {
        let one = set(&store, format!("a{number}"), "");
        let first = leader.commit(Some(1));
        let other = set(&store, format!("b{number}"), "");
        tokio::join!(first, leader.commit(Some(2)));
        (one.await.unwrap(), other.await.unwrap())
    };
    let mut is_waited_for = false;
    // While the machine is so busy that a sync takes long, no batch waits for others.
    for number in 0..500 {
        both(number).await;
        let answer = set(&store, "alone".into(), "");
        let (committed, round) = (leader.commit(Some(1)), leader.queue.rounds());
        let now = Instant::now();
        let (just_now, long_ago) =
            (now + Duration::from_secs(9), now.checked_sub(Duration::from_secs(9)).unwrap());
        assert!(leader.waits_for_writers(round, None), "they may be there already");
        assert!(!leader.waits_for_writers(round, Some(long_ago)));
        is_waited_for = leader.waits_for_writers(round, Some(just_now));
        drop(committed);
        answer.await.unwrap();
        assert!(!leader.waits_for_writers(round, Some(just_now)), "it is written");
        if is_waited_for {
            break;
        }
    }
    assert!(is_waited_for);
    let mut waits = Vec::new();
    for _ in 0..20 {
        let answer = set(&store, "alone".into(), "");
        let committed = leader.commit(Some(3));
        waits.push(leader.waits_for_writers(leader.queue.rounds(), None));
        drop(committed);
        answer.await.unwrap();
    }
    assert!(waits[0] && !waits[19], "it was alone for a while");
}

#[tokio::test]
async fn writer_lets_small_writes_overtake_bulk_submissions() {
    let store = RedbStore::in_memory().unwrap();
    let ((go, gone), (begin, begun)) = (mpsc::channel(), mpsc::channel());
    let mut first =
        store.write(AckLevel::Applied, move |_| Ok(begin.send(()).is_ok() && gone.recv().is_ok()));
    assert!(
        poll!(&mut first).is_pending() && poll!(&mut first).is_pending(),
        "the second poll wakes the writer"
    );
    begun.recv().unwrap();
    let ((note, order), bulk) = (mpsc::channel(), WriteSize::Bulk(10_000));
    let writes = [("a", bulk), ("b", WriteSize::Small), ("c", bulk), ("d", WriteSize::Jobs(1))];
    let waiting = writes.map(|(name, size)| {
        let note = note.clone();
        store.write_sized(AckLevel::Applied, size, move |_| Ok(note.send(name).is_ok()))
    });
    go.send(()).unwrap();
    assert!(first.await.unwrap());
    for write in waiting {
        assert!(write.await.unwrap());
    }
    assert_eq!(order.try_iter().collect::<Vec<_>>(), ["a", "b", "d", "c"]);
}

#[tokio::test]
async fn writer_fails_on_a_full_disk_and_reports_it() {
    let backend = Counting::default();
    let is_full = Arc::clone(&backend.is_full);
    let store = RedbStore::with_wal(backend).unwrap();
    set(&store, "k".into(), "v").await.unwrap();
    is_full.store(true, Ordering::Relaxed);
    assert!(set(&store, "k".into(), "w").await.is_err());
    let reason = store.failure().await;
    assert!(!reason.is_empty());
}

#[tokio::test]
async fn writer_stops_when_a_flush_fails_and_acknowledged_writes_stay_visible() {
    let backend = Counting::default();
    let is_full = Arc::clone(&backend.is_full);
    let database = Database::builder().create_with_backend(backend).unwrap();
    let with = WalFile { file: Box::new(InMemoryBackend::new()), id: 1, bytes: 1 << 16 };
    let store = RedbStore::start(database, with, Durability::default()).unwrap();
    is_full.store(true, Ordering::Relaxed);
    let mut acknowledged = 0;
    // The failure of flushing the first half is known before the second half is full.
    while set(&store, format!("k{acknowledged}"), "v").await.is_ok() {
        acknowledged += 1;
        assert!(acknowledged < 1000);
    }
    assert!(acknowledged > 0);
    assert!(!store.failure().await.is_empty());
    let known = look(&store, move |keys| {
        (0..acknowledged).map(|key| Ok(keys.entry(format!("k{key}").as_bytes())?.is_some())).collect()
    });
    let known: Vec<bool> = known.await.unwrap();
    assert_eq!(known, vec![true; acknowledged]);
}
