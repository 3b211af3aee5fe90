//! File of a large output that agx reads itself, because agq runs on this machine.

use std::{fs::File, io, os::unix::fs::FileExt, path::Path};

use agenix_protocol::blob_blocks::Blocks;
use bytes::{Bytes, BytesMut};

/// Number of bytes that are read at once. A chunk fits into the cache of a processor, because its
/// reader verifies and writes the chunk next.
const CHUNK_BYTES: usize = 256 * 1024;

/// Open file of a blob.
#[derive(Debug)]
pub(crate) struct LocalBlob {
    file: File,
    /// Number of bytes of the content.
    total: u64,
}

impl LocalBlob {
    /// Opens the file of a content of `total` bytes.
    pub(crate) fn open(path: &Path, total: u64) -> io::Result<Self> {
        Ok(Self { file: File::open(path)?, total })
    }

    /// Returns the chunk that begins at `offset`, or `None` if the file cannot be read or is
    /// damaged. The chunk takes the memory of `buffer`.
    pub(crate) fn chunk(&self, offset: u64, buffer: BytesMut) -> Option<Bytes> {
        let blocks = Blocks::of(self.total, offset, CHUNK_BYTES)?;
        let content = self.range(blocks.data(), buffer).ok()?;
        let checksums = self.range(blocks.checksums(), BytesMut::new()).ok()?;
        blocks.verified(&content, &checksums)
    }

    fn range(&self, (offset, length): (u64, usize), mut buffer: BytesMut) -> io::Result<Bytes> {
        buffer.resize(length, 0);
        self.file.read_exact_at(&mut buffer, offset)?;
        Ok(buffer.freeze())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use agenix_protocol::blob_blocks::BlockSums;
    use bytes::BytesMut;

    use super::{CHUNK_BYTES, LocalBlob};

    #[test]
    fn blob_is_read_in_chunks_and_never_damaged() {
        let content: Vec<u8> = (0..CHUNK_BYTES + 70_000).map(|at| (at / 251) as u8).collect();
        let mut sums = BlockSums::default();
        sums.add(&content);
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&content).and_then(|()| file.write_all(&sums.finish())).unwrap();
        let blob = LocalBlob::open(file.path(), content.len() as u64).unwrap();
        let chunk = |offset| blob.chunk(offset, BytesMut::from("earlier bytes"));
        assert_eq!(chunk(0).unwrap(), content[..CHUNK_BYTES]);
        assert_eq!(chunk(CHUNK_BYTES as u64).unwrap(), content[CHUNK_BYTES..]);
        assert_eq!(chunk(content.len() as u64), None);
        std::os::unix::fs::FileExt::write_all_at(file.as_file(), b"x", 100).unwrap();
        assert_eq!(chunk(0), None);
        assert!(chunk(CHUNK_BYTES as u64).is_some(), "the damage is in another block");
    }
}
