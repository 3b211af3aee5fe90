//! Writing, reading, and damage of the WAL.

use std::sync::Arc;

use redb::{StorageBackend, backends::InMemoryBackend};

use super::{Replay, SECTOR, Wal, WalError, read};

/// Memory that two owners share.
#[derive(Debug, Clone, Default)]
struct SharedBackend(Arc<InMemoryBackend>);

impl StorageBackend for SharedBackend {
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

fn wal() -> (SharedBackend, Wal) {
    let file = SharedBackend::default();
    (file.clone(), Wal::create(Box::new(file), ID, 16 * SECTOR as u64).unwrap())
}

fn note(wal: &mut Wal, bytes: &[u8]) {
    wal.append(|record| record.extend_from_slice(bytes));
}

fn add(wal: &mut Wal, bytes: &[u8]) {
    note(wal, bytes);
    wal.sync().unwrap();
}

fn found(records: &[&[u8]], next: u64) -> Replay {
    Replay { records: records.iter().map(|record| record.to_vec()).collect(), next }
}

#[test]
fn wal_returns_written_records_but_none_of_an_earlier_round() {
    let (file, mut wal) = wal();
    add(&mut wal, b"one");
    note(&mut wal, b"t");
    add(&mut wal, &[b'w'; SECTOR]);
    add(&mut wal, b"three");
    assert_eq!(
        read(&file, ID, 1).unwrap(),
        found(&[b"one", &[b"t", &[b'w'; SECTOR][..]].concat(), b"three"], 4)
    );
    assert_eq!(read(&file, ID, 3).unwrap(), found(&[b"three"], 4));
    wal.reset();
    assert_eq!(read(&file, ID, 4).unwrap(), found(&[], 4));
    add(&mut wal, b"four");
    assert_eq!(read(&file, ID, 4).unwrap(), found(&[b"four"], 5));
    assert!(matches!(read(&file, ID + 1, 4), Err(WalError::Foreign)));
}

#[test]
fn wal_returns_records_of_both_halves_in_order() {
    let (file, mut wal) = wal();
    add(&mut wal, b"one");
    note(&mut wal, b"two");
    wal.switch_half().unwrap();
    add(&mut wal, b"three");
    assert_eq!(read(&file, ID, 1).unwrap(), found(&[b"one", b"two", b"three"], 4));
    // The database contains the first half.
    wal.switch_half().unwrap();
    add(&mut wal, b"four");
    assert_eq!(read(&file, ID, 3).unwrap(), found(&[b"three", b"four"], 5));
    // The first half proves that a record of the second one is damaged.
    file.write(8 * SECTOR as u64 + 26, b"x").unwrap();
    assert!(matches!(read(&file, ID, 3), Err(WalError::Damaged(3))));
    assert_eq!(read(&file, ID, 4).unwrap(), found(&[b"four"], 5));
}

#[test]
fn wal_without_halves_is_read_across_the_middle() {
    let (file, mut wal) = wal();
    // The older format had no halves.
    wal.bounds = [SECTOR as u64, 16 * SECTOR as u64, 16 * SECTOR as u64];
    let long = [b'l'; 5 * SECTOR];
    for record in [&long[..], b"two", &long, b"four"] {
        add(&mut wal, record);
    }
    assert!(wal.at > 8 * SECTOR as u64);
    assert_eq!(read(&file, ID, 1).unwrap(), found(&[&long, b"two", &long, b"four"], 5));
}

#[test]
fn wal_ignores_a_torn_last_record_and_refuses_earlier_damage() {
    let (file, mut wal) = wal();
    add(&mut wal, b"one");
    add(&mut wal, b"two");
    file.write(2 * SECTOR as u64 + 26, b"x").unwrap();
    assert_eq!(read(&file, ID, 1).unwrap(), found(&[b"one"], 2));
    add(&mut wal, b"three");
    for from in 1..=2 {
        assert!(matches!(read(&file, ID, from), Err(WalError::Damaged(2))));
    }
    // The database contains the damaged record already.
    assert_eq!(read(&file, ID, 3).unwrap(), found(&[b"three"], 4));
}

#[test]
fn wal_accepts_a_missing_record_that_was_not_synced() {
    let (file, mut wal) = wal();
    for record in [b"one", b"two"] {
        note(&mut wal, record);
        wal.write().unwrap();
    }
    file.write(SECTOR as u64, &[0; SECTOR]).unwrap();
    assert_eq!(read(&file, ID, 1).unwrap(), found(&[], 1));
}

#[test]
fn wal_reports_its_room() {
    let (file, mut wal) = wal();
    let room = wal.room();
    assert_eq!((room, wal.room_of_half()), (7 * SECTOR - super::HEAD, room));
    note(&mut wal, &vec![1; room]);
    assert_eq!(wal.room(), 0);
    wal.sync().unwrap();
    assert_eq!(wal.room(), 0);
    assert_eq!(read(&file, ID, 1).unwrap().records, [vec![1; room]]);
    wal.switch_half().unwrap();
    let other = wal.room();
    assert_eq!(other, 8 * SECTOR - super::HEAD);
    note(&mut wal, &vec![2; other]);
    wal.sync().unwrap();
    assert_eq!(wal.room(), 0);
    assert_eq!(read(&file, ID, 1).unwrap().records, [vec![1; room], vec![2; other]]);
    wal.reset();
    assert_eq!(wal.room(), other);
}
