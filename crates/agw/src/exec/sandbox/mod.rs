//! Sandbox of untrusted jobs (ADR 23). A supervisor process of `agenix_sandbox` starts the tasks of
//! such a job, and opens the files that the plan names.
//!
//! [`sandboxes`] decides the profile of a job and begins the job; `pool` keeps supervisors that
//! wait for one; [`job`] and [`task`] are the job and its tasks; `replies` receives the replies of
//! the supervisor; `denials` explains failures.

#[cfg(target_os = "linux")]
mod denials;
#[cfg(target_os = "linux")]
mod idle_supervisors;
#[cfg(target_os = "linux")]
pub(crate) mod job;
pub(crate) mod machine;
#[cfg(target_os = "linux")]
mod pool;
#[cfg(target_os = "linux")]
mod replies;
#[cfg(target_os = "linux")]
pub(crate) mod sandboxes;
#[cfg(target_os = "linux")]
mod scratch;
pub(crate) mod settings;
#[cfg(target_os = "linux")]
mod supervisor;
#[cfg(target_os = "linux")]
pub(crate) mod task;

#[cfg(not(target_os = "linux"))]
mod unsupported;
#[cfg(not(target_os = "linux"))]
pub(crate) use unsupported::{job, sandboxes, task};
