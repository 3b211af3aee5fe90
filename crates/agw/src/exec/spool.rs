//! Spool files: files without a name that take the output of tasks. The stdout of a task becomes
//! the stdin of the next one without a copy in the memory of the worker. A file disappears with its
//! last open descriptor, even after a crash.
//!
//! Spool files are recycled, because creating and deleting a file takes longer than most uses of
//! it. A file is recycled only if no other process has it open, because an escaped process may
//! still write to it. Each task gets an open file description of its own, so that the lease check
//! can detect such a process. A file is not recycled either if a task has linked it to a name
//! (`ln -L /proc/self/fd/1 NAME`), because later jobs would write to the file of that name.

use std::{
    fs::{self, File, Metadata},
    io::{self, Seek, SeekFrom},
    ops::Deref,
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use agenix_protocol::documents::CapturedOutput;
use agenix_sys::is_sole_opener;
use rustix::fs::statvfs;

use crate::exec::output_quota::DiskSpace;

/// File that is always empty.
const NOTHING: &str = "/dev/null";
/// Maximum number of empty files in the pool.
const MAX_FREE: usize = 64;

/// Error of the spool itself, or of the directory of the scratch directories or of the uses of
/// orders. All belong to the worker, so that no job causes the error.
#[derive(Debug, thiserror::Error)]
#[error("cannot create files in {}: {error}", .directory.display())]
pub(crate) struct SpoolError {
    directory: PathBuf,
    error: io::Error,
}

impl SpoolError {
    /// Marks `error` as an error of the worker's `directory`.
    pub(crate) fn of(directory: &Path, error: io::Error) -> io::Error {
        io::Error::other(Self { directory: directory.to_owned(), error })
    }
}

/// Directory of the spool files, and the pool of recycled files.
#[derive(Debug, Clone)]
pub(crate) struct Spool(Arc<FilePool>);

#[derive(Debug)]
struct FilePool {
    directory: PathBuf,
    /// `/dev/null`, opened once.
    nothing: Option<File>,
    /// Empty files that no other process has open.
    free: Mutex<Vec<File>>,
}

impl FilePool {
    /// Creates a file. Creates the directory as well if it is missing, because a cleaner of
    /// temporary directories may have removed it.
    fn create(&self) -> io::Result<File> {
        match tempfile::tempfile_in(&self.directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                fs::create_dir_all(&self.directory)?;
                tempfile::tempfile_in(&self.directory)
            }
            created => created,
        }
    }

    fn free(&self) -> MutexGuard<'_, Vec<File>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Empties a file and adds it to the pool, unless another process has the file open or can
    /// open it by a name.
    fn recycle(&self, file: File) {
        let is_empty = || nameless(&file).is_some_and(|it| it.len() == 0 || empty(&file));
        if !is_sole_opener(&file) || !is_empty() {
            return;
        }
        let mut free = self.free();
        if free.len() < MAX_FREE {
            free.push(file);
        }
    }
}

impl Spool {
    pub(crate) fn new(directory: &Path) -> Self {
        let (nothing, free) = (File::open(NOTHING).ok(), Mutex::default());
        Self(Arc::new(FilePool { directory: directory.to_owned(), nothing, free }))
    }

    /// Returns an empty stdin.
    pub(crate) fn nothing(&self) -> io::Result<File> {
        self.0.nothing.as_ref().map_or_else(|| File::open(NOTHING), File::try_clone)
    }

    /// Returns an empty file, recycled or new. The error is a [`SpoolError`].
    pub(crate) fn file(&self) -> io::Result<SpoolFile> {
        let used = self.0.free().pop();
        let failed = |error| SpoolError::of(&self.0.directory, error);
        let file = used.map_or_else(|| self.0.create(), Ok).map_err(failed)?;
        let (file, pool) = (Some(file), Some(Arc::clone(&self.0)));
        Ok(SpoolFile { file, pool, is_shared: AtomicBool::new(false), given: Mutex::default() })
    }

    /// Returns the free and total bytes of the disk that holds the spool.
    pub(crate) fn room(&self) -> io::Result<DiskSpace> {
        room(&self.0.directory)
    }

    /// Returns a file with `content`, and with the offset at its start.
    pub(crate) fn file_with(&self, content: &[u8]) -> io::Result<File> {
        let file = self.file()?;
        file.write_all_at(content, 0)?;
        file.open()
    }
}

/// Output file of a task: a spool file or a file of the user.
#[derive(Debug)]
pub(crate) struct SpoolFile {
    /// `None` only during the drop.
    file: Option<File>,
    /// Pool that recycles the file. `None` for a file of the user.
    pool: Option<Arc<FilePool>>,
    /// Number of bytes of the output while agq may keep the file, which is not changed here
    /// meanwhile.
    given: Mutex<Option<u64>>,
    /// Set when a task shares this open file description, which the lease check cannot detect.
    is_shared: AtomicBool,
}

impl SpoolFile {
    /// Opens the file for a task to read or write, with the offset at its start.
    pub(crate) fn open(&self) -> io::Result<File> {
        if let Some(file) = self.pool.as_ref().and_then(|_| reopen(self)) {
            return Ok(file);
        }
        self.is_shared.store(true, Ordering::Relaxed);
        // Both descriptors share one offset, so no task may still be writing.
        let mut again = self.try_clone()?;
        again.seek(SeekFrom::Start(0))?;
        Ok(again)
    }

    /// Lets agq keep the file, whose output has `length` bytes. Returns false for a file of the
    /// user or with a name, if a process that a task has left behind may still write to the file,
    /// and if agq may keep the file already.
    pub(crate) fn give(&self, length: u64) -> bool {
        let is_own = self.pool.is_some() && !self.is_shared.load(Ordering::Relaxed);
        let mut given = self.given();
        let is_possible = is_own && given.is_none() && is_sole_opener(self) && nameless(self).is_some();
        if is_possible {
            *given = Some(length);
        }
        is_possible
    }

    /// Takes a given file back. The caller knows that no request for the file is on its way to agq.
    /// If agq has the file nevertheless, the file has a name, and is not recycled.
    pub(crate) fn take_back(&self) {
        *self.given() = None;
    }

    fn given(&self) -> MutexGuard<'_, Option<u64>> {
        self.given.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of bytes of the output. Behind the output, agq may have added checksums.
    pub(crate) fn length(&self) -> u64 {
        let given = *self.given();
        given.unwrap_or_else(|| self.metadata().map_or(0, |metadata| metadata.len()))
    }
}

impl From<File> for SpoolFile {
    fn from(file: File) -> Self {
        Self { file: Some(file), pool: None, is_shared: AtomicBool::new(false), given: Mutex::default() }
    }
}

impl Deref for SpoolFile {
    type Target = File;

    fn deref(&self) -> &File {
        self.file.as_ref().expect("the file is taken only in the drop")
    }
}

impl Drop for SpoolFile {
    fn drop(&mut self) {
        let is_own = self.given().is_none() && !self.is_shared.load(Ordering::Relaxed);
        if let (Some(file), Some(pool), true) = (self.file.take(), &self.pool, is_own) {
            pool.recycle(file);
        }
    }
}

/// Returns the metadata of a file that has no name.
fn nameless(file: &File) -> Option<Metadata> {
    file.metadata().ok().filter(|metadata| metadata.nlink() == 0)
}

/// Opens the file with an open file description of its own, if the system allows that.
#[cfg(target_os = "linux")]
fn reopen(file: &File) -> Option<File> {
    File::options().read(true).write(true).open(name(file)).ok()
}

/// Truncates a file that no other process has open, and returns true on success.
///
/// The truncation uses a separate description, which is closed at once. The reason is
/// `auto_da_alloc` of ext4: after a truncation, the next close of any description of the file
/// writes its data to the disk at once. Without the separate description, the close by a task after
/// its output would wait for the disk, and so would a second truncation.
#[cfg(target_os = "linux")]
fn empty(file: &File) -> bool {
    File::options().write(true).truncate(true).open(name(file)).is_ok()
}

/// Returns a path that opens a file without a name.
#[cfg(target_os = "linux")]
fn name(file: &File) -> String {
    use std::os::fd::AsRawFd;

    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// Returns `None`, because other systems do not recycle files and one description is enough.
#[cfg(not(target_os = "linux"))]
fn reopen(_file: &File) -> Option<File> {
    None
}

#[cfg(not(target_os = "linux"))]
fn empty(_file: &File) -> bool {
    false
}

/// Returns the bytes of the disk of `directory` that are free for this user, and all its bytes.
pub(crate) fn room(directory: &Path) -> io::Result<DiskSpace> {
    let disk = statvfs(directory)?;
    let bytes = |blocks: u64| blocks.saturating_mul(disk.f_frsize);
    Ok(DiskSpace { free: bytes(disk.f_bavail), total: bytes(disk.f_blocks) })
}

/// Returns the bytes of disk that `file` takes. A sparse file takes less than its length.
pub(crate) fn taken(file: &File) -> u64 {
    file.metadata().map_or(0, |metadata| metadata.blocks().saturating_mul(512))
}

/// Returns the first `cap` bytes of `file` and its length.
pub(crate) fn kept(file: &File, cap: usize) -> io::Result<CapturedOutput> {
    let total = file.metadata()?.len();
    let keep = usize::try_from(total).unwrap_or(usize::MAX).min(cap);
    let mut bytes = vec![0; keep];
    file.read_exact_at(&mut bytes, 0)?;
    let mut kept = CapturedOutput::inline(bytes, total);
    kept.truncate(cap);
    Ok(kept)
}

#[cfg(test)]
mod tests;
