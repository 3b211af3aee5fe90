//! The write-ahead log (WAL): a file of fixed size that receives every change before the database
//! does. A batch is durable when its record is synced, which writes no page of the database. The
//! file has two halves: while the records of one half are flushed into the database, new records go
//! into the other half.
//!
//! The WAL stores bytes in order, and does not interpret them. A record is `length, id, number,
//! flag, checksum, bytes`, and begins at a multiple of [`SECTOR`]. Record numbers only increase,
//! which distinguishes new records from those of an earlier round. The `id` distinguishes the WALs
//! of two databases.

use std::{collections::BTreeMap, io};

use redb::StorageBackend;

/// Number of bytes that a disk writes atomically. Records never share a sector.
const SECTOR: usize = 512;
/// Offset of the first record. The first sector has the magic bytes and the id.
const FIRST: u64 = SECTOR as u64;
const MAGIC: &[u8; 16] = b"agq journal 1\n\0\0";
/// Number of bytes of a record head: length, id, number, flag, checksum.
const HEAD: usize = 4 + 8 + 8 + 1 + 4;
/// Number of zero bytes written at once, and maximum capacity that the record buffer keeps.
const CHUNK: usize = 1 << 20;

pub(crate) struct Wal {
    file: Box<dyn StorageBackend>,
    id: u64,
    /// Offsets of the first half, of the second half, and of the end.
    bounds: [u64; 3],
    half: usize,
    /// Number and offset of the next record.
    next: u64,
    at: u64,
    /// Buffer of the next record: room for its head, then its content. The buffer is reused.
    pending: Vec<u8>,
    /// True if every written record is on disk.
    is_synced: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Replay {
    pub(crate) records: Vec<Vec<u8>>,
    /// Number of the record after the last one.
    pub(crate) next: u64,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum WalError {
    #[error("it is not the write-ahead log of this database, or its beginning is damaged")]
    Foreign,
    #[error("record {0} is damaged, and there are later ones")]
    Damaged(u64),
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl Wal {
    /// Formats `file` as an empty WAL of at least `len` bytes, which is then on disk.
    pub(crate) fn create(file: Box<dyn StorageBackend>, id: u64, len: u64) -> io::Result<Self> {
        let had = file.len()?;
        let len = len.max(had);
        if had < len {
            file.set_len(len)?;
            // Zeros are written instead of only reserving space, because later syncs would have to
            // update the metadata of the file system.
            let zeros = vec![0; CHUNK];
            let mut at = had;
            while at < len {
                let chunk = usize::try_from(len - at).unwrap_or(CHUNK).min(CHUNK);
                file.write(at, &zeros[..chunk])?;
                at += chunk as u64;
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

    /// Opens a WAL whose records are all in the database. Record `next` goes into the first half.
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

    /// Returns the number of the first record that a flush of everything until now leaves out.
    pub(crate) fn next(&self) -> u64 {
        // Pending bytes have no number yet, and such a flush contains them.
        self.next
    }

    /// Returns the number of bytes that can be added to the next record in this half.
    pub(crate) fn room(&self) -> usize {
        let left = self.bounds[self.half + 1].saturating_sub(self.at);
        usize::try_from(left).unwrap_or(usize::MAX).saturating_sub(self.pending.len())
    }

    /// Returns the number of bytes that a record can have in an empty half.
    pub(crate) fn room_of_half(&self) -> usize {
        let [first, middle, end] = self.bounds;
        let smaller = (middle - first).min(end.saturating_sub(middle));
        usize::try_from(smaller).unwrap_or(usize::MAX).saturating_sub(HEAD)
    }

    /// Adds content to the next record. Nothing is written yet.
    pub(crate) fn append(&mut self, add: impl FnOnce(&mut Vec<u8>)) {
        add(&mut self.pending);
    }

    /// Returns the number of bytes of content that the next record has so far.
    pub(crate) fn pending(&self) -> usize {
        self.pending.len() - HEAD
    }

    /// Returns true if appended content is not on disk.
    pub(crate) fn owes_sync(&self) -> bool {
        !self.is_synced || self.pending() > 0
    }

    /// Writes the pending content as one record, without a sync: a power failure can lose it.
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
        // Memory that one large record took is released.
        self.pending.shrink_to(CHUNK);
    }

    /// Makes all appended content durable.
    pub(crate) fn sync(&mut self) -> io::Result<()> {
        self.write()?;
        if !self.is_synced {
            self.file.sync_data()?;
            self.is_synced = true;
        }
        Ok(())
    }

    /// Writes the pending content, then continues in the other half. The caller ensures that the
    /// database durably contains every record of that half.
    pub(crate) fn switch_half(&mut self) -> io::Result<()> {
        self.write()?;
        self.half = 1 - self.half;
        self.at = self.bounds[self.half];
        Ok(())
    }

    /// Discards pending content, and continues at the beginning of this half. The caller ensures
    /// that the database durably contains everything.
    pub(crate) fn reset(&mut self) {
        self.forget_pending();
        (self.at, self.is_synced) = (self.bounds[self.half], true);
    }
}

/// Reads the records of a WAL whose numbers are `from` and above.
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
        // The database contains earlier records already.
        if record.number >= from {
            there.insert(record.number, record);
        }
    }
    let mut found = Replay { records: Vec::new(), next: from };
    while let Some(record) = there.remove(&found.next) {
        found.records.push(record.bytes.to_vec());
        found.next += 1;
    }
    // A later record that was written after a sync proves that a missing record was on disk, and is
    // now damaged.
    if there.values().any(|record| record.is_after_sync) {
        return Err(WalError::Damaged(found.next));
    }
    Ok(found)
}

struct WalRecord<'b> {
    number: u64,
    /// True if every earlier record was on disk when this record was written.
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
mod tests;
