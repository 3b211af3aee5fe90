//! Reasons why a transaction failed, and whether a retry is worthwhile.

use sqlx::Error;

use crate::store::{
    StoreError,
    postgres::connection::errors::{explained, is_away, said},
};

/// Where a transaction failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Before anything was done.
    Before,
    /// On the way: nothing of it is left.
    During,
    /// While it was committed: it may have been done.
    Commit,
    /// At any point, by a panic.
    Panic,
}

/// Why a transaction failed.
pub(crate) struct Failure {
    pub(crate) error: Error,
    pub(crate) stage: Stage,
}

impl Failure {
    pub(crate) fn before(error: Error) -> Self {
        Self { error, stage: Stage::Before }
    }

    pub(crate) fn panic() -> Self {
        let text = "agq failed while it did this, which is a fault in agq; its log has more";
        Self { error: Error::InvalidArgument(text.into()), stage: Stage::Panic }
    }

    /// For people.
    pub(crate) fn explained(&self) -> StoreError {
        let Self { error, stage } = self;
        if *stage == Stage::Commit && is_away(error) {
            let text = format!(
                "the database was lost while this was committed ({}): whether it was done is not known",
                said(error)
            );
            return StoreError(text);
        }
        explained(error)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self { error, stage: Stage::During }
    }
}

/// Returns whether a retry may succeed: after a deadlock, after somebody wrote a row meanwhile, or
/// after a row that was there a moment ago is gone.
pub(crate) fn is_in_the_way(error: &Error) -> bool {
    match error {
        Error::Database(error) => error.code().is_some_and(|code| code == "40P01" || code == "40001"),
        Error::RowNotFound => true,
        _ => false,
    }
}

/// Returns whether another session holds a lock that the transaction wanted.
pub(crate) fn is_locked(error: &Error) -> bool {
    matches!(error, Error::Database(error) if error.code().is_some_and(|code| code == "55P03"))
}
