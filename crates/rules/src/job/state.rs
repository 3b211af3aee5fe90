//! States of a job.

use serde::{Deserialize, Serialize};

/// Stored state of a job. RESP and OJS show projections of the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum JobState {
    /// Created, and not released yet.
    Staged,
    /// Waits until `due_at`.
    Scheduled,
    /// Waits for a worker.
    Available,
    /// Claimed by a worker.
    Active,
    /// All tasks succeeded.
    Completed,
    /// Failed, and waits for the next attempt.
    Retryable,
    /// Cancelled.
    Cancelled,
    /// Failed, without a further attempt.
    Discarded,
}

impl JobState {
    /// All states.
    pub const ALL: [Self; 8] = [
        Self::Staged,
        Self::Scheduled,
        Self::Available,
        Self::Active,
        Self::Completed,
        Self::Retryable,
        Self::Cancelled,
        Self::Discarded,
    ];

    /// Returns the name of the state in the Open Job Spec.
    pub fn ojs_name(self) -> &'static str {
        match self {
            Self::Staged => "pending",
            other => other.as_str(),
        }
    }

    /// Returns the name of the state in the stored form.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Staged => "staged",
            Self::Scheduled => "scheduled",
            Self::Available => "available",
            Self::Active => "active",
            Self::Completed => "completed",
            Self::Retryable => "retryable",
            Self::Cancelled => "cancelled",
            Self::Discarded => "discarded",
        }
    }
}
