//! Copy-on-write view of a file: writes stay in memory, and the file is never changed. The view
//! serves to read a database that needs a repair or a migration first.

use std::{
    collections::BTreeMap,
    fs::File,
    io,
    ops::{Bound, Range},
    sync::{Mutex, MutexGuard, PoisonError},
};

use redb::{BackendError, DatabaseError, StorageBackend, backends::FileBackend};

/// Number of bytes of a block of written data.
const BLOCK: usize = 4096;

#[derive(Debug)]
pub(crate) struct CowBackend {
    file: FileBackend,
    over: Mutex<WrittenBlocks>,
}

#[derive(Debug)]
struct WrittenBlocks {
    len: u64,
    /// Length of the prefix of the file that is still visible below written blocks.
    shown: u64,
    /// Written blocks, by number.
    written: BTreeMap<u64, Box<[u8; BLOCK]>>,
}

impl CowBackend {
    pub(crate) fn new(file: File) -> Result<Self, DatabaseError> {
        let file = FileBackend::new(file)?;
        let len = file.len()?;
        Ok(Self { file, over: Mutex::new(WrittenBlocks { len, shown: len, written: BTreeMap::new() }) })
    }

    fn lock(&self) -> MutexGuard<'_, WrittenBlocks> {
        self.over.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WrittenBlocks {
    /// Reads bytes at an offset, and zeros beyond the end of the file.
    fn read(&self, file: &FileBackend, offset: u64, out: &mut [u8]) -> io::Result<()> {
        if offset.saturating_add(out.len() as u64) > self.len {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
        }
        let from_file = usize::try_from(self.shown.saturating_sub(offset)).unwrap_or(usize::MAX);
        let (in_file, after) = out.split_at_mut(from_file.min(out.len()));
        file.read(offset, in_file)?;
        after.fill(0);
        for (block, at, range) in chunks(offset, out.len()) {
            if let Some(written) = self.written.get(&block) {
                let length = range.len();
                out[range].copy_from_slice(&written[at..at + length]);
            }
        }
        Ok(())
    }

    fn write(&mut self, file: &FileBackend, offset: u64, data: &[u8]) -> io::Result<()> {
        for (block, at, range) in chunks(offset, data.len()) {
            if !self.written.contains_key(&block) {
                let start = block * BLOCK as u64;
                let mut whole = Box::new([0; BLOCK]);
                let there = usize::try_from(self.len.saturating_sub(start)).unwrap_or(BLOCK).min(BLOCK);
                self.read(file, start, &mut whole[..there])?;
                self.written.insert(block, whole);
            }
            if let Some(written) = self.written.get_mut(&block) {
                written[at..at + range.len()].copy_from_slice(&data[range]);
            }
        }
        Ok(())
    }

    /// Truncated bytes do not reappear: if the file grows again, it has zeros there.
    fn set_len(&mut self, len: u64) {
        if len < self.len {
            let first_gone = len.div_ceil(BLOCK as u64);
            self.written.retain(|block, _| *block < first_gone);
            let rest = usize::try_from(len % BLOCK as u64).unwrap_or_default();
            if let Some(last) = self.written.get_mut(&(len / BLOCK as u64)) {
                last[rest..].fill(0);
            }
            self.shown = self.shown.min(len);
        }
        self.len = len;
    }
}

/// Returns the blocks of a range: each with its offset in the block, and its part of the range.
fn chunks(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let place = offset + done as u64;
        let at = usize::try_from(place % BLOCK as u64).unwrap_or_default();
        let range = done..len.min(done + BLOCK - at);
        done = range.end;
        (!range.is_empty()).then_some((place / BLOCK as u64, at, range))
    })
}

impl StorageBackend for CowBackend {
    fn len(&self) -> io::Result<u64> {
        Ok(self.lock().len)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.lock().read(&self.file, offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.lock().set_len(len);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.lock().write(&self.file, offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.file.close()
    }

    // Excludes writers, but not other readers.
    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.file.try_lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.file.unlock_range(start, end)
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, io::Write};

    use redb::StorageBackend;

    use super::{BLOCK, CowBackend};

    fn bytes(overlay: &CowBackend) -> Vec<u8> {
        let mut all = vec![7; usize::try_from(overlay.len().unwrap()).unwrap()];
        overlay.read(0, &mut all).unwrap();
        all
    }

    #[test]
    fn cow_backend_behaves_like_a_file_and_leaves_the_file_unchanged() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let mut model = vec![1; 3 * BLOCK + 100];
        file.write_all(&model).unwrap();
        let before = model.clone();
        let overlay = CowBackend::new(File::open(file.path()).unwrap()).unwrap();
        assert_eq!(bytes(&overlay), model);

        let write = |overlay: &CowBackend, model: &mut Vec<u8>, offset: usize, data: &[u8]| {
            overlay.write(offset as u64, data).unwrap();
            model[offset..offset + data.len()].copy_from_slice(data);
            assert_eq!(bytes(overlay), *model);
        };
        let resize = |overlay: &CowBackend, model: &mut Vec<u8>, len: usize| {
            overlay.set_len(len as u64).unwrap();
            model.resize(len, 0);
            assert_eq!(bytes(overlay), *model);
        };
        write(&overlay, &mut model, BLOCK - 3, &[2; BLOCK + 9]);
        write(&overlay, &mut model, 3 * BLOCK + 90, &[3; 10]);
        resize(&overlay, &mut model, BLOCK + 5);
        resize(&overlay, &mut model, 4 * BLOCK);
        write(&overlay, &mut model, 2 * BLOCK + 1, &[4; 1]);
        resize(&overlay, &mut model, 3);
        resize(&overlay, &mut model, 2 * BLOCK);
        let past_the_end = overlay.read(2 * BLOCK as u64, &mut [0]);
        assert!(past_the_end.is_err());
        assert_eq!(std::fs::read(file.path()).unwrap(), before);
    }
}
