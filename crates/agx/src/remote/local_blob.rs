//! File of a large output that agx reads itself, because agq runs on this machine.

use std::{fs::File, io, os::unix::fs::FileExt, path::Path, sync::Arc};

use agenix_protocol::blob_blocks::Blocks;
use bytes::{Bytes, BytesMut};
use tokio::task::spawn_blocking;

/// Number of bytes that are read at once.
const PIECE_BYTES: usize = 1024 * 1024;

/// Open file of a blob.
#[derive(Debug, Clone)]
pub(crate) struct LocalBlob {
    file: Arc<File>,
    /// Number of bytes of the content.
    total: u64,
}

impl LocalBlob {
    /// Opens the file of a content of `total` bytes.
    pub(crate) fn open(path: &Path, total: u64) -> io::Result<Self> {
        Ok(Self { file: Arc::new(File::open(path)?), total })
    }

    /// Returns the piece that begins at `offset`, or `None` if the file cannot be read or is
    /// damaged. The piece takes the memory of `buffer`.
    pub(crate) async fn piece(&self, offset: u64, buffer: BytesMut) -> Option<Bytes> {
        let own = self.clone();
        spawn_blocking(move || own.read(offset, buffer)).await.ok()?
    }

    fn read(&self, offset: u64, buffer: BytesMut) -> Option<Bytes> {
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

    #[tokio::test]
    async fn blob_is_read_in_pieces_and_never_damaged() {
        let content: Vec<u8> = (0..PIECE_BYTES + 70_000).map(|at| (at / 251) as u8).collect();
        let mut sums = BlockSums::default();
        sums.add(&content);
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&content).and_then(|()| file.write_all(&sums.finish())).unwrap();
        let blob = LocalBlob::open(file.path(), content.len() as u64).unwrap();
        let piece = async |offset| blob.piece(offset, BytesMut::from("earlier bytes")).await;
        assert_eq!(piece(0).await.unwrap(), content[..PIECE_BYTES]);
        assert_eq!(piece(PIECE_BYTES as u64).await.unwrap(), content[PIECE_BYTES..]);
        assert_eq!(piece(content.len() as u64).await, None);
        std::os::unix::fs::FileExt::write_all_at(file.as_file(), b"x", 100).unwrap();
        assert_eq!(piece(0).await, None);
        assert!(piece(PIECE_BYTES as u64).await.is_some(), "the damage is in another block");
    }
}
