//! Scratch directories: one for each supervisor, in a directory of this worker. A worker that
//! starts removes the directories of workers that have ended without removing them.

use std::{
    fs::{self, File, Permissions},
    io,
    os::unix::fs::{MetadataExt, PermissionsExt, chown},
    path::{Path, PathBuf},
    sync::Arc,
};

use agenix_sandbox::client::User;
use rustix::{
    fs::{FlockOperation, flock},
    process::geteuid,
};
use tempfile::TempDir;

/// Prefix of the directories of workers.
const PREFIX: &str = "agw-scratch-";

/// Directory of a worker for the scratch directories of its supervisors.
#[derive(Debug, Clone)]
pub(super) struct ScratchRoot(Arc<Root>);

#[derive(Debug)]
struct Root {
    /// Lock that tells other workers that the directory is in use.
    _lock: File,
    directory: TempDir,
    user: Option<User>,
}

/// Scratch directory of a supervisor. The drop removes it.
#[derive(Debug)]
pub(super) struct ScratchDirectory {
    directory: TempDir,
    _root: ScratchRoot,
}

impl ScratchRoot {
    /// Creates the directory of this worker in `parent`, for tasks of `user`.
    pub(super) fn create(parent: &Path, user: Option<User>) -> io::Result<Self> {
        remove_abandoned(parent);
        // The user of the tasks has to pass through the directory.
        let mode = Permissions::from_mode(0o711);
        let directory =
            tempfile::Builder::new().prefix(PREFIX).permissions(mode.clone()).tempdir_in(parent)?;
        fs::set_permissions(directory.path(), mode)?;
        let lock = File::open(directory.path())?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Self(Arc::new(Root { _lock: lock, directory, user })))
    }

    /// Creates an empty directory that the user of the tasks owns.
    pub(super) fn directory(&self) -> io::Result<ScratchDirectory> {
        let directory = tempfile::tempdir_in(self.0.directory.path())?;
        if let Some(User { uid, gid }) = self.0.user {
            chown(directory.path(), Some(uid), Some(gid))?;
        }
        Ok(ScratchDirectory { directory, _root: self.clone() })
    }
}

impl ScratchDirectory {
    pub(super) fn path(&self) -> PathBuf {
        self.directory.path().to_owned()
    }
}

/// Removes directories of workers that have ended. A worker that has just created its directory and
/// not locked it yet loses the directory, and then fails to start.
fn remove_abandoned(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        if !entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes()) {
            continue;
        }
        let is_own = |found: fs::Metadata| found.is_dir() && found.uid() == geteuid().as_raw();
        if !entry.path().symlink_metadata().is_ok_and(is_own) {
            continue;
        }
        let is_abandoned = |lock: File| flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok();
        if File::open(entry.path()).is_ok_and(is_abandoned) {
            // The next worker tries again.
            let _is_removed = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::ScratchRoot;

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
}
