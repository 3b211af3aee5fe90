//! Where agw and agx get the session key: from `AGQ_SESSION_KEY`, else from a file. Never from a flag, which everyone on
//! the machine could see.

use std::path::{Path, PathBuf};

use secrecy::SecretString;

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
pub enum SessionKeyError {
    /// Neither the variable nor a file was given.
    #[error("there is no session key")]
    Missing,
    /// The file cannot be read.
    #[error("cannot read the session key file {}: {reason}", .file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// What the system said.
        reason: String,
    },
}

/// What to do about either.
pub const KEY_HELP: &str = "set AGQ_SESSION_KEY or --session-key-file to the key that agq was started with";

/// Reads the session key.
pub fn session_key(file: Option<&Path>) -> Result<SecretString, SessionKeyError> {
    match std::env::var("AGQ_SESSION_KEY") {
        Ok(key) if !key.trim().is_empty() => return Ok(key.trim().into()),
        _ => {}
    }
    key_in(file.ok_or(SessionKeyError::Missing)?)
}

/// Reads the session key in a file.
pub fn key_in(file: &Path) -> Result<SecretString, SessionKeyError> {
    let unreadable = |error: std::io::Error| SessionKeyError::Unreadable {
        file: file.to_owned(),
        reason: error.to_string(),
    };
    Ok(std::fs::read_to_string(file).map_err(unreadable)?.trim().into())
}
