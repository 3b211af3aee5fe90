//! Privileges of a supervisor: capabilities, new privileges by exec(2), its terminal, and the
//! access of others to its memory.

use std::fs;

use nix::unistd::{Pid, getsid};
use rustix::{
    io::Errno,
    process::{DumpableBehavior, Signal, set_dumpable_behavior, set_parent_process_death_signal, setsid},
    thread::{
        CapabilitySet, CapabilitySets, SecureComputingMode, capabilities, clear_ambient_capability_set,
        no_new_privs, secure_computing_mode, set_capabilities, set_no_new_privs,
    },
};

use crate::fault::{Step, StepFault};

/// Refuses root: no resource limit of processes holds for root, and root owns the system's files.
pub(crate) fn refuse_root() -> Result<(), StepFault> {
    if rustix::process::geteuid().is_root() || rustix::process::getuid().is_root() {
        let detail = "tasks must not run as root; start the worker as another user, or set a user for tasks";
        return Err(StepFault::new(Step::User, detail));
    }
    Ok(())
}

/// Drops all capabilities, and forbids new privileges.
pub(crate) fn drop_all() -> Result<(), StepFault> {
    let drop = || {
        clear_ambient_capability_set()?;
        let none = CapabilitySet::empty();
        set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?;
        set_no_new_privs(true)
    };
    drop().map_err(|error: Errno| StepFault::of(Step::Privileges, "drop capabilities", error))?;
    let left =
        capabilities(None).map_err(|error| StepFault::of(Step::Privileges, "read capabilities", error))?;
    let is_empty = left.effective.is_empty() && left.permitted.is_empty() && left.inheritable.is_empty();
    match no_new_privs() {
        Ok(true) if is_empty => Ok(()),
        _ => Err(StepFault::new(Step::Privileges, format!("capabilities are left: {left:?}"))),
    }
}

/// Forbids other processes of the user to read the memory of this process.
pub(crate) fn protect() -> Result<(), StepFault> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(|error| StepFault::of(Step::Privileges, "protect the supervisor", error))
}

/// Makes the kernel kill this process when its parent ends.
pub(crate) fn follow_parent() -> Result<(), StepFault> {
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| StepFault::of(Step::Privileges, "follow the outer process", error))
}

/// Makes the memory shortage of the machine end tasks before the worker. The kernel always lets a
/// process raise its own `oom_score_adj`. Without `/proc`, the tasks have that of the worker.
pub(crate) fn prefer_for_out_of_memory() {
    let _without_proc = fs::write("/proc/self/oom_score_adj", "1000");
}

/// Leaves the session of the worker, and so its terminal.
pub(crate) fn leave_terminal() -> Result<(), StepFault> {
    match setsid() {
        Ok(_) => Ok(()),
        // PID 1 of a namespace may lead a session already.
        Err(Errno::PERM) if getsid(None) == Ok(Pid::this()) => Ok(()),
        Err(error) => Err(StepFault::of(Step::Terminal, "setsid", error)),
    }
}

/// Returns true if the kernel filters the system calls of this process.
pub(crate) fn are_calls_filtered() -> bool {
    matches!(secure_computing_mode(), Ok(SecureComputingMode::Filter))
}
