//! In-memory registries of the server: nothing in them outlives the process.

pub(crate) mod backups;
pub(crate) mod budgets;
pub(crate) mod challenges;
pub(crate) mod connections;
pub(crate) mod event_log;
pub(crate) mod job_times;
pub(crate) mod last_figures;
pub(crate) mod late_timers;
pub(crate) mod pubsub;
pub(crate) mod queue_limits;
pub(crate) mod resource_figures;
pub(crate) mod shares;
pub(crate) mod step_locks;
pub(crate) mod throughput;
pub(crate) mod unreturned_claims;
