//! Domain operations: they apply the rules of `agenix-rules` to the store, and return domain values.
//! `resp` and `http` present these operations; no type of a wire protocol occurs here.

pub(crate) mod action_changes;
pub(crate) mod action_submission;
pub(crate) mod actions;
pub(crate) mod chunked_submission;
pub(crate) mod dead_letters;
pub(crate) mod deferred_submission;
pub(crate) mod explain;
pub(crate) mod fetch;
pub(crate) mod halting;
pub(crate) mod identity;
pub(crate) mod job_changes;
pub(crate) mod job_ended;
pub(crate) mod jobs;
pub(crate) mod limits;
pub(crate) mod lookup;
pub(crate) mod metrics;
pub(crate) mod ojs_reports;
pub(crate) mod ojs_submission;
pub(crate) mod ojs_workers;
pub(crate) mod plans;
pub(crate) mod queue_stats;
pub(crate) mod queues;
pub(crate) mod schedules;
pub(crate) mod timers;
pub(crate) mod worker_health;
pub(crate) mod worker_messages;
pub(crate) mod workers;
pub(crate) mod workflow;
