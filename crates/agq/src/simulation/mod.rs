//! Deterministic simulation testing of agq.
//!
//! A simulation runs agq without its network layer: commands, rules, waiters, reaper and the redb
//! store are the real code. The clock, the disk, randomness, the log and all clients are simulated.
//! A seed determines the whole simulation. Everything runs in one thread, in one order, so a
//! failing seed fails again in the same way.
//!
//! How a seed runs:
//!
//! - `world` has the state of one seed: disk, clock, a process of agq, actors, and the ledger.
//!   `run` executes the steps of a seed.
//! - In each step (`steps`, `workers`) an actor sends a command, the writer writes a batch, time
//!   passes, or a fault happens. Faults are crashes, power failures, failing and full disks, lost
//!   replies, and clocks that are set back.
//! - `process` is one run of agq between two crashes. The process executes all tasks until they
//!   wait for the writer, for time, or for a client.
//! - `replies` delivers replies to the actors, and records in the `ledger` what agq has
//!   acknowledged. `keys` does the same for users' keys, as a model of Redis.
//! - `checks` verifies the invariants: indexes agree with records, nothing acknowledged is lost,
//!   the lifecycle of jobs permits each step, and no client waits while there is work for it.
//! - `claim_checks` verifies claims against a model (`claim_model`), which computes from the
//!   submitted documents (`job_terms`) and from events what each claimant may have and could take.
//! - `quiesce` ends the seed: faults stop, workers do their work, and every job must end. Then
//!   claims of new jobs must be divided between two shares (`shares`).
//!
//! If a seed fails, `run` shrinks its steps to a short script, and prints the command that repeats
//! the script. The random numbers of a step depend on the seed and the number of the step only, so
//! steps can be left out.
//!
//! Other programs of `cli` use the same world:
//!
//! - `crash_images` records all changes of the disk, and starts agq on every state that a crash
//!   could leave. Half of its scenarios are about blobs (`blob_steps`, `blob_checks`). `corruption`
//!   starts agq on damaged files.
//! - `differential` records the operations of a world without faults (`operations`, `recording`,
//!   `ojs_jobs`), repeats them on PostgreSQL, and compares the replies.
//! - `nodes` runs two nodes on one PostgreSQL with real concurrency, so it is not deterministic.
//! - `hot_paths` executes the hot paths a given number of times, so that their instructions can be
//!   counted.

mod actors;
mod blob_checks;
mod blob_disk;
mod blob_steps;
mod budget_checks;
mod budgets;
mod checks;
mod claim_checks;
mod claim_model;
mod cli;
mod corruption;
mod crash_images;
mod differential;
mod disk;
mod elements;
mod expectations;
mod hot_paths;
mod job_terms;
mod jobs_view;
mod keys;
mod ledger;
mod limit_terms;
mod log;
mod metrics;
mod nodes;
mod ojs_jobs;
mod operations;
mod process;
mod quiesce;
mod recording;
mod replies;
mod report;
mod run;
mod run_charges;
mod share_model;
mod share_terms;
mod shares;
mod starts;
mod steps;
mod time;
mod workers;
mod world;

pub use crate::simulation::{cli::run_program, hot_paths::run_path};
