//! Bound of the memory of a job: by a control group of its own, if one is delegated to the worker,
//! or else by a limit of each process. Only jobs that want a quantity of memory have a bound.

use std::io;

#[cfg(target_os = "linux")]
use agenix_protocol::documents::MEMORY;
use agenix_protocol::documents::{MemoryLimit, MemoryLimitKind};
#[cfg(target_os = "linux")]
use agenix_sandbox::control_group::{ControlGroup, ControlGroups};
use agenix_sys::ChildProgram;
#[cfg(target_os = "linux")]
use tracing::debug;

#[cfg(target_os = "linux")]
use crate::exec::out_of_memory::MemoryEvents;
use crate::{exec::out_of_memory, resources::Offer};

/// Means by which the worker bounds the memory of jobs without a sandbox.
#[derive(Debug, Clone, Default)]
pub(crate) struct MemoryBounds {
    #[cfg(target_os = "linux")]
    groups: Option<ControlGroups>,
}

/// Bound of one job. The drop ends the processes of its control group.
#[derive(Debug)]
pub(crate) struct MemoryBound {
    bytes: u64,
    #[cfg(target_os = "linux")]
    group: Option<(ControlGroup, Option<MemoryEvents>)>,
}

#[cfg(target_os = "linux")]
impl MemoryBounds {
    /// Returns the means with the control groups of the worker, if it has claimed some.
    pub(crate) fn of(groups: Option<ControlGroups>) -> Self {
        Self { groups }
    }

    /// Returns the means of a worker without sandboxes that offers `offer`. Claims the control
    /// group of the worker.
    pub(crate) fn claim(offer: &Offer) -> Self {
        if offer.quantities.get(MEMORY) == 0 {
            return Self::default();
        }
        match ControlGroups::claim() {
            Ok(groups) => Self { groups: Some(groups) },
            Err(missing) => {
                debug!("the memory of jobs is bounded by a limit of each process: {}", missing.reason);
                Self::default()
            }
        }
    }

    /// Begins a job that may use `bytes` of memory.
    pub(crate) fn begin(&self, bytes: u64) -> io::Result<MemoryBound> {
        let group = self.groups.as_ref().map(|groups| groups.create_for_job(bytes)).transpose()?;
        let group = group.map(|group| {
            let events = MemoryEvents::of(group.path());
            (group, events)
        });
        Ok(MemoryBound { bytes, group })
    }
}

#[cfg(target_os = "linux")]
impl MemoryBound {
    /// Bounds a child and its children.
    pub(crate) fn apply(&self, child: &mut ChildProgram<'_>) -> io::Result<()> {
        match &self.group {
            Some((group, _)) => child.control_group = Some(group.entrance()?),
            None => child.data_limit = Some(self.bytes),
        }
        Ok(())
    }

    /// Returns the number of processes that the kernel has killed for lack of memory.
    pub(crate) fn kills(&self) -> Option<u64> {
        match &self.group {
            Some((_, events)) => events.as_ref()?.kills(),
            None => out_of_memory::kills(),
        }
    }

    /// Returns the bound as a report has it.
    pub(crate) fn report(&self) -> MemoryLimit {
        let by = if self.group.is_some() { MemoryLimitKind::Cgroup } else { MemoryLimitKind::Rlimit };
        MemoryLimit { bytes: self.bytes, by }
    }
}

/// Other systems have no control groups, and a worker on such a system offers no memory.
#[cfg(not(target_os = "linux"))]
impl MemoryBounds {
    pub(crate) fn claim(_offer: &Offer) -> Self {
        Self::default()
    }

    pub(crate) fn begin(&self, bytes: u64) -> io::Result<MemoryBound> {
        Ok(MemoryBound { bytes })
    }
}

#[cfg(not(target_os = "linux"))]
impl MemoryBound {
    pub(crate) fn apply(&self, child: &mut ChildProgram<'_>) -> io::Result<()> {
        child.data_limit = Some(self.bytes);
        Ok(())
    }

    pub(crate) fn kills(&self) -> Option<u64> {
        out_of_memory::kills()
    }

    pub(crate) fn report(&self) -> MemoryLimit {
        MemoryLimit { bytes: self.bytes, by: MemoryLimitKind::Rlimit }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::{collections::BTreeMap, ffi::OsStr, io, path::Path};

    use agenix_protocol::documents::{MemoryLimit, MemoryLimitKind, Quantities};
    use agenix_sys::ChildProgram;

    use super::{MEMORY, MemoryBounds, Offer};

    #[test]
    fn memory_is_bounded_in_each_process_without_a_control_group() {
        let bound = MemoryBounds::default().begin(48 << 20).unwrap();
        assert_eq!(bound.report(), MemoryLimit { bytes: 48 << 20, by: MemoryLimitKind::Rlimit });
        let env = BTreeMap::from([("PATH".into(), std::env::var_os("PATH").unwrap())]);
        let (stdout, pipe) = io::pipe().unwrap();
        let null = || std::fs::File::options().read(true).write(true).open("/dev/null").unwrap().into();
        let mut child = ChildProgram::new(Path::new("/bin/sh"), &env, [null(), pipe.into(), null()]);
        bound.apply(&mut child).unwrap();
        // tail(1) keeps all bytes that it may have to print.
        let script = "head -c 100000000 /dev/zero | tail -c 100000000 2> /dev/null | wc -c";
        child.args = ["sh", "-c", script].map(OsStr::new).to_vec();
        let pid = child.start().unwrap();
        assert_eq!(io::read_to_string(stdout).unwrap().trim(), "0");
        agenix_sys::reap(pid).unwrap();
    }

    #[test]
    fn worker_that_offers_no_memory_claims_no_control_group() {
        let mut quantities = Quantities::default();
        quantities.set(MEMORY, 0);
        let bounds = MemoryBounds::claim(&Offer { quantities, ..Offer::default() });
        assert!(bounds.groups.is_none());
    }
}
