//! Scratch directories: one for each supervisor, in a directory of this worker. A worker that
//! starts removes the directories of workers that have ended without removing them.

use std::{
    fs::{self, File, Permissions},
    io,
    os::unix::fs::{MetadataExt, PermissionsExt, chown},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use agenix_sandbox::client::User;
use rustix::{
    fs::{FlockOperation, flock},
    process::geteuid,
};
use tempfile::TempDir;

use crate::exec::spool::SpoolError;

/// Prefix of the directories of workers.
const PREFIX: &str = "agw-scratch-";
/// Maximum number of directories that a worker loses to other workers that start at the same time.
const MAX_LOST: u32 = 100;

/// Directory of a worker for the scratch directories of its supervisors.
#[derive(Debug)]
pub(super) struct ScratchRoot {
    parent: PathBuf,
    user: Option<User>,
    /// Present directory, which is replaced if it is missing.
    root: Mutex<Arc<Root>>,
}

#[derive(Debug)]
struct Root {
    /// Lock that shows other workers that the directory is in use.
    _lock: File,
    directory: TempDir,
}

/// Scratch directory of a supervisor. The drop removes the directory.
#[derive(Debug)]
pub(super) struct ScratchDirectory {
    directory: TempDir,
    _root: Arc<Root>,
}

impl ScratchRoot {
    /// Creates the directory of this worker in `parent`, for tasks of `user`.
    pub(super) fn create(parent: &Path, user: Option<User>) -> io::Result<Self> {
        let root = Mutex::new(Arc::new(Root::create(parent)?));
        Ok(Self { parent: parent.to_owned(), user, root })
    }

    /// Creates an empty directory that the user of the tasks owns. The error is a [`SpoolError`],
    /// except if the owner cannot be set.
    pub(super) fn directory(&self) -> io::Result<ScratchDirectory> {
        let created = self.create_directory().map_err(|error| SpoolError::of(&self.parent, error))?;
        if let Some(User { uid, gid }) = self.user {
            chown(created.directory.path(), Some(uid), Some(gid))?;
        }
        Ok(created)
    }

    /// Creates a directory. Creates the directories above as well if they are missing, because a
    /// cleaner of temporary directories may have removed them.
    fn create_directory(&self) -> io::Result<ScratchDirectory> {
        let mut root = self.root.lock().unwrap_or_else(PoisonError::into_inner);
        let directory = match tempfile::tempdir_in(root.directory.path()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                fs::create_dir_all(&self.parent)?;
                *root = Arc::new(Root::create(&self.parent)?);
                tempfile::tempdir_in(root.directory.path())?
            }
            created => created?,
        };
        Ok(ScratchDirectory { directory, _root: Arc::clone(&root) })
    }
}

impl Root {
    fn create(parent: &Path) -> io::Result<Self> {
        remove_abandoned(parent);
        let mut lost = 0;
        loop {
            let directory = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent)?;
            match locked(directory.path()) {
                Ok(lock) => return Ok(Self { _lock: lock, directory }),
                Err(error) if lost < MAX_LOST && is_loss(&error) => lost += 1,
                Err(error) => return Err(error),
            }
        }
    }
}

impl ScratchDirectory {
    pub(super) fn path(&self) -> PathBuf {
        self.directory.path().to_owned()
    }

    /// Returns false if somebody has removed the directory.
    pub(super) fn exists(&self) -> bool {
        self.directory.path().exists()
    }
}

/// Locks the new directory of a worker, and lets the user of the tasks pass through it.
fn locked(directory: &Path) -> io::Result<File> {
    fs::set_permissions(directory, Permissions::from_mode(0o711))?;
    let lock = File::open(directory)?;
    flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
    // Another worker may have removed the directory before the lock. After the lock, no worker
    // removes the directory.
    fs::symlink_metadata(directory)?;
    Ok(lock)
}

/// Returns true if another worker has locked or removed a new directory before its worker has
/// locked it.
fn is_loss(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::WouldBlock)
}

/// Removes directories of workers that have ended. A worker that has just created its directory and
/// not locked it yet loses the directory, and creates another one.
fn remove_abandoned(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        if !entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes()) {
            continue;
        }
        let is_own = |found: fs::Metadata| found.is_dir() && found.uid() == geteuid().as_raw();
        if !entry.path().symlink_metadata().is_ok_and(is_own) {
            continue;
        }
        let Ok(lock) = File::open(entry.path()) else { continue };
        // The lock lasts until the directory is removed.
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
            // The next worker tries again.
            let _is_removed = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, sync::Barrier, thread};

    use super::ScratchRoot;
    use crate::exec::resource_wait::is_shortage;

    #[test]
    fn workers_that_start_at_once_keep_their_directories() {
        const WORKERS: usize = 20;
        let (parent, start) = (tempfile::tempdir().unwrap(), Barrier::new(WORKERS));
        let create = || {
            start.wait();
            ScratchRoot::create(parent.path(), None)
        };
        let roots: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> = (0..WORKERS).map(|_| scope.spawn(create)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        for root in roots {
            root.unwrap().directory().unwrap();
        }
    }

    #[test]
    fn directories_of_ended_workers_are_removed_and_those_of_others_are_kept() {
        let parent = tempfile::tempdir().unwrap();
        let abandoned = parent.path().join("agw-scratch-abandoned");
        fs::create_dir_all(abandoned.join("left")).unwrap();
        fs::create_dir(parent.path().join("other")).unwrap();
        let first = ScratchRoot::create(parent.path(), None).unwrap();
        assert!(!abandoned.exists() && parent.path().join("other").exists());
        let directory = first.directory().unwrap();
        let second = ScratchRoot::create(parent.path(), None).unwrap();
        assert!(directory.path().exists(), "the first worker lives");
        let path = directory.path();
        drop((first, second));
        assert!(path.exists(), "the directory is in use");
        drop(directory);
        let left: Vec<_> =
            fs::read_dir(parent.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["other"]);
    }

    #[test]
    fn directory_that_a_cleaner_has_removed_is_created_again() {
        let dir = tempfile::tempdir().unwrap();
        let parent = dir.path().join("tmp");
        fs::create_dir(&parent).unwrap();
        let first = ScratchRoot::create(&parent, None).unwrap();
        let early = first.directory().unwrap();
        fs::remove_dir_all(&parent).unwrap();
        let late = first.directory().unwrap();
        assert!(late.exists() && !early.exists());
        let second = ScratchRoot::create(&parent, None).unwrap();
        assert!(late.exists(), "the first worker lives");
        drop((early, late, first, second));
        assert_eq!(fs::read_dir(parent).unwrap().count(), 0);
    }

    #[test]
    fn directory_that_cannot_be_created_is_a_shortage() {
        let dir = tempfile::tempdir().unwrap();
        let parent = dir.path().join("tmp");
        fs::create_dir(&parent).unwrap();
        let root = ScratchRoot::create(&parent, None).unwrap();
        fs::remove_dir_all(&parent).unwrap();
        fs::write(&parent, "").unwrap();
        let error = root.directory().unwrap_err();
        assert!(is_shortage(&error), "{error}");
        assert!(error.to_string().contains(&parent.display().to_string()), "{error}");
    }
}
