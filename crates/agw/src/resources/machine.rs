//! Resources of this machine that the worker may use.

use std::path::Path;

use agenix_protocol::documents::HUNDREDTHS;
use sysinfo::System;

use super::gpus::{self, GpuVariables};

/// Unit in which memory is offered.
const MEBIBYTE: u64 = 1 << 20;

/// Resources of this machine that this process may use.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct MachineResources {
    /// Processors, in hundredths.
    pub(crate) cpus: u64,
    /// Memory in bytes. `None` if this system cannot bound the memory of a job, or does not show
    /// its memory.
    pub(crate) memory: Option<u64>,
    /// Indices or UUIDs of GPUs.
    pub(crate) gpus: Vec<String>,
    pub(crate) gpu_variables: GpuVariables,
}

impl MachineResources {
    /// Examines this machine. Affinity, control groups and the variables that hide GPUs count.
    pub(crate) fn examine() -> Self {
        let (gpus, gpu_variables) = gpus::found(Path::new("/"), |name| std::env::var(name).ok());
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            cpus: u64::try_from(processors).unwrap_or(1).saturating_mul(HUNDREDTHS),
            memory: if cfg!(target_os = "linux") { memory() } else { None },
            gpus,
            gpu_variables,
        }
    }
}

/// Returns the memory of the machine, or a lower limit of the control group.
fn memory() -> Option<u64> {
    let mut system = System::new().ok()?;
    system.refresh_memory();
    let limit = system.cgroup_limits().map(|limits| limits.total_memory);
    let limits = limit.into_iter().chain(own_limit(&mut system));
    let least = limits.chain([system.total_memory()]).filter(|&bytes| bytes > 0).min()?;
    Some(least - least % MEBIBYTE)
}

/// Returns the limit of the control group of this process, which may be below that of its first
/// group.
fn own_limit(system: &mut System) -> Option<u64> {
    use sysinfo::{ProcessRefreshKind, ProcessesToUpdate};

    let own = sysinfo::get_current_pid().ok()?;
    let own = [own];
    system.refresh_processes_specifics(ProcessesToUpdate::Some(&own), false, ProcessRefreshKind::nothing());
    system.process(own[0])?.cgroup_limits().map(|limits| limits.total_memory)
}

#[cfg(test)]
mod tests {
    use super::MachineResources;

    #[test]
    fn machine_has_a_processor_and_on_linux_memory() {
        let machine = MachineResources::examine();
        assert!(machine.cpus >= 100 && machine.cpus.is_multiple_of(100), "{machine:?}");
        let has_memory = machine.memory.is_some_and(|bytes| bytes > 1 << 20);
        assert_eq!(has_memory, cfg!(target_os = "linux"), "{machine:?}");
    }
}
