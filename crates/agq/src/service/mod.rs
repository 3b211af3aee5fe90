//! Domain operations: they apply the rules of `agenix-rules` to the store, and return domain
//! values. `resp` and `http` present these operations; no reply type of a wire protocol occurs
//! here.
//!
//! The modules form layers. A module uses modules of its own layer, and of the layers before it in
//! this list. The follow-up of an operation cannot call another operation:
//!
//! 1. Lookup reads records, and rejects unknown ids: `lookup`, `owned`, `blobs`, `queue_stats`.
//! 2. Messages go to workers, and events about workers to subscribers: `worker_messages`.
//! 3. Changes apply rules to records: `job_changes`, `action_changes`, `chunked_submission`,
//!    `worker_health`, `queues`, `limits`.
//! 4. Submission checks and stores new jobs: `action_submission`, `ojs_submission`,
//!    `deferred_submission`, `step_outputs`.
//! 5. Follow-up continues after the end of a job, with the health of the worker and the next step
//!    of the workflow: `job_ended`, `workflow`.
//! 6. Operations carry out one command or request, with its follow-up: all other modules.
//!
//! The `ojs_*` modules, `fetch` and `dead_letters` are operations of the Open Job Spec; `claims` is
//! the counterpart of `fetch` for RESP. The reaper calls `timers`, `halting`, `limits`, `schedules`
//! and `closed_connections` in each round, and `workflow` beside its rounds.

pub(crate) mod action_changes;
pub(crate) mod action_submission;
pub(crate) mod actions;
pub(crate) mod approval_decisions;
pub(crate) mod approvals;
pub(crate) mod backups;
pub(crate) mod blob_sweep;
pub(crate) mod blobs;
pub(crate) mod budgets;
pub(crate) mod capabilities;
pub(crate) mod challenges;
pub(crate) mod chunked_submission;
pub(crate) mod claim_gate;
pub(crate) mod claims;
pub(crate) mod closed_connections;
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
pub(crate) mod outputs;
pub(crate) mod owned;
mod peer_file;
pub(crate) mod plans;
pub(crate) mod queue_stats;
pub(crate) mod queues;
pub(crate) mod resource_sums;
pub(crate) mod schedules;
mod staged_jobs;
mod step_outputs;
pub(crate) mod timers;
pub(crate) mod uploads;
pub(crate) mod worker_health;
pub(crate) mod worker_messages;
pub(crate) mod workers;
pub(crate) mod workflow;
