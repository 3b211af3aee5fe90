//! Writing, reading, and damage of the WAL.

use std::sync::Arc;

use redb::{StorageBackend, backends::InMemoryBackend};

use super::{Replay, SECTOR, Wal, WalError, read};

/// Memory that two owners share.
#[derive(Debug, Clone, Default)]
struct Shared(Arc<InMemoryBackend>);

impl StorageBackend for Shared {
    fn len(&self) -> std::io::Result<u64> {
        self.0.len()
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> std::io::Result<()> {
        self.0.read(offset, out)
    }
    fn set_len(&self, len: u64) -> std::io::Result<()> {
        self.0.set_len(len)
    }
    fn sync_data(&self) -> std::io::Result<()> {
        self.0.sync_data()
    }
    fn write(&self, offset: u64, data: &[u8]) -> std::io::Result<()> {
        self.0.write(offset, data)
    }
}

const ID: u64 = 7;

fn journal() -> (Shared, Wal) {
    let file = Shared::default();
    (file.clone(), Wal::create(Box::new(file), ID, 16 * SECTOR as u64).unwrap())
}

fn note(journal: &mut Wal, bytes: &[u8]) {
    journal.append(|record| record.extend_from_slice(bytes));
}

fn add(journal: &mut Wal, bytes: &[u8]) {
    note(journal, bytes);
    journal.sync().unwrap();
}

fn found(records: &[&[u8]], next: u64) -> Replay {
    Replay { records: records.iter().map(|record| record.to_vec()).collect(), next }
}

#[test]
fn wal_returns_written_records_but_none_of_an_earlier_round() {
    let (file, mut journal) = journal();
    add(&mut journal, b"one");
    note(&mut journal, b"t");
    add(&mut journal, &[b'w'; SECTOR]);
    add(&mut journal, b"three");
    assert_eq!(
        read(&file, ID, 1).unwrap(),
        found(&[b"one", &[b"t", &[b'w'; SECTOR][..]].concat(), b"three"], 4)
    );
    assert_eq!(read(&file, ID, 3).unwrap(), found(&[b"three"], 4));
    journal.reset();
    assert_eq!(read(&file, ID, 4).unwrap(), found(&[], 4));
    add(&mut journal, b"four");
    assert_eq!(read(&file, ID, 4).unwrap(), found(&[b"four"], 5));
    assert!(matches!(read(&file, ID + 1, 4), Err(WalError::Foreign)));
}

#[test]
fn wal_returns_records_of_both_halves_in_order() {
    let (file, mut journal) = journal();
    add(&mut journal, b"one");
    note(&mut journal, b"two");
    journal.switch_half().unwrap();
    add(&mut journal, b"three");
    assert_eq!(read(&file, ID, 1).unwrap(), found(&[b"one", b"two", b"three"], 4));
    // The database contains the first half.
    journal.switch_half().unwrap();
    add(&mut journal, b"four");
    assert_eq!(read(&file, ID, 3).unwrap(), found(&[b"three", b"four"], 5));
    // The first half proves that a record of the second one is damaged.
    file.write(8 * SECTOR as u64 + 26, b"x").unwrap();
    assert!(matches!(read(&file, ID, 3), Err(WalError::Damaged(3))));
    assert_eq!(read(&file, ID, 4).unwrap(), found(&[b"four"], 5));
}

#[test]
fn wal_without_halves_is_read_across_the_middle() {
    let (file, mut journal) = journal();
    // The older format had no halves.
    journal.bounds = [SECTOR as u64, 16 * SECTOR as u64, 16 * SECTOR as u64];
    let long = [b'l'; 5 * SECTOR];
    for record in [&long[..], b"two", &long, b"four"] {
        add(&mut journal, record);
    }
    assert!(journal.at > 8 * SECTOR as u64);
    assert_eq!(read(&file, ID, 1).unwrap(), found(&[&long, b"two", &long, b"four"], 5));
}

#[test]
fn wal_ignores_a_torn_last_record_and_refuses_earlier_damage() {
    let (file, mut journal) = journal();
    add(&mut journal, b"one");
    add(&mut journal, b"two");
    file.write(2 * SECTOR as u64 + 26, b"x").unwrap();
    assert_eq!(read(&file, ID, 1).unwrap(), found(&[b"one"], 2));
    add(&mut journal, b"three");
    for from in 1..=2 {
        assert!(matches!(read(&file, ID, from), Err(WalError::Damaged(2))));
    }
    // The database contains the damaged record already.
    assert_eq!(read(&file, ID, 3).unwrap(), found(&[b"three"], 4));
}

#[test]
fn wal_accepts_a_missing_record_that_was_not_synced() {
    let (file, mut journal) = journal();
    for record in [b"one", b"two"] {
        note(&mut journal, record);
        journal.write().unwrap();
    }
    file.write(SECTOR as u64, &[0; SECTOR]).unwrap();
    assert_eq!(read(&file, ID, 1).unwrap(), found(&[], 1));
}

#[test]
fn wal_reports_its_room() {
    let (file, mut journal) = journal();
    let room = journal.room();
    assert_eq!((room, journal.room_of_half()), (7 * SECTOR - super::HEAD, room));
    note(&mut journal, &vec![1; room]);
    assert_eq!(journal.room(), 0);
    journal.sync().unwrap();
    assert_eq!(journal.room(), 0);
    assert_eq!(read(&file, ID, 1).unwrap().records, [vec![1; room]]);
    journal.switch_half().unwrap();
    let other = journal.room();
    assert_eq!(other, 8 * SECTOR - super::HEAD);
    note(&mut journal, &vec![2; other]);
    journal.sync().unwrap();
    assert_eq!(journal.room(), 0);
    assert_eq!(read(&file, ID, 1).unwrap().records, [vec![1; room], vec![2; other]]);
    journal.reset();
    assert_eq!(journal.room(), other);
}
