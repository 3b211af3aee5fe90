//! Sandbox for untrusted jobs. A supervisor process sets up its confinement once; the tasks that
//! the supervisor starts inherit the confinement, so a task costs little more than a plain spawn.
//!
//! - [`profile`]: limits and permissions of a class of jobs, as plain data.
//! - [`property`]: guarantees that a profile needs, independent of the mechanism behind them.
//! - [`report`]: guarantees that hold, with the mechanism of each, and those that are missing.
//! - [`protocol`]: messages between the worker and a supervisor.
//! - [`supervisor`]: entry of the supervisor process, which is the worker's executable again.
//! - [`control_group`]: bounds for the processes and the memory of a job in sum.
//! - [`client`]: side of the worker: starts a supervisor, tasks in it, and waits for them.
//! - [`probe`]: attacks from inside a sandbox that show which properties this machine enforces.
//!
//! Nothing is best effort. A step of the set-up that fails ends the supervisor with an error that
//! names the step, and a profile that needs a property that does not hold is refused.
//!
//! ```no_run
//! # #[cfg(target_os = "linux")]
//! # fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use agenix_sandbox::{
//!     client::{Settings, Supervisor},
//!     profile::Profile,
//!     protocol::{Sink, Source, TaskStart},
//!     setup::Regime,
//! };
//!
//! let mut supervisor = Supervisor::start(&Settings {
//!     executable: "/proc/self/exe".into(),
//!     profile: Profile::reader(),
//!     scratch: "/run/agw/scratch".into(),
//!     regime: Regime::Namespaces,
//!     user: None,
//!     control_group: None,
//!     without: [].into(),
//! })?;
//! supervisor.begin(&["/usr/bin/sort"])?;
//! let sort = TaskStart {
//!     task: 1,
//!     program: "/usr/bin/sort".into(),
//!     argv: vec!["sort".into(), "-n".into()],
//!     env: vec![],
//!     cwd: None,
//!     stdin: Source::Path("/usr/share/dict/words".into()),
//!     stdout: Sink::Null,
//!     stderr: Sink::Stdout,
//!     is_last: false,
//!     worker_env: vec![],
//!     memory: None,
//! };
//! supervisor.start_task(sort, &[])?;
//! let end = supervisor.wait(1)?;
//! let cleaned = supervisor.clean()?;
//! # Ok(())
//! # }
//! ```
//!
//! Linux alone can enforce a profile. On other systems, the crate compiles and refuses.

#![forbid(unsafe_code)]

pub mod fault;
pub mod profile;
pub mod property;
pub mod protocol;
pub mod report;
pub mod setup;

#[cfg(target_os = "linux")]
pub mod client;
#[cfg(target_os = "linux")]
pub mod control_group;
#[cfg(target_os = "linux")]
mod mechanisms;
#[cfg(target_os = "linux")]
pub mod probe;
#[cfg(target_os = "linux")]
pub mod supervisor;

#[cfg(not(target_os = "linux"))]
mod unsupported;
#[cfg(not(target_os = "linux"))]
pub use unsupported::{client, probe, supervisor};
