//! Document of `agx scale`.

use agenix_protocol::ids::WorkerId;
use schemars::JsonSchema;
use serde::Serialize;

/// A decision of `agx scale`, and its result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct ScaleStep {
    pub(crate) decision: ScaleDirection,
    pub(crate) outcome: ScaleOutcome,
    /// Reason of the decision.
    pub(crate) reason: String,
    /// Number of workers that take jobs, with `starting`.
    pub(crate) workers: u64,
    /// Number of workers that `--up` has started and that have not registered.
    pub(crate) starting: u64,
    /// Number of workers that the decision aims at.
    pub(crate) wanted: u64,
    /// Number of ready jobs that limits and budgets do not hold back.
    pub(crate) waiting_jobs: u64,
    /// Worker to end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) worker_id: Option<WorkerId>,
    /// Host name of the worker to end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) hostname: Option<String>,
    /// Reason of a failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
}

/// Direction of a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ScaleDirection {
    /// Start workers.
    Up,
    /// End an idle worker.
    Down,
    /// Let a worker take jobs again that an earlier `agx scale` has drained.
    Resume,
    /// Leave the workers as they are.
    None,
}

/// Result of a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ScaleOutcome {
    /// The command succeeded.
    Done,
    /// The command failed.
    Failed,
    /// The worker to end got a job meanwhile, or has ended by itself.
    Spared,
    /// There was nothing to do, no command for it, or `--dry-run`.
    NotRun,
}
