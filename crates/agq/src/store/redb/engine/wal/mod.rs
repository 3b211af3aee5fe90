//! The journal: a file of fixed size in front of the database. A batch is durable when it stands there, with one sync and no
//! page of the database written. It has two halves: while what is in one of them is brought into the database, records go into
//! the other.
//!
//! It knows bytes and their order, not what they mean. A record is `length, id, number, flag, checksum, bytes`, and begins at a
//! multiple of [`SECTOR`]. Numbers count on for ever, so that what an earlier round left behind is told from what is new; `id` tells
//! the journals of two databases apart.

use std::{collections::BTreeMap, io};

use redb::StorageBackend;

/// What a disk writes whole. A record never shares one with another.
const SECTOR: usize = 512;
/// The first sector says which journal this is.
const FIRST: u64 = SECTOR as u64;
const MAGIC: &[u8; 16] = b"agq journal 1\n\0\0";
/// Length, id, number, flag, checksum.
const HEAD: usize = 4 + 8 + 8 + 1 + 4;
/// Zeros are written in pieces of this size.
const PIECE: usize = 1 << 20;

/// The journal while agq runs.
pub(crate) struct Wal {
    file: Box<dyn StorageBackend>,
    id: u64,
    /// Where the halves begin, and where the second one ends.
    bounds: [u64; 3],
    /// Which half records go into.
    half: usize,
    /// The number of the next record, and where it goes.
    next: u64,
    at: u64,
    /// The next record: room for its head, and behind it what it will hold. Its memory is used again and again.
    pending: Vec<u8>,
    /// Whether everything that was written is on disk.
    is_synced: bool,
}

/// What was found in a journal.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Replay {
    /// The contents of its records, in order.
    pub(crate) records: Vec<Vec<u8>>,
    /// The number that comes next.
    pub(crate) next: u64,
}

/// Why a journal cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WalError {
    #[error("it is not the journal of this database, or its beginning is damaged")]
    Foreign,
    #[error("record {0} is damaged, and there are later ones")]
    Damaged(u64),
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl Wal {
    /// Makes a journal of so many bytes out of a file, whatever was in it. It is on disk when this returns.
    pub(crate) fn create(file: Box<dyn StorageBackend>, id: u64, len: u64) -> io::Result<Self> {
        let had = file.len()?;
        let len = len.max(had);
        if had < len {
            file.set_len(len)?;
            // Written, not only reserved: a sync that had to change the file system's tables would take twice as long.
            let zeros = vec![0; PIECE];
            let mut at = had;
            while at < len {
                let piece = usize::try_from(len - at).unwrap_or(PIECE).min(PIECE);
                file.write(at, &zeros[..piece])?;
                at += piece as u64;
            }
        }
        let mut head = [0; SECTOR];
        head[..16].copy_from_slice(MAGIC);
        head[16..24].copy_from_slice(&id.to_le_bytes());
        let sum = crc32fast::hash(&head[..24]);
        head[24..28].copy_from_slice(&sum.to_le_bytes());
        file.write(0, &head)?;
        file.sync_data()?;
        Ok(Self::begun(file, id, len, 1))
    }

    /// A journal whose records are all in the database: its first half begins anew, with this number.
    pub(crate) fn reuse(file: Box<dyn StorageBackend>, id: u64, next: u64) -> io::Result<Self> {
        let len = file.len()?;
        Ok(Self::begun(file, id, len, next))
    }

    fn begun(file: Box<dyn StorageBackend>, id: u64, len: u64, next: u64) -> Self {
        let middle = FIRST + len.saturating_sub(FIRST) / 2;
        let bounds = [FIRST, middle - middle % FIRST, len];
        Self { file, id, bounds, half: 0, next, at: FIRST, pending: vec![0; HEAD], is_synced: true }
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// The number that the first record has that the database will not hold, when everything until now is in it.
    pub(crate) fn next(&self) -> u64 {
        // What is pending has no number yet, and is in the database then.
        self.next
    }

    /// How many bytes the next record has room for in this half, together with what is pending.
    pub(crate) fn room(&self) -> usize {
        let left = self.bounds[self.half + 1].saturating_sub(self.at);
        usize::try_from(left).unwrap_or(usize::MAX).saturating_sub(self.pending.len())
    }

    /// How many bytes a record has room for in a half that is empty.
    pub(crate) fn room_of_half(&self) -> usize {
        let [first, middle, end] = self.bounds;
        let smaller = (middle - first).min(end.saturating_sub(middle));
        usize::try_from(smaller).unwrap_or(usize::MAX).saturating_sub(HEAD)
    }

    /// Adds to what the next record will hold.
    pub(crate) fn append(&mut self, add: impl FnOnce(&mut Vec<u8>)) {
        add(&mut self.pending);
    }

    /// How many bytes wait for the next record.
    pub(crate) fn pending(&self) -> usize {
        self.pending.len() - HEAD
    }

    /// Whether something is not on disk yet that was noted.
    pub(crate) fn owes_sync(&self) -> bool {
        !self.is_synced || self.pending() > 0
    }

    /// Writes what is pending as one record. A power failure may lose it yet.
    pub(crate) fn write(&mut self) -> io::Result<()> {
        if self.pending() == 0 {
            return Ok(());
        }
        let length = u32::try_from(self.pending()).map_err(io::Error::other)?;
        let (head, noted) = self.pending.split_at_mut(HEAD);
        head[..4].copy_from_slice(&length.to_le_bytes());
        head[4..12].copy_from_slice(&self.id.to_le_bytes());
        head[12..20].copy_from_slice(&self.next.to_le_bytes());
        head[20] = u8::from(self.is_synced);
        let (covered, sum) = head.split_at_mut(HEAD - 4);
        sum.copy_from_slice(&checksum(covered, noted).to_le_bytes());
        self.pending.resize(self.pending.len().next_multiple_of(SECTOR), 0);
        self.is_synced = false;
        self.file.write(self.at, &self.pending)?;
        self.at += self.pending.len() as u64;
        self.next += 1;
        self.forget_pending();
        Ok(())
    }

    fn forget_pending(&mut self) {
        self.pending.truncate(HEAD);
        // The room that one large record took is not kept.
        self.pending.shrink_to(PIECE);
    }

    /// Makes everything durable that was noted.
    pub(crate) fn sync(&mut self) -> io::Result<()> {
        self.write()?;
        if !self.is_synced {
            self.file.sync_data()?;
            self.is_synced = true;
        }
        Ok(())
    }

    /// Writes what is pending; what comes after that goes into the other half, of which everything is in the database, durably.
    pub(crate) fn switch_half(&mut self) -> io::Result<()> {
        self.write()?;
        self.half = 1 - self.half;
        self.at = self.bounds[self.half];
        Ok(())
    }

    /// Everything is in the database, durably: the next record goes to the beginning of its half.
    pub(crate) fn reset(&mut self) {
        self.forget_pending();
        (self.at, self.is_synced) = (self.bounds[self.half], true);
    }
}

/// Reads the records of a journal from a number on.
pub(crate) fn read(file: &dyn StorageBackend, id: u64, from: u64) -> Result<Replay, WalError> {
    let mut bytes = vec![0; usize::try_from(file.len()?).map_err(io::Error::other)?];
    file.read(0, &mut bytes)?;
    let is_ours = bytes.len() >= SECTOR
        && bytes[..16] == *MAGIC
        && bytes[16..24] == id.to_le_bytes()
        && bytes[24..28] == crc32fast::hash(&bytes[..24]).to_le_bytes();
    if !is_ours {
        return Err(WalError::Foreign);
    }
    let mut there = BTreeMap::new();
    let mut at = SECTOR;
    while at < bytes.len() {
        let Some(record) = record_at(&bytes, at, id) else {
            at += SECTOR;
            continue;
        };
        at += (HEAD + record.bytes.len()).next_multiple_of(SECTOR);
        // What is in the database already is of no interest.
        if record.number >= from {
            there.insert(record.number, record);
        }
    }
    let mut found = Replay { records: Vec::new(), next: from };
    while let Some(record) = there.remove(&found.next) {
        found.records.push(record.bytes.to_vec());
        found.next += 1;
    }
    // A record that was written when those before it were on disk proves that they were.
    if there.values().any(|record| record.is_after_sync) {
        return Err(WalError::Damaged(found.next));
    }
    Ok(found)
}

struct WalRecord<'b> {
    number: u64,
    /// Whether everything before it was on disk when it was written.
    is_after_sync: bool,
    bytes: &'b [u8],
}

fn record_at(bytes: &[u8], at: usize, id: u64) -> Option<WalRecord<'_>> {
    let (head, rest) = bytes.get(at..)?.split_at_checked(HEAD)?;
    let (covered, sum) = head.split_at(HEAD - 4);
    if covered[4..12] != id.to_le_bytes() {
        return None;
    }
    let length = u32::from_le_bytes(covered[..4].try_into().ok()?);
    let content = rest.get(..usize::try_from(length).ok()?)?;
    if sum != checksum(covered, content).to_le_bytes() {
        return None;
    }
    let number = u64::from_le_bytes(covered[12..20].try_into().ok()?);
    Some(WalRecord { number, is_after_sync: covered[20] == 1, bytes: content })
}

fn checksum(head: &[u8], bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(head);
    hasher.update(bytes);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use redb::{StorageBackend, backends::InMemoryBackend};

    use super::{Replay, SECTOR, Wal, WalError, read};

    /// Memory that two can hold.
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
    fn what_was_written_comes_back_and_an_earlier_round_does_not() {
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
    fn records_go_into_one_half_then_into_the_other_and_come_back_in_their_order() {
        let (file, mut journal) = journal();
        add(&mut journal, b"one");
        note(&mut journal, b"two");
        journal.switch_half().unwrap();
        add(&mut journal, b"three");
        assert_eq!(read(&file, ID, 1).unwrap(), found(&[b"one", b"two", b"three"], 4));
        // The first half is in the database.
        journal.switch_half().unwrap();
        add(&mut journal, b"four");
        assert_eq!(read(&file, ID, 3).unwrap(), found(&[b"three", b"four"], 5));
        // What of the second half is damaged is proved by the first.
        file.write(8 * SECTOR as u64 + 26, b"x").unwrap();
        assert!(matches!(read(&file, ID, 3), Err(WalError::Damaged(3))));
        assert_eq!(read(&file, ID, 4).unwrap(), found(&[b"four"], 5));
    }

    #[test]
    fn what_an_older_agq_wrote_in_one_piece_is_read_across_the_middle() {
        let (file, mut journal) = journal();
        // It knew of no halves.
        journal.bounds = [SECTOR as u64, 16 * SECTOR as u64, 16 * SECTOR as u64];
        let long = [b'l'; 5 * SECTOR];
        for record in [&long[..], b"two", &long, b"four"] {
            add(&mut journal, record);
        }
        assert!(journal.at > 8 * SECTOR as u64);
        assert_eq!(read(&file, ID, 1).unwrap(), found(&[&long, b"two", &long, b"four"], 5));
    }

    #[test]
    fn a_torn_last_record_is_none_and_a_damaged_one_before_others_is_refused() {
        let (file, mut journal) = journal();
        add(&mut journal, b"one");
        add(&mut journal, b"two");
        file.write(2 * SECTOR as u64 + 26, b"x").unwrap();
        assert_eq!(read(&file, ID, 1).unwrap(), found(&[b"one"], 2));
        add(&mut journal, b"three");
        for from in 1..=2 {
            assert!(matches!(read(&file, ID, from), Err(WalError::Damaged(2))));
        }
        // What is damaged is in the database already.
        assert_eq!(read(&file, ID, 3).unwrap(), found(&[b"three"], 4));
    }

    #[test]
    fn a_record_that_others_did_not_wait_for_may_be_missing() {
        let (file, mut journal) = journal();
        for record in [b"one", b"two"] {
            note(&mut journal, record);
            journal.write().unwrap();
        }
        file.write(SECTOR as u64, &[0; SECTOR]).unwrap();
        assert_eq!(read(&file, ID, 1).unwrap(), found(&[], 1));
    }

    #[test]
    fn it_says_how_much_it_has_room_for() {
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
}
