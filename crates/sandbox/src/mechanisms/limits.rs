//! Resource limits of each process (setrlimit(2)), which tasks inherit from the supervisor.

use std::{fs, os::unix::fs::MetadataExt};

use rustix::process::{Resource, Rlimit, getrlimit, getuid, setrlimit};

use crate::{
    fault::{Step, StepFault},
    profile::ResourceLimits,
    setup::Regime,
};

/// Address space that the supervisor needs beyond its size at the set-up, for stacks and buffers.
const OWN_GROWTH: u64 = 32 << 20;
/// Seconds between the signal SIGXCPU and SIGKILL for a process without processor time left.
const CPU_GRACE_SECS: u64 = 1;

/// Sets the limits of this process. With a control group, which counts the processes of each job,
/// the limit of the user stays as it is, because others share it.
pub(crate) fn set(limits: &ResourceLimits, regime: Regime, has_control_group: bool) -> Result<(), StepFault> {
    let size = own_address_space();
    if size.is_some_and(|size| size.saturating_add(OWN_GROWTH) > limits.address_space) {
        let detail = format!(
            "address_space: the supervisor itself has {} bytes, and could not start tasks below {}",
            size.unwrap_or_default(),
            limits.address_space
        );
        return Err(StepFault::new(Step::Limits, detail));
    }
    let both = |value| Rlimit { current: Some(value), maximum: Some(value) };
    // The kernel counts the processes of the user in this user namespace. Without a user namespace
    // of each supervisor, other processes of the user count, too.
    let processes = match regime {
        Regime::Namespaces => both(limits.processes),
        Regime::Subreaper if has_control_group => getrlimit(Resource::Nproc),
        Regime::Subreaper => both(limits.processes.saturating_add(threads_of_user())),
    };
    let values = [
        (Resource::Core, both(0)),
        (Resource::Nproc, processes),
        (Resource::As, both(limits.address_space)),
        (Resource::Fsize, both(limits.file_size)),
        (Resource::Nofile, both(limits.open_files)),
        (Resource::Memlock, both(0)),
        (
            Resource::Cpu,
            Rlimit { current: Some(limits.cpu_secs), maximum: Some(limits.cpu_secs + CPU_GRACE_SECS) },
        ),
    ];
    for (resource, wanted) in values {
        // A lower limit of the worker holds as well.
        let limit = lower(getrlimit(resource), wanted);
        setrlimit(resource, limit)
            .map_err(|error| StepFault::of(Step::Limits, format!("{resource:?}"), error))?;
    }
    Ok(())
}

fn lower(present: Rlimit, wanted: Rlimit) -> Rlimit {
    let least = |one: Option<u64>, other: Option<u64>| one.into_iter().chain(other).min();
    let maximum = least(present.maximum, wanted.maximum);
    Rlimit { current: least(wanted.current, maximum), maximum }
}

/// Returns the size of the address space of this process in bytes, if `/proc` shows it.
fn own_address_space() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmSize:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes << 10)
}

/// Returns the number of threads of this user that `/proc` shows.
fn threads_of_user() -> u64 {
    let own = getuid().as_raw();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let tasks = processes.filter_map(|process| process.path().join("task").metadata().ok());
    // A directory has a link for itself and its parent, and one for each directory in it.
    tasks.filter(|tasks| tasks.uid() == own).map(|tasks| tasks.nlink().saturating_sub(2)).sum()
}

/// Returns true if this process has used more than half of the processor time that its tasks, which
/// inherit its limits, may have. A supervisor at its limit would be killed.
pub(crate) fn is_worn(limits: &ResourceLimits) -> bool {
    use nix::sys::resource::{UsageWho, getrusage};

    let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) else { return true };
    let used = usage.user_time().tv_sec() + usage.system_time().tv_sec();
    u64::try_from(used).unwrap_or(u64::MAX) >= limits.cpu_secs.div_ceil(2)
}

#[cfg(test)]
mod tests {
    use rustix::process::Rlimit;

    use super::{lower, own_address_space, threads_of_user};

    #[test]
    fn limit_is_never_raised() {
        let limit = |current, maximum| Rlimit { current, maximum };
        let wanted = limit(Some(60), Some(61));
        assert_eq!(lower(limit(None, None), wanted), wanted);
        assert_eq!(lower(limit(Some(5), Some(10)), wanted), limit(Some(10), Some(10)));
        assert_eq!(lower(limit(Some(5), None), wanted), wanted);
    }

    #[test]
    fn own_use_is_read_from_proc() {
        assert!(own_address_space().is_some_and(|bytes| bytes > 1 << 20));
        assert!(threads_of_user() >= 1);
    }
}
