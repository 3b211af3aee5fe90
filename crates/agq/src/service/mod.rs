//! Domain operations: they apply the rules to the store, and return domain values. `resp` and `http` present them.

pub(crate) mod action;
pub(crate) mod deferred;
pub(crate) mod explain;
pub(crate) mod halting;
pub(crate) mod identity;
pub(crate) mod job;
pub(crate) mod limits;
pub(crate) mod metrics;
pub(crate) mod ojs;
pub(crate) mod plan;
pub(crate) mod schedule;
pub(crate) mod stats;
pub(crate) mod submission;
pub(crate) mod timers;
pub(crate) mod worker;
pub(crate) mod worker_health;
pub(crate) mod workflow;
