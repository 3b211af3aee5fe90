//! Form of the file of a blob: its content, and then a CRC-32 of each block of the content.

use bytes::{BufMut, Bytes, BytesMut};

/// Number of bytes of a block; the last block may have fewer.
const BLOCK_BYTES: usize = 64 * 1024;
/// Number of bytes of a checksum.
const SUM_BYTES: u64 = 4;

/// Checksums of the blocks of a content that comes in chunks.
#[derive(Debug, Clone, Default)]
pub struct BlockSums {
    /// Checksums of the complete blocks.
    complete: BytesMut,
    /// Checksum of the last block, and its number of bytes.
    last: crc32fast::Hasher,
    last_bytes: usize,
}

impl BlockSums {
    /// Adds the next bytes of the content.
    pub fn add(&mut self, mut chunk: &[u8]) {
        while !chunk.is_empty() {
            let (now, rest) = chunk.split_at(chunk.len().min(BLOCK_BYTES - self.last_bytes));
            self.last.update(now);
            self.last_bytes += now.len();
            chunk = rest;
            if self.last_bytes == BLOCK_BYTES {
                let full = std::mem::take(&mut self.last);
                self.complete.put_u32_le(full.finalize());
                self.last_bytes = 0;
            }
        }
    }

    /// Returns the bytes that follow the content.
    pub fn finish(mut self) -> Bytes {
        if self.last_bytes > 0 {
            self.complete.put_u32_le(self.last.finalize());
        }
        self.complete.freeze()
    }
}

/// Returns the number of bytes of the file of a content of `total` bytes.
pub fn file_bytes(total: u64) -> u64 {
    total + SUM_BYTES * total.div_ceil(BLOCK_BYTES as u64)
}

/// Blocks of a content of `total` bytes that a range touches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Blocks {
    total: u64,
    /// Number of the first block, and the number after the last one.
    first: u64,
    end: u64,
    /// Offset of the range in the first block, and its number of bytes.
    skip: usize,
    length: usize,
}

impl Blocks {
    /// Returns the blocks of a range, or `None` for a range without bytes.
    pub fn of(total: u64, offset: u64, length: usize) -> Option<Self> {
        let block = BLOCK_BYTES as u64;
        let length = total.checked_sub(offset)?.min(length as u64);
        if length == 0 {
            return None;
        }
        let (first, end) = (offset / block, (offset + length).div_ceil(block));
        let skip = usize::try_from(offset % block).ok()?;
        Some(Self { total, first, end, skip, length: usize::try_from(length).ok()? })
    }

    /// Returns the range of the file that has the content of the blocks.
    pub fn data(&self) -> (u64, usize) {
        let start = self.first * BLOCK_BYTES as u64;
        let end = (self.end * BLOCK_BYTES as u64).min(self.total);
        (start, usize::try_from(end - start).unwrap_or(usize::MAX))
    }

    /// Returns the range of the file that has the checksums of the blocks.
    pub fn checksums(&self) -> (u64, usize) {
        let bytes = (self.end - self.first) * SUM_BYTES;
        (self.total + self.first * SUM_BYTES, usize::try_from(bytes).unwrap_or(usize::MAX))
    }

    /// Returns the bytes of the range, or `None` if a block does not have its checksum.
    pub fn verified(&self, data: &Bytes, checksums: &Bytes) -> Option<Bytes> {
        let mut sums = checksums.chunks(4);
        let is_sound = |block: &[u8]| sums.next() == Some(&crc32fast::hash(block).to_le_bytes()[..]);
        if !data.chunks(BLOCK_BYTES).all(is_sound) {
            return None;
        }
        (data.len() >= self.skip + self.length).then(|| data.slice(self.skip..self.skip + self.length))
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;

    use super::{BLOCK_BYTES, BlockSums, Blocks, file_bytes};

    /// Returns the file of `content`, which was written in chunks of `chunk` bytes.
    fn file(content: &[u8], chunk: usize) -> Vec<u8> {
        let mut sums = BlockSums::default();
        content.chunks(chunk).for_each(|chunk| sums.add(chunk));
        [content, &sums.finish()].concat()
    }

    fn read(file: &[u8], total: u64, offset: u64, length: usize) -> Option<Bytes> {
        let Some(blocks) = Blocks::of(total, offset, length) else { return Some(Bytes::new()) };
        let part = |(start, bytes): (u64, usize)| {
            let start = usize::try_from(start).unwrap();
            Bytes::copy_from_slice(&file[start..start + bytes])
        };
        blocks.verified(&part(blocks.data()), &part(blocks.checksums()))
    }

    #[test]
    fn range_ends_with_the_content() {
        let file = file(b"hello", 2);
        assert_eq!((file.len() as u64, file_bytes(5)), (9, 9));
        assert_eq!(read(&file, 5, 1, 100).unwrap(), "ello");
        assert_eq!([Blocks::of(5, 5, 1), Blocks::of(5, 6, 1), Blocks::of(5, 0, 0)], [None; 3]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn ranges_of_a_file_are_those_of_its_content_and_damage_is_seen(
            total in 0..4 * BLOCK_BYTES, chunk in 1..2 * BLOCK_BYTES, offset in 0..4 * BLOCK_BYTES,
            length in 0..2 * BLOCK_BYTES, damage in 0..4 * BLOCK_BYTES,
        ) {
            let content: Vec<u8> = (0..total).map(|at| (at / 251) as u8 ^ at as u8).collect();
            let mut file = file(&content, chunk);
            prop_assert_eq!(file.len() as u64, file_bytes(total as u64));
            let (start, end) = (offset.min(total), (offset + length).min(total));
            let found = read(&file, total as u64, offset as u64, length);
            prop_assert_eq!(found.as_deref(), Some(&content[start.min(end)..end]));
            if (start..end).contains(&damage) {
                file[damage] ^= 1;
                prop_assert_eq!(read(&file, total as u64, offset as u64, length), None);
            }
        }
    }
}
