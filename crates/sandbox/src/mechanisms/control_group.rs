//! Control group of a supervisor: joins the group that the worker has created, and checks it.

use std::{fs, io::Write, path::PathBuf};

use agenix_protocol::byte_escape::decode_os;

use crate::{
    fault::{Step, StepFault},
    profile::ResourceLimits,
    setup::Setup,
};

/// Moves this process to its control group, if it gets one. The stdout of this process is the
/// entrance of the group, and then `/dev/null`.
pub(crate) fn join(setup: &Setup) -> Result<(), StepFault> {
    if setup.control_group.is_none() {
        return Ok(());
    }
    let join = || {
        // The kernel reads `0` as the process that writes.
        std::io::stdout().write_all(b"0\n")?;
        let null = fs::File::options().write(true).open("/dev/null")?;
        rustix::stdio::dup2_stdout(&null).map_err(std::io::Error::from)
    };
    join().map_err(|error| StepFault::of(Step::ControlGroup, "join it", error))
}

/// Returns true if this process is in a control group that bounds processes and memory.
pub(crate) fn check(setup: &Setup) -> Result<bool, StepFault> {
    let Some(group) = &setup.control_group else { return Ok(false) };
    let group = PathBuf::from(decode_os(group));
    let read = |file: &str| {
        fs::read_to_string(group.join(file)).map_err(|error| StepFault::of(Step::ControlGroup, file, error))
    };
    let own = std::process::id().to_string();
    if !read("cgroup.procs")?.lines().any(|process| process == own) {
        return Err(StepFault::new(Step::ControlGroup, "the supervisor is not in it"));
    }
    let ResourceLimits { memory, processes, .. } = setup.profile.limits;
    for (file, limit) in [("memory.max", memory), ("pids.max", processes)] {
        let text = read(file)?;
        // The kernel rounds the memory down to a page.
        if !text.trim().parse().is_ok_and(|held: u64| held <= limit) {
            return Err(StepFault::new(
                Step::ControlGroup,
                format!("{file} is {} and not {limit}", text.trim()),
            ));
        }
    }
    Ok(true)
}
