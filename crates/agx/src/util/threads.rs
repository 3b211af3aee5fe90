//! Threads of agx, each of which the system may refuse.

use std::{io, thread};

use agenix_cli::refused_thread;

use crate::error::{CliError, Result};

const HELP: &str = "agx needs a few threads and open files, and without a server also those of agq and agw";

/// Starts a thread that ends by itself or with the process.
pub(crate) fn start<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<()> {
    thread::Builder::new().spawn(work).map(drop).map_err(|error| refused(&refused_thread(&error)))
}

/// Returns the error of agx for a refused thread or runtime. The text of `error` names the limits.
pub(crate) fn refused(error: &io::Error) -> CliError {
    CliError::usage(error.to_string(), HELP)
}
