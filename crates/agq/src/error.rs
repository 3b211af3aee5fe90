//! Why a command was not carried out, and so who is at fault.

use agenix_rules::rejection::Rejection;

use crate::{registry::backups::BackupError, store::StoreError};

/// A command that was not carried out.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CommandError {
    /// A rule said no.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A backup is not to be had.
    #[error(transparent)]
    Backup(#[from] BackupError),
}

impl CommandError {
    /// The error line without its `-`.
    pub(crate) fn line(&self) -> String {
        match self {
            Self::Rejected(rejection) => rejection.line(),
            Self::Store(error) => format!("ERR {error}"),
            Self::Backup(error) => format!("ERR {error}"),
        }
    }
}
