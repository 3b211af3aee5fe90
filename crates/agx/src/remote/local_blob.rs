//! File of a large output that agx reads itself, because agq runs on this machine.

use std::{fs::File, io, os::unix::fs::FileExt, path::Path};

use agenix_protocol::blob_blocks::Blocks;
use bytes::{Bytes, BytesMut};

/// Number of bytes that are read at once. A piece fits into the cache of a processor, because its
/// reader verifies and writes the piece next.
const PIECE_BYTES: usize = 256 * 1024;

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

    /// Returns the piece that begins at `offset`, or `None` if the file cannot be read or is
    /// damaged. The piece takes the memory of `buffer`.
    pub(crate) fn piece(&self, offset: u64, buffer: BytesMut) -> Option<Bytes> {
        let blocks = Blocks::of(self.total, offset, PIECE_BYTES)?;
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

    use super::{LocalBlob, PIECE_BYTES};

    #[test]
    fn blob_is_read_in_pieces_and_never_damaged() {
        let content: Vec<u8> = (0..PIECE_BYTES + 70_000).map(|at| (at / 251) as u8).collect();
        let mut sums = BlockSums::default();
        sums.add(&content);
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&content).and_then(|()| file.write_all(&sums.finish())).unwrap();
        let blob = LocalBlob::open(file.path(), content.len() as u64).unwrap();
        let piece = |offset| blob.piece(offset, BytesMut::from("earlier bytes"));
        assert_eq!(piece(0).unwrap(), content[..PIECE_BYTES]);
        assert_eq!(piece(PIECE_BYTES as u64).unwrap(), content[PIECE_BYTES..]);
        assert_eq!(piece(content.len() as u64), None);
        std::os::unix::fs::FileExt::write_all_at(file.as_file(), b"x", 100).unwrap();
        assert_eq!(piece(0), None);
        assert!(piece(PIECE_BYTES as u64).is_some(), "the damage is in another block");
    }
}
