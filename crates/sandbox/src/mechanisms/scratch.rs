//! Scratch directory: the only directory that every task can write. The directory is empty between
//! jobs.

use std::{
    fs::{self, DirEntry, Permissions},
    io,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{listxattr, listxattr_query, removexattr},
    io::Errno,
};

use crate::fault::{Step, StepFault};

/// Bytes of a block of [`MetadataExt::blocks`].
const BLOCK_BYTES: u64 = 512;
/// Permissions of the directory: its user may do everything, and others may do nothing.
const MODE: u32 = 0o700;

/// Checks that `scratch` is an empty directory of this user. A supervisor deletes all that is in
/// the directory, so a wrong setting must not name a directory with content.
pub(crate) fn check(scratch: &Path) -> Result<(), StepFault> {
    let refused =
        |detail: &str| Err(StepFault::new(Step::Scratch, format!("'{}' {detail}", scratch.display())));
    let found = scratch.symlink_metadata().map_err(|error| fault(scratch, error))?;
    if !scratch.is_absolute() || !found.is_dir() {
        return refused("is not the absolute path of a directory");
    }
    if found.uid() != rustix::process::getuid().as_raw() {
        return refused("belongs to another user than that of the tasks");
    }
    if fs::read_dir(scratch).map_err(|error| fault(scratch, error))?.next().is_some() {
        return refused("is not empty");
    }
    Ok(())
}

/// Removes everything in `scratch`, restores its permissions, and returns the bytes of the removed
/// files. No process may change the directory meanwhile.
///
/// Directories inside are moved up before they are removed. So the depth of the tree, which a task
/// chooses, costs neither stack nor descriptors, and no path becomes too long.
pub(crate) fn empty(scratch: &Path) -> Result<u64, StepFault> {
    restore(scratch)?;
    let (mut bytes, mut moved) = (0, 0);
    loop {
        let entries = entries_of(scratch)?;
        if entries.is_empty() {
            return Ok(bytes);
        }
        for entry in entries {
            let path = entry.path();
            if !is_directory(&entry)? {
                bytes += remove_file(&path)?;
                continue;
            }
            // A task may have taken the permission to list or to change the directory.
            fs::set_permissions(&path, Permissions::from_mode(MODE)).map_err(|error| fault(&path, error))?;
            for inner in entries_of(&path)? {
                if is_directory(&inner)? {
                    let inner = inner.path();
                    fs::set_permissions(&inner, Permissions::from_mode(MODE))
                        .map_err(|error| fault(&inner, error))?;
                    let up = unused_name(scratch, &mut moved);
                    fs::rename(&inner, up).map_err(|error| fault(&inner, error))?;
                } else {
                    bytes += remove_file(&inner.path())?;
                }
            }
            fs::remove_dir(&path).map_err(|error| fault(&path, error))?;
        }
    }
}

/// Restores the mode of `scratch`, and removes the extended attributes that a task can set. Files
/// of the next job would inherit a default list of permissions.
fn restore(scratch: &Path) -> Result<(), StepFault> {
    fs::set_permissions(scratch, Permissions::from_mode(MODE)).map_err(|error| fault(scratch, error))?;
    let failed = |error: Errno| fault(scratch, error.into());
    let length = match listxattr_query(scratch) {
        Ok(0) | Err(Errno::OPNOTSUPP) => return Ok(()),
        found => found.map_err(failed)?,
    };
    let mut names = vec![0_u8; length];
    let length = listxattr(scratch, &mut names[..]).map_err(failed)?;
    let is_of_user = |name: &&[u8]| name.starts_with(b"user.") || name.starts_with(b"system.posix_acl_");
    let mut names = names[..length].split(|byte| *byte == 0).filter(is_of_user);
    names.try_for_each(|name| removexattr(scratch, name).map_err(failed))
}

fn entries_of(directory: &Path) -> Result<Vec<DirEntry>, StepFault> {
    fs::read_dir(directory).and_then(Iterator::collect).map_err(|error| fault(directory, error))
}

fn is_directory(entry: &DirEntry) -> Result<bool, StepFault> {
    entry.file_type().map(|kind| kind.is_dir()).map_err(|error| fault(&entry.path(), error))
}

fn remove_file(path: &Path) -> Result<u64, StepFault> {
    let bytes = path.symlink_metadata().map_or(0, |found| found.blocks() * BLOCK_BYTES);
    fs::remove_file(path).map_err(|error| fault(path, error))?;
    Ok(bytes)
}

fn unused_name(scratch: &Path, moved: &mut u64) -> PathBuf {
    loop {
        *moved += 1;
        let path = scratch.join(format!("moved-{moved}"));
        if path.symlink_metadata().is_err() {
            return path;
        }
    }
}

fn fault(path: &Path, error: io::Error) -> StepFault {
    StepFault::of(Step::Scratch, format!("'{}'", path.display()), error)
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, Permissions},
        os::unix::fs::{MetadataExt, PermissionsExt, symlink},
        path::PathBuf,
    };

    use rustix::fs::{XattrFlags, getxattr, setxattr};

    use super::{check, empty};

    #[test]
    fn scratch_with_any_content_becomes_empty() {
        let (dir, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let kept = outside.path().join("kept");
        fs::write(&kept, "kept").unwrap();
        fs::create_dir_all(dir.path().join("a/b/c")).unwrap();
        fs::create_dir(dir.path().join("moved-1")).unwrap();
        fs::write(dir.path().join("a/b/file"), [b'x'; 5000]).unwrap();
        symlink(outside.path(), dir.path().join("a/link")).unwrap();
        symlink(outside.path(), dir.path().join("link")).unwrap();
        fs::set_permissions(dir.path().join("a/b"), Permissions::from_mode(0o0)).unwrap();
        fs::set_permissions(dir.path().join("a"), Permissions::from_mode(0o0)).unwrap();
        assert!(empty(dir.path()).unwrap() >= 5000);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        assert_eq!(fs::read_to_string(kept).unwrap(), "kept");
        assert_eq!(empty(dir.path()), Ok(0));
    }

    #[test]
    fn scratch_gets_its_mode_back_and_loses_its_attributes() {
        // Denies all access (acl(5), version 2): owner, group and others.
        const DEFAULT_ACL: &[u8] = b"\x02\0\0\0\x01\0\0\0\xff\xff\xff\xff\
            \x04\0\0\0\xff\xff\xff\xff\x20\0\0\0\xff\xff\xff\xff";
        let attributes = [("user.left", &b"x"[..]), ("system.posix_acl_default", DEFAULT_ACL)];
        for has_content in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            if has_content {
                fs::write(dir.path().join("file"), "").unwrap();
            }
            for (name, value) in attributes {
                // Some file systems have no attributes.
                let _is_set = setxattr(dir.path(), name, value, XattrFlags::empty());
            }
            fs::set_permissions(dir.path(), Permissions::from_mode(0o500)).unwrap();
            empty(dir.path()).unwrap();
            assert_eq!(dir.path().metadata().unwrap().mode() & 0o7777, 0o700);
            for (name, _) in attributes {
                assert!(getxattr(dir.path(), name, &mut [0_u8; 64]).is_err(), "{name}");
            }
        }
    }

    #[test]
    fn scratch_of_great_depth_becomes_empty() {
        let dir = tempfile::tempdir().unwrap();
        let mut at = dir.path().join("0");
        fs::create_dir(&at).unwrap();
        for depth in 1..3000 {
            // A path of this depth would be too long, so the tree grows at its root.
            let above = dir.path().join(depth.to_string());
            fs::create_dir(&above).unwrap();
            fs::rename(&at, above.join("d")).unwrap();
            at = above;
        }
        empty(dir.path()).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn scratch_with_content_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        check(dir.path()).unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(check(dir.path()).unwrap_err().detail.ends_with("is not empty"));
        assert!(check(&file).unwrap_err().detail.contains("is not the absolute path of a directory"));
        assert_eq!(check(&PathBuf::from("/no/such")).unwrap_err().errno, Some(2));
    }
}
