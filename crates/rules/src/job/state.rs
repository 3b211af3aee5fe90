//! State of a job.

use serde::{Deserialize, Serialize};

/// Stored state of a job. RESP and OJS show projections of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum JobState {
    /// Created, not yet released.
    Staged,
    /// Waits for its time.
    Scheduled,
    /// Waits for a worker.
    Available,
    /// A worker has it.
    Active,
    /// All tasks succeeded.
    Completed,
    /// Failed, waits to be tried again.
    Retryable,
    /// Cancelled.
    Cancelled,
    /// Failed for good.
    Discarded,
}

impl JobState {
    /// The state's name in the Open Job Spec.
    pub fn ojs_name(self) -> &'static str {
        match self {
            Self::Staged => "pending",
            other => other.as_str(),
        }
    }

    /// The state's name, as it is stored.
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
