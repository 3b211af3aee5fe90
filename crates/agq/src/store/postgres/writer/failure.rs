//! Reasons why a transaction failed, and whether a retry is worthwhile.

use sqlx::Error;

use crate::store::{
    StoreError,
    postgres::{
        connection::{RoundTripFailure, is_disconnect, message},
        txn::CommitFailure,
    },
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FailurePhase {
    /// Before the transaction began: nothing was changed.
    Before,
    /// In the first round trip of the transaction: all changes are rolled back.
    Opening,
    /// During the work: all changes are rolled back.
    During,
    /// During the commit: the changes may have been committed.
    Commit,
    /// A panic of agq, at any point.
    Panic,
}

pub(crate) struct TxnFailure {
    pub(crate) error: Error,
    pub(crate) stage: FailurePhase,
}

impl TxnFailure {
    pub(crate) fn before(error: Error) -> Self {
        Self { error, stage: FailurePhase::Before }
    }

    /// Returns the failure of the round trip that begins a transaction.
    pub(crate) fn of_opening(failure: RoundTripFailure) -> Self {
        let RoundTripFailure { error, succeeded, .. } = failure;
        let is_begun = succeeded > 0 && !is_disconnect(&error);
        Self { error, stage: if is_begun { FailurePhase::Opening } else { FailurePhase::Before } }
    }

    pub(crate) fn of_commit(failure: CommitFailure) -> Self {
        let CommitFailure { error, may_be_committed } = failure;
        Self { error, stage: if may_be_committed { FailurePhase::Commit } else { FailurePhase::During } }
    }

    pub(crate) fn panic() -> Self {
        let text = "agq panicked during this write, which is a bug in agq; see its log";
        Self { error: Error::InvalidArgument(text.into()), stage: FailurePhase::Panic }
    }

    /// Returns true if the database cancelled the first round trip of the transaction, because one
    /// of its statements took too long.
    pub(crate) fn is_late_opening(&self) -> bool {
        self.stage == FailurePhase::Opening
            && matches!(&self.error, Error::Database(error) if error.code().is_some_and(|code| code == "57014"))
    }

    /// Converts the failure to an error with a message that names the fate of the write.
    pub(crate) fn to_store_error(&self) -> StoreError {
        let Self { error, stage } = self;
        if *stage == FailurePhase::Commit && is_disconnect(error) {
            let text = format!(
                "the connection to the database was lost during the commit ({}): the write may or may not have been made",
                message(error)
            );
            return StoreError(text);
        }
        error.into()
    }
}

impl From<Error> for TxnFailure {
    fn from(error: Error) -> Self {
        Self { error, stage: FailurePhase::During }
    }
}

/// Returns true if a retry may succeed: after a deadlock, a conflict, a row that another
/// transaction has inserted first, or a vanished row.
pub(crate) fn is_retryable(error: &Error) -> bool {
    match error {
        Error::Database(error) => {
            error.code().is_some_and(|code| ["40P01", "40001", "23505"].contains(&&*code))
        }
        Error::RowNotFound => true,
        _ => false,
    }
}

/// Returns true if another session holds a lock that the transaction wanted.
pub(crate) fn is_locked(error: &Error) -> bool {
    matches!(error, Error::Database(error) if error.code().is_some_and(|code| code == "55P03"))
}
