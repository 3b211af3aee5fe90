//! Temporary files without a name. Errors name the directory of the files, because the cause is
//! never the input or the output that agx keeps there.

use std::{fs::File, io};

use crate::error::{CliError, Result};

/// Creates an empty file.
pub(crate) fn create() -> Result<File> {
    tempfile::tempfile().map_err(|error| failed(&error))
}

/// Returns the failure to create or to write a temporary file.
pub(crate) fn failed(error: &io::Error) -> CliError {
    CliError::usage(
        format!("a temporary file in {} cannot be written: {error}", tempfile::env::temp_dir().display()),
        "set TMPDIR to a directory that can be written, on a disk with free space",
    )
}
