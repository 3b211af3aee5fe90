//! The Open Job Spec's own rules (the OJS worker spec): what a submitted job may say, and how that is read. What becomes of a job
//! is in `job`: there is one lifecycle.

mod duration;
mod envelope;
mod options;

pub use duration::parse_duration;
pub use envelope::{JobSubmission, check_queue, is_uuid_v7, read};
pub use options::MAX_MS;

/// The plan under which jobs of other types than `plan.<plan_id>` stand.
pub const OJS_PLAN: &str = "ojs";
/// In whose name those fetch that give none: no worker's id is like it.
pub use crate::job::NOBODY;
/// The tag of workers that take such jobs.
pub const OJS_TAG: &str = "ojs";
/// What a job's type begins with that runs a plan.
pub const PLAN_PREFIX: &str = "plan.";
/// How long a fetched job is reserved for its worker, in milliseconds, where nothing else is said (the OJS worker spec: 1800 s).
pub const VISIBILITY_MS: u64 = 1_800_000;
/// How often a worker is to be heard of, in seconds (the OJS worker spec).
pub const HEARTBEAT_SECS: u64 = 5;
/// How long a worker may be silent, in milliseconds (the OJS worker spec: 30 s).
pub const SILENCE_MS: u64 = 30_000;
/// The queue of jobs that name none.
pub const DEFAULT_QUEUE: &str = "default";
