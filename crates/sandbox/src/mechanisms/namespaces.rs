//! Namespaces: user, mount, PID, network and IPC. Namespaces work without privileges where the
//! system allows user namespaces.

use std::{fs, path::Path};

use nix::sched::{CloneFlags, unshare};
use rustix::{
    io::Errno,
    mount::{MountFlags, MountPropagationFlags, mount, mount_change},
    process::{getgid, getuid},
    thread::{CapabilitySet, capabilities, configure_capability_in_ambient_set, set_capabilities},
};

use crate::{
    fault::{Step, StepFault},
    profile::ResourceLimits,
};

/// Remedy for a system without namespaces for users.
pub(crate) const REMEDY: &str = "allow user namespaces for the worker: an AppArmor profile with 'userns,', \
    sysctl user.max_user_namespaces above 0, or a container that permits unshare(2)";

/// Moves this process to namespaces of its own. The next child of this process is PID 1 of the PID
/// namespace, and keeps the capability to mount through exec(2). This process must have one thread.
pub(crate) fn enter(has_network: bool) -> Result<(), StepFault> {
    let refused = |operation: &str, error: std::io::Error| {
        let mut fault = StepFault::of(Step::Namespaces, operation, error);
        fault.detail = format!("{}; {REMEDY}", fault.detail);
        fault
    };
    let (user, group) = (getuid().as_raw(), getgid().as_raw());
    let mut flags = CloneFlags::CLONE_NEWUSER
        | CloneFlags::CLONE_NEWNS
        | CloneFlags::CLONE_NEWPID
        | CloneFlags::CLONE_NEWIPC;
    if !has_network {
        flags |= CloneFlags::CLONE_NEWNET;
    }
    unshare(flags).map_err(|error| refused("unshare", error.into()))?;
    for (file, text) in [
        ("/proc/self/setgroups", "deny".to_owned()),
        ("/proc/self/uid_map", format!("{user} {user} 1")),
        ("/proc/self/gid_map", format!("{group} {group} 1")),
    ] {
        fs::write(file, text).map_err(|error| refused(file, error))?;
    }
    let keep = || {
        let mut sets = capabilities(None)?;
        sets.inheritable = CapabilitySet::SYS_ADMIN;
        set_capabilities(None, sets)?;
        configure_capability_in_ambient_set(CapabilitySet::SYS_ADMIN, true)
    };
    keep().map_err(|error: Errno| refused("the capability to mount", error.into()))
}

/// Mounts the scratch file system with its bounds over `scratch`, and `/proc` of the PID namespace.
/// Returns false if the system refuses a `/proc`, as in a container with a masked one. Tasks then
/// get no `/proc`.
pub(crate) fn mount_scratch_and_proc(scratch: &Path, limits: &ResourceLimits) -> Result<bool, StepFault> {
    let refused = |operation: &str, error: Errno| {
        let mut fault = StepFault::of(Step::Mounts, operation, error);
        fault.detail = format!("{}; {REMEDY}", fault.detail);
        fault
    };
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", private).map_err(|error| refused("make mounts private", error))?;
    let options = c_text(format!(
        "size={},nr_inodes={},mode=700",
        limits.scratch_bytes,
        // The root directory is an inode as well.
        limits.scratch_inodes.saturating_add(1)
    ));
    // Without execution, not even a dynamic loader can map a program from the scratch.
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount(c"tmpfs", scratch, c"tmpfs", flags, options.as_deref())
        .map_err(|error| refused(&format!("mount the scratch '{}'", scratch.display()), error))?;
    match mount(c"proc", c"/proc", c"proc", flags, None) {
        Ok(()) => Ok(true),
        Err(Errno::PERM | Errno::ACCESS) => Ok(false),
        Err(error) => Err(refused("mount /proc", error)),
    }
}

fn c_text(text: String) -> Option<std::ffi::CString> {
    std::ffi::CString::new(text).ok()
}
