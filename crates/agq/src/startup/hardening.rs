//! Protection of the process and its files against other users.

use tracing::warn;

/// Keeps other processes from the memory, which has the session key (RESP spec §8.1).
pub(crate) fn forbid_core_dumps() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)
    {
        warn!(%error, "cannot protect the memory from other processes");
    }
    use rustix::process::{Resource, Rlimit, setrlimit};
    if let Err(error) = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) }) {
        warn!(%error, "cannot forbid core dumps");
    }
}
