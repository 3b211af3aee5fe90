//! Errors of commands, and their error lines.

use agenix_rules::rejection::Rejection;

use crate::{registry::backups::BackupError, store::StoreError};

/// Error of a command that was not carried out.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CommandError {
    /// A rule refused the command.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The backup is not available.
    #[error(transparent)]
    Backup(#[from] BackupError),
}

impl CommandError {
    /// Returns the error line without its leading `-`.
    pub(crate) fn line(&self) -> String {
        match self {
            Self::Rejected(rejection) => rejection.line(),
            Self::Store(error) => format!("ERR {error}"),
            Self::Backup(error) => format!("ERR {error}"),
        }
    }
}
