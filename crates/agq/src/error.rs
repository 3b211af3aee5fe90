//! Errors of commands, and their error lines.

use agenix_rules::rejection::Rejection;

use crate::{blobs::BlobError, registry::backups::BackupError, store::StoreError};

/// Result of an operation of `service`.
pub(crate) type Result<T, E = CommandError> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub(crate) enum CommandError {
    #[error(transparent)]
    Rejected(#[from] Rejection),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Backup(#[from] BackupError),
    #[error(transparent)]
    Blob(#[from] BlobError),
}

impl CommandError {
    /// Returns the error line without its leading `-`.
    pub(crate) fn line(&self) -> String {
        match self {
            Self::Rejected(rejection) => rejection.line(),
            Self::Store(error) => format!("ERR {error}"),
            Self::Backup(error) => format!("ERR {error}"),
            Self::Blob(error) => format!("ERR {error}"),
        }
    }
}
