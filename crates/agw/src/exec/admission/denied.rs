//! Reason why a job does not run.

use agenix_order::Unacceptable;

/// Reason why a job does not run.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Denied {
    /// Another attempt would be refused, too.
    Refused(String),
    /// Another attempt may run.
    Failed(String),
}

impl From<Unacceptable> for Denied {
    fn from(reason: Unacceptable) -> Self {
        Self::Refused(reason.to_string())
    }
}
