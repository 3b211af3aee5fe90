//! Rules of the Open Job Spec (the OJS worker spec): parses and checks submitted jobs. The
//! lifecycle of jobs is that of `job`, for every protocol.

mod duration;
mod envelope;
mod fields;
mod options;
mod unique;
mod worker_name;

pub use duration::parse_duration;
pub use envelope::{JobSubmission, check_queue, is_uuid_v7, read};
pub use options::MAX_MS;
pub(crate) use unique::{COUNTING, exact};
pub use worker_name::worker_of;

/// Plan of jobs that run no plan: their types do not begin with [`PLAN_PREFIX`].
pub const OJS_PLAN: &str = "ojs";
/// Holder of jobs that are fetched without a worker id. No worker id has a colon.
pub use crate::job::NOBODY;
/// Tag of workers that run the jobs of [`OJS_PLAN`].
pub const OJS_TAG: &str = "ojs";
/// Prefix of the types of jobs that run a plan.
pub const PLAN_PREFIX: &str = "plan.";
/// Default visibility timeout of a fetched job, in milliseconds (the OJS worker spec: 1800 s).
pub const VISIBILITY_MS: u64 = 1_800_000;
/// Interval of heartbeats, in seconds (the OJS worker spec).
pub const HEARTBEAT_SECS: u64 = 5;
/// Silence after which a worker is dead, in milliseconds (the OJS worker spec: 30 s).
pub const SILENCE_MS: u64 = 30_000;
/// Queue of jobs that name none.
pub const DEFAULT_QUEUE: &str = "default";
