//! Protection of the process and its files against other users.

use tracing::warn;

/// Forbids core dumps, and other processes to read the memory of this one.
///
/// The session key is in memory and in the environment, and must not leak (RESP spec §8.1).
pub(crate) fn forbid_core_dumps() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)
    {
        warn!(%error, "other processes could not be kept from reading this one");
    }
    use rustix::process::{Resource, Rlimit, setrlimit};
    if let Err(error) = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) }) {
        warn!(%error, "core dumps could not be forbidden");
    }
}
