//! Rules of AGEniX: the lifecycle of plans, actions, jobs, workers, schedules and workflows.
//!
//! The crate is pure: it does no I/O, reads no clock, and draws no random numbers, because time,
//! ids and randomness are arguments. A rule therefore is deterministic, and a test compares values.
//!
//! A rule is a function from a record to the record after an event, and its name is a past
//! participle: [`job::claimed`], [`worker::registered`], [`action::closed`]. A refused event is a
//! [`rejection::Rejection`], whose text is the error line of the wire. Functions that only decide
//! begin with `check_`, or with `is_` if they return a boolean.
//!
//! # Reading order
//!
//! 1. [`plan`]: checks of a plan, and the needs of its jobs.
//! 2. [`action`]: checks of inputs, numbers of jobs by status, and halt policies.
//! 3. [`job`]: the lifecycle of a job: claims, leases, reports, retries.
//! 4. [`worker`], [`capability`] and [`quarantine`]: the workers that may claim a job.
//! 5. [`retry`], [`memory_retry`], [`limit`], [`action_bounds`], [`concurrency_key`], [`budget`]
//!    and [`explain`]: delays, limits, budgets of clients, and reasons for which a job does not
//!    run.
//! 6. [`ojs`], [`unique_jobs`], [`cron`] and [`workflow`]: jobs of the Open Job Spec, jobs that are
//!    compared with earlier ones, schedules, and workflows.
//! 7. [`audit_chain`]: the hash chain of the audit log.
//!
//! # Examples
//!
//! A plan is checked when it is submitted:
//!
//! ```
//! use agenix_protocol::{documents, limits::Limits};
//! use agenix_rules::plan;
//!
//! let json = br#"{"tasks": [{"task_number": 1, "command": "sort -u"}]}"#;
//! let rejection = plan::check(&documents::parse(json)?, &Limits::default()).unwrap_err();
//! assert_eq!(
//!     rejection.line(),
//!     "ERR Invalid plan schema: tasks[0].command is 'sort -u': one program name, no shell line; \
//!      its arguments go into args"
//! );
//! # Ok::<(), documents::BadDocument>(())
//! ```
//!
//! A worker claims a job, and the job is a new value:
//!
//! ```
//! use agenix_protocol::time::Timestamp;
//! use agenix_rules::{
//!     action::Action,
//!     job::{self, Job, JobParams, JobState, LeaseOptions, QueuePosition},
//! };
//!
//! let now = Timestamp(1_000);
//! let action = Action::new("hash-files".parse()?, "sha256".parse()?, now);
//! let position = QueuePosition { lane: 0, seq: 0 };
//! let waiting = Job::new("job-1".parse()?, &action, 0, position, &JobParams::default(), now);
//! assert_eq!(waiting.state, JobState::Available);
//!
//! let claimed = job::claimed(&waiting, "worker-1", now, LeaseOptions::default());
//! assert_eq!((claimed.state, claimed.attempt), (JobState::Active, 1));
//! assert!(claimed.is_held_by("worker-1"));
//! # Ok::<(), agenix_protocol::ids::BadId>(())
//! ```

#![forbid(unsafe_code)]

pub mod action;
pub mod action_bounds;
pub mod approval;
pub mod audit_chain;
pub mod blob;
pub mod budget;
pub mod capability;
pub mod concurrency_key;
pub mod cron;
pub mod explain;
pub mod fair_share;
mod hash;
mod input_type;
pub mod job;
mod key_template;
pub mod limit;
mod memory_factor;
pub mod memory_retry;
pub mod ojs;
pub mod owner;
pub mod plan;
pub mod quarantine;
pub mod rejection;
pub mod reservation;
pub mod resources;
pub mod retry;
pub mod unique_jobs;
pub mod worker;
pub mod workflow;
