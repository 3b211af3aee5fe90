//! Owner of the files that root creates for an agq of another user.

use std::{
    fs::{self, File},
    io::{self, ErrorKind},
    os::unix::fs::{MetadataExt, fchown, lchown},
    path::Path,
};

use rustix::process::geteuid;

/// User and group that get the files and directories that a command creates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileOwner {
    user: u32,
    group: u32,
}

impl FileOwner {
    /// Returns the owner of `directory` if root runs this process and another user owns the
    /// directory. Returns `None` if created files can stay with the user of this process, or if the
    /// directory is missing.
    pub(crate) fn of(directory: &Path) -> io::Result<Option<Self>> {
        let metadata = match fs::metadata(directory) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            found => found?,
        };
        Ok(Self::other_than(geteuid().as_raw(), (metadata.uid(), metadata.gid())))
    }

    /// Returns an owner to whom the user `own` can give files. Only root can give files away.
    fn other_than(own: u32, (user, group): (u32, u32)) -> Option<Self> {
        (own == 0 && user != own).then_some(Self { user, group })
    }

    /// Gives an open file to this owner.
    pub(crate) fn take_file(self, file: &File) -> io::Result<()> {
        fchown(file, Some(self.user), Some(self.group))
    }

    /// Gives a directory to this owner, without the files in it.
    pub(crate) fn take_directory(self, directory: &Path) -> io::Result<()> {
        lchown(directory, Some(self.user), Some(self.group))
    }
}

#[cfg(test)]
impl FileOwner {
    /// Owner to whom no other user than root can give files.
    pub(crate) const OTHER: Self = Self { user: 1, group: 1 };

    /// Fails unless `changed` gave `path` to this owner. A process of another user than root has to
    /// fail, because it cannot give files away.
    pub(crate) fn assert_owns(self, path: &Path, changed: &io::Result<()>) {
        if let Err(error) = changed {
            let refused = [ErrorKind::PermissionDenied, ErrorKind::InvalidInput];
            assert!(refused.contains(&error.kind()), "{error}");
            return;
        }
        let metadata = fs::symlink_metadata(path).unwrap();
        assert_eq!((metadata.uid(), metadata.gid()), (self.user, self.group), "{}", path.display());
    }
}

#[cfg(test)]
mod tests {
    use super::FileOwner;

    #[test]
    fn files_of_root_alone_get_another_owner() {
        let owner = (1, 2);
        assert_eq!(FileOwner::other_than(0, owner), Some(FileOwner { user: 1, group: 2 }));
        assert_eq!(FileOwner::other_than(1, owner), None, "agq's own user");
        assert_eq!(FileOwner::other_than(3, owner), None, "a user who cannot give files away");
        assert_eq!(FileOwner::other_than(0, (0, 0)), None, "an agq of root");
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(FileOwner::of(dir.path()).unwrap(), None, "a directory of this user");
        assert_eq!(FileOwner::of(&dir.path().join("missing")).unwrap(), None);
    }
}
