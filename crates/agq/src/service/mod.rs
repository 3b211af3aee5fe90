//! Domain operations: they apply the rules of `agenix-rules` to the store, and return domain
//! values. `resp` and `http` present these operations; no reply type of a wire protocol occurs
//! here.
//!
//! A module uses modules of its own layer, and of the layers before it in this table. An operation
//! therefore cannot be called by the follow-up of another operation.
//!
//! | Layer | Modules | Responsibility |
//! |---|---|---|
//! | lookup | `lookup`, `queue_stats` | reads records, and rejects unknown ids |
//! | messages | `worker_messages` | sends messages to workers, and publishes events about workers |
//! | changes | `job_changes`, `action_changes`, `chunked_submission`, `worker_health`, `queues`, `limits` | applies rules to records |
//! | submission | `action_submission`, `ojs_submission`, `deferred_submission` | checks and stores new jobs |
//! | follow-up | `job_ended`, `workflow` | continues after the end of a job: health of the worker, next step |
//! | operations | all others | carries out one command or request, with its follow-up |
//!
//! The `ojs_*` modules, `fetch` and `dead_letters` are operations of the Open Job Spec; `claims` is
//! the counterpart of `fetch` for RESP. The reaper calls `timers`, `halting`, `limits`, `schedules`
//! and `workflow` in each round.

pub(crate) mod action_changes;
pub(crate) mod action_submission;
pub(crate) mod actions;
pub(crate) mod backups;
pub(crate) mod capabilities;
pub(crate) mod challenges;
pub(crate) mod chunked_submission;
pub(crate) mod claims;
pub(crate) mod dead_letters;
pub(crate) mod deferred_submission;
pub(crate) mod explain;
pub(crate) mod fetch;
pub(crate) mod halting;
pub(crate) mod identity;
pub(crate) mod job_changes;
pub(crate) mod job_ended;
pub(crate) mod job_output;
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
