//! Storage of blobs in a local directory, or one that several nodes share.
//!
//! `DIR/uploads` has the uploads, and `DIR/00` to `DIR/ff` have the blobs.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::{
        fd::AsRawFd,
        unix::fs::{FileExt, MetadataExt},
    },
    path::{Path, PathBuf},
    sync::Arc,
};

use agenix_cli::sync_directory;
use anyhow::Context;
use bytes::Bytes;
use rustix::fs::{AtFlags, CWD, linkat};

use super::{BlobError, BlobFile, BlobFuture, BlobStorage, ListedFile};
use crate::synced_directory;

/// Maximum number of bytes that stay free on the disk, because a database may lie beside the files.
const MAX_RESERVE_BYTES: u64 = 64 << 20;

/// The same for files that may be lost anyway.
const MAX_UNSAFE_RESERVE_BYTES: u64 = 1 << 20;

/// Number of bytes of an upload after which it is synced.
const SYNC_BYTES: u64 = 64 << 20;

/// Maximum number of bytes of an adopted file that has to be synced, because one sync writes it
/// all.
const MAX_ADOPTED_BYTES: u64 = 4 * SYNC_BYTES;

#[derive(Debug, Clone)]
pub(crate) struct BlobDirectory {
    root: PathBuf,
    /// False if files are published before they are synced, and the system writes them back later.
    has_syncs: bool,
    /// Maximum number of bytes that stay free on the disk.
    max_reserve: u64,
}

impl BlobDirectory {
    /// Opens a directory, which is created if it is missing.
    pub(crate) fn open(root: &Path) -> anyhow::Result<Self> {
        let opened = Self::at(root);
        synced_directory::create_all(&opened.uploads()).with_context(|| {
            format!(
                "cannot create the directory for blobs {}: choose another with --blob-dir",
                root.display()
            )
        })?;
        Ok(opened)
    }

    /// Returns a directory that may be missing.
    pub(crate) fn at(root: &Path) -> Self {
        Self { root: root.to_owned(), has_syncs: true, max_reserve: MAX_RESERVE_BYTES }
    }

    /// Returns a directory whose files may be lost when the power fails.
    pub(crate) fn without_syncs(self) -> Self {
        Self { has_syncs: false, ..self }
    }

    /// Returns a directory that may fill its disk almost completely.
    pub(crate) fn with_small_reserve(self) -> Self {
        Self { max_reserve: MAX_UNSAFE_RESERVE_BYTES, ..self }
    }

    /// Returns the path of the file of an upload.
    pub(crate) fn upload_path(&self, upload: &str) -> PathBuf {
        self.uploads().join(upload)
    }

    fn uploads(&self) -> PathBuf {
        self.root.join("uploads")
    }

    fn part(&self, part: u8) -> PathBuf {
        self.root.join(format!("{part:02x}"))
    }

    fn path_of(&self, file: &BlobFile) -> PathBuf {
        self.part(file.hash.0[0]).join(file.to_string())
    }

    /// Fails if `added` bytes do not leave the reserve free.
    fn check_room(&self, added: u64) -> Result<(), BlobError> {
        let disk = rustix::fs::statvfs(&self.root).map_err(io::Error::from)?;
        let bytes = |blocks: u64| blocks.saturating_mul(disk.f_frsize);
        let (free, reserve) = (bytes(disk.f_bavail), reserve_on(bytes(disk.f_blocks), self.max_reserve));
        if free < reserve.saturating_add(added) {
            let shown = self.root.display();
            let why = format!("the disk of {shown} has only {free} bytes left, of which {reserve} stay free");
            return Err(BlobError::Failed(why));
        }
        Ok(())
    }

    fn write_now(&self, upload: &str, offset: u64, data: &[u8]) -> Result<(), BlobError> {
        self.check_room(data.len() as u64)?;
        let path = self.upload_path(upload);
        let file = OpenOptions::new().write(true).create(offset == 0).truncate(offset == 0).open(path)?;
        file.write_all_at(data, offset)?;
        // Otherwise the sync at the end of a large upload would take longer than a client waits.
        let is_due = offset / SYNC_BYTES != (offset + data.len() as u64) / SYNC_BYTES;
        if is_due && self.has_syncs {
            file.sync_data().map_err(|error| BlobError::Unsynced(format!("a sync failed: {error}")))?;
        }
        Ok(())
    }

    /// Links a file without a name. Returns false if the file has a name, or is on another file
    /// system.
    fn adopt_now(&self, upload: &str, file: &File) -> io::Result<bool> {
        let metadata = file.metadata()?;
        if metadata.nlink() > 0 || self.has_syncs && metadata.len() > MAX_ADOPTED_BYTES {
            return Ok(false);
        }
        let from = format!("/proc/self/fd/{}", file.as_raw_fd());
        Ok(linkat(CWD, from, CWD, self.upload_path(upload), AtFlags::SYMLINK_FOLLOW).is_ok())
    }

    fn publish_now(&self, upload: &str, file: &BlobFile) -> io::Result<()> {
        let (from, to) = (self.upload_path(upload), self.path_of(file));
        if self.has_syncs {
            File::open(&from)?.sync_all()?;
        }
        let part = self.part(file.hash.0[0]);
        match fs::create_dir(&part) {
            Ok(()) => self.sync_entries_of(&self.root)?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
        fs::rename(from, to)?;
        self.sync_entries_of(&part)
    }

    /// Syncs a directory, unless this storage has no syncs.
    fn sync_entries_of(&self, directory: &Path) -> io::Result<()> {
        if self.has_syncs { sync_directory(directory) } else { Ok(()) }
    }

    fn read_now(&self, file: &BlobFile, ranges: &[(u64, usize)]) -> Result<Vec<Bytes>, BlobError> {
        let path = self.path_of(file);
        let named = |error: io::Error| {
            let text = format!("{}: {error}", path.display());
            let is_missing = matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof);
            // No start creates the directory of the file. Without that directory, the storage is
            // away, as a disk that is not mounted.
            let is_lost = is_missing && path.parent().is_some_and(Path::is_dir);
            if is_lost { BlobError::Lost(text) } else { BlobError::Failed(text) }
        };
        let opened = File::open(&path).map_err(named)?;
        let read = |&(offset, length): &(u64, usize)| {
            let mut bytes = vec![0; length];
            opened.read_exact_at(&mut bytes, offset).map_err(named)?;
            Ok(Bytes::from(bytes))
        };
        ranges.iter().map(read).collect()
    }
}

/// Returns the number of bytes that stay free on a disk of `total` bytes: at most a tenth of it, so
/// that a small disk can be used.
fn reserve_on(total: u64, most: u64) -> u64 {
    most.min(total / 10)
}

fn remove_if_there(path: &Path) -> Result<(), BlobError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

fn list_now(directory: &Path) -> Result<Vec<ListedFile>, BlobError> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry?;
        // A file that was removed since the directory was read is left out.
        let Ok(metadata) = entry.metadata() else { continue };
        let modified_at = metadata.modified()?.into();
        let name = entry.file_name().to_string_lossy().into_owned();
        found.push(ListedFile { name, bytes: metadata.len(), modified_at });
    }
    Ok(found)
}

/// Runs an operation on files on a thread that may block.
fn blocking<T: Send + 'static>(
    operation: impl FnOnce() -> Result<T, BlobError> + Send + 'static,
) -> BlobFuture<T> {
    Box::pin(async move {
        let done = tokio::task::spawn_blocking(operation).await;
        done.unwrap_or_else(|error| Err(BlobError::Failed(error.to_string())))
    })
}

impl BlobStorage for BlobDirectory {
    fn write(&self, upload: &str, offset: u64, data: Bytes) -> BlobFuture<()> {
        let (own, upload) = (self.clone(), upload.to_owned());
        blocking(move || own.write_now(&upload, offset, &data))
    }

    fn adopt(&self, upload: &str, file: &Arc<File>) -> BlobFuture<bool> {
        let (own, upload, file) = (self.clone(), upload.to_owned(), Arc::clone(file));
        blocking(move || Ok(own.adopt_now(&upload, &file)?))
    }

    fn publish(&self, upload: &str, file: &BlobFile) -> BlobFuture<()> {
        let (own, upload, file) = (self.clone(), upload.to_owned(), file.clone());
        blocking(move || Ok(own.publish_now(&upload, &file)?))
    }

    fn discard(&self, upload: &str) -> BlobFuture<()> {
        let path = self.upload_path(upload);
        blocking(move || remove_if_there(&path))
    }

    fn read(&self, file: &BlobFile, ranges: Vec<(u64, usize)>) -> BlobFuture<Vec<Bytes>> {
        let (own, file) = (self.clone(), file.clone());
        blocking(move || own.read_now(&file, &ranges))
    }

    fn path(&self, file: &BlobFile) -> Option<PathBuf> {
        std::path::absolute(self.path_of(file)).ok()
    }

    fn remove(&self, part: u8, name: &str) -> BlobFuture<()> {
        let path = self.part(part).join(name);
        blocking(move || remove_if_there(&path))
    }

    fn list(&self, part: u8) -> BlobFuture<Vec<ListedFile>> {
        let directory = self.part(part);
        blocking(move || list_now(&directory))
    }

    fn list_uploads(&self) -> BlobFuture<Vec<ListedFile>> {
        let directory = self.uploads();
        blocking(move || list_now(&directory))
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::os::unix::fs::symlink;

    use bytes::Bytes;

    use super::{
        BlobDirectory, BlobError, BlobStorage, MAX_RESERVE_BYTES, MAX_UNSAFE_RESERVE_BYTES, SYNC_BYTES,
        reserve_on,
    };

    #[test]
    fn reserve_is_at_most_a_tenth_of_the_disk() {
        assert_eq!(reserve_on(1 << 40, MAX_RESERVE_BYTES), 64 << 20);
        assert_eq!(reserve_on(1 << 40, MAX_UNSAFE_RESERVE_BYTES), 1 << 20);
        assert_eq!(reserve_on(50_000_000, MAX_RESERVE_BYTES), 5_000_000);
    }

    #[tokio::test]
    async fn write_of_an_upload_distinguishes_a_failed_sync() {
        let dir = tempfile::tempdir().unwrap();
        let directory = BlobDirectory::open(dir.path()).unwrap();
        // The device takes every write, and refuses every sync.
        symlink("/dev/null", directory.upload_path("u")).unwrap();
        let write =
            |directory: &BlobDirectory, offset| directory.write("u", offset, Bytes::from_static(b"x"));
        assert_eq!(write(&directory, SYNC_BYTES - 2).await, Ok(()), "no sync is due");
        let error = write(&directory, SYNC_BYTES - 1).await.unwrap_err();
        assert!(matches!(&error, BlobError::Unsynced(_)), "{error}");
        assert!(error.to_string().starts_with("the blob store failed: a sync failed: "), "{error}");
        assert_eq!(write(&directory.without_syncs(), SYNC_BYTES - 1).await, Ok(()));
    }
}
