//! Directories that survive a power failure. The sync of a file does not include the entries of
//! the directories above it (fsync(2)).

use std::{fs, io, path::Path};

use agenix_cli::sync_directory;

/// Creates a directory and the missing directories above it. Syncs the parent of each new
/// directory.
pub(crate) fn create_all(path: &Path) -> io::Result<()> {
    create(path, sync_directory)
}

/// Returns the directory of a file or directory.
pub(crate) fn parent(path: &Path) -> &Path {
    path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn create(path: &Path, mut sync: impl FnMut(&Path) -> io::Result<()>) -> io::Result<()> {
    let ancestors = path.ancestors().filter(|dir| !dir.as_os_str().is_empty());
    let missing: Vec<&Path> = ancestors.take_while(|dir| !dir.exists()).collect();
    for dir in missing.into_iter().rev() {
        match fs::create_dir(dir) {
            Ok(()) => sync(parent(dir))?,
            // Another process has created the directory meanwhile.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => {}
            Err(error) => return Err(error),
        }
    }
    // A file in the place of the directory is an error.
    fs::create_dir_all(path)
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::{create, create_all, parent};

    /// Creates a directory, and returns the directories that have to be synced.
    fn synced(path: &Path) -> Vec<PathBuf> {
        let mut synced = Vec::new();
        let sync = |parent: &Path| {
            synced.push(parent.to_owned());
            Ok(())
        };
        create(path, sync).unwrap();
        assert!(path.is_dir());
        synced
    }

    #[test]
    fn directory_is_created_with_a_sync_of_the_parent_of_each_new_one() {
        let dir = tempfile::tempdir().unwrap();
        let (top, place) = (dir.path(), dir.path().join("a/b/c"));
        assert_eq!(synced(&place), [top.to_owned(), top.join("a"), top.join("a/b")]);
        assert!(synced(&place).is_empty(), "nothing is new");
        assert_eq!(synced(&top.join("a/d")), [top.join("a")]);
        assert_eq!(parent(Path::new("relative")), Path::new("."));
    }

    #[test]
    fn directory_is_not_created_in_the_place_of_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert!(create_all(&file).is_err());
        assert!(create_all(&file.join("a")).is_err());
        assert!(create_all(&dir.path().join("new")).is_ok());
    }
}
