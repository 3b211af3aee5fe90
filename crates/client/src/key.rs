//! Session key of agw and agx: from `AGQ_SESSION_KEY`, otherwise from a file. There is no flag for
//! the key, because other users of the machine could read a flag.

use std::path::{Path, PathBuf};

use secrecy::SecretString;

/// Error of the session key.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum SessionKeyError {
    /// Neither the variable nor a file is set.
    #[error("there is no session key")]
    Missing,
    /// The file cannot be read.
    #[error("cannot read the session key file {}: {reason}", .file.display())]
    Unreadable { file: PathBuf, reason: String },
}

/// Advice for both errors.
pub const KEY_HELP: &str = "set AGQ_SESSION_KEY or --session-key-file to the key that agq was started with";

/// Returns the key in `AGQ_SESSION_KEY` or `file`; an error if both lack or it is unreadable.
pub fn session_key(file: Option<&Path>) -> Result<SecretString, SessionKeyError> {
    match key_in_variable() {
        Some(key) => Ok(key),
        None => key_in(file.ok_or(SessionKeyError::Missing)?),
    }
}

/// Returns true if `AGQ_SESSION_KEY` has a key, so that [`session_key`] reads no file.
#[must_use]
pub fn is_key_in_variable() -> bool {
    key_in_variable().is_some()
}

fn key_in_variable() -> Option<SecretString> {
    let key = std::env::var("AGQ_SESSION_KEY").ok()?;
    (!key.trim().is_empty()).then(|| key.trim().into())
}

/// Reads the session key in `file`, without white space around it.
pub fn key_in(file: &Path) -> Result<SecretString, SessionKeyError> {
    let unreadable = |error: std::io::Error| SessionKeyError::Unreadable {
        file: file.to_owned(),
        reason: error.to_string(),
    };
    Ok(std::fs::read_to_string(file).map_err(unreadable)?.trim().into())
}
