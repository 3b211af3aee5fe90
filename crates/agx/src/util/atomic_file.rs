//! Atomic writes of files.

use std::{fs::Permissions, io, io::Write, os::unix::fs::PermissionsExt, path::Path};

use tempfile::NamedTempFile;

use crate::{
    error::{CliError, Result},
    util::shorten::shortened,
};

/// Mode of a file of results before the umask applies.
const OUTPUT_MODE: u32 = 0o666;

/// Replaces a file atomically by a file that only its owner may read.
pub(crate) fn write_private(dir: &Path, name: &str, bytes: &[u8]) -> Result<()> {
    write(NamedTempFile::new_in(dir), dir, name, bytes)
}

/// Replaces a file of results atomically. The umask decides about the mode of the file.
pub(crate) fn write_output(dir: &Path, name: &str, bytes: &[u8]) -> Result<()> {
    write(new_output(dir), dir, name, bytes)
}

/// Creates a file of results under a temporary name.
pub(crate) fn new_output(dir: &Path) -> io::Result<NamedTempFile> {
    tempfile::Builder::new().permissions(Permissions::from_mode(OUTPUT_MODE)).tempfile_in(dir)
}

fn write(file: io::Result<NamedTempFile>, dir: &Path, name: &str, bytes: &[u8]) -> Result<()> {
    let write = || {
        let mut file = file?;
        file.write_all(bytes)?;
        file.persist(dir.join(name)).map_err(|error| error.error)
    };
    write().map(drop).map_err(|error| cannot_write(&dir.join(name), &error))
}

/// Returns the error for a file that cannot be written.
pub(crate) fn cannot_write(path: &Path, error: &std::io::Error) -> CliError {
    let path = shortened(&path.display().to_string());
    CliError::usage(format!("cannot write {path}: {error}"), "choose another directory, or free some space")
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::{write_output, write_private};

    #[test]
    fn files_of_results_have_the_mode_of_other_new_files_and_private_ones_do_not() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("usual"), "").unwrap();
        write_output(dir.path(), "output", b"a").unwrap();
        write_private(dir.path(), "private", b"a").unwrap();
        let mode = |name: &str| fs::metadata(dir.path().join(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode("output"), mode("usual"));
        assert_eq!(mode("private"), 0o600);
    }
}
