//! Atomic writes of files.

use std::{io::Write, path::Path};

use crate::{
    error::{CliError, Result},
    util::shorten::shortened,
};

/// Replaces a file atomically.
pub(crate) fn write_whole(dir: &Path, name: &str, bytes: &[u8]) -> Result<()> {
    let write = || {
        let mut file = tempfile::NamedTempFile::new_in(dir)?;
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
