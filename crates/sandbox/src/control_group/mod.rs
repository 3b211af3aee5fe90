//! Control groups (version 2): bound the processes and the memory of a job in sum.
//!
//! A worker whose own control group is delegated to it moves itself to a group below, because a
//! group that delegates controllers must not have processes of its own. Each supervisor gets a
//! group beside that of the worker, and so does each job without a sandbox whose memory is bounded.
//! The owner of the limits is the worker; a supervisor only joins.

mod delegated;
mod group;

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

pub use delegated::own_group;
pub use group::ControlGroup;

use crate::{profile::ResourceLimits, report::MissingProperty};

/// Prefix of all groups of workers. The process id of the worker follows.
const PREFIX: &str = "agw-";

/// Control groups of a worker.
#[derive(Debug, Clone)]
pub struct ControlGroups(Arc<Groups>);

#[derive(Debug)]
struct Groups {
    /// Directory of the delegated group.
    parent: PathBuf,
    next: AtomicU64,
    /// Groups whose processes had not ended when their owner dropped them.
    abandoned: Mutex<Vec<PathBuf>>,
}

impl ControlGroups {
    /// Claims the control group of this process, if it is delegated to this process. Moves the
    /// processes in it to a group below.
    ///
    /// # Errors
    ///
    /// Returns why there is no delegated control group, and what to do.
    pub fn claim() -> Result<Self, MissingProperty> {
        let parent = delegated::claim()?;
        Ok(Self(Arc::new(Groups { parent, next: AtomicU64::new(1), abandoned: Mutex::default() })))
    }

    /// Creates a group with `limits` for a supervisor.
    ///
    /// # Errors
    ///
    /// Returns the error of the system.
    pub fn create(&self, limits: &ResourceLimits) -> io::Result<ControlGroup> {
        let group = self.create_for_job(limits.memory)?;
        group.limit_processes(limits.processes)?;
        Ok(group)
    }

    /// Creates a group for a job without a sandbox, which may use `memory` bytes.
    ///
    /// # Errors
    ///
    /// Returns the error of the system.
    pub fn create_for_job(&self, memory: u64) -> io::Result<ControlGroup> {
        self.0.remove_abandoned();
        let number = self.0.next.fetch_add(1, Ordering::Relaxed);
        let path = self.0.parent.join(format!("{PREFIX}{}-{number}", std::process::id()));
        // The drop removes a group whose limits cannot be set.
        let group = ControlGroup::create(path, self.clone())?;
        group.limit_memory(memory)?;
        Ok(group)
    }

    /// Removes a group, now or when its processes have ended.
    fn remove(&self, path: &Path) {
        if fs::remove_dir(path).is_err() {
            self.0.abandoned().push(path.to_owned());
        }
    }
}

impl Groups {
    fn remove_abandoned(&self) {
        self.abandoned().retain(|path| fs::remove_dir(path).is_err());
    }

    fn abandoned(&self) -> std::sync::MutexGuard<'_, Vec<PathBuf>> {
        self.abandoned.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        // The next worker in this group removes the groups whose processes have not ended yet.
        self.remove_abandoned();
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, sync::Arc};

    use super::{ControlGroups, Groups};
    use crate::profile::ResourceLimits;

    #[test]
    fn group_of_a_job_bounds_only_its_memory() {
        let parent = tempfile::tempdir().unwrap();
        let groups = Groups { parent: parent.path().into(), next: 7.into(), abandoned: Vec::new().into() };
        let groups = ControlGroups(Arc::new(groups));
        let read = |path: &std::path::Path, file| fs::read_to_string(path.join(file)).ok();
        let job = groups.create_for_job(64 << 20).unwrap();
        assert_eq!(job.path(), parent.path().join(format!("agw-{}-7", std::process::id())));
        assert_eq!(read(job.path(), "memory.max").as_deref(), Some("67108864"));
        assert_eq!(read(job.path(), "memory.swap.max").as_deref(), Some("0"));
        assert_eq!(read(job.path(), "pids.max"), None);
        job.limit_memory(1 << 20).unwrap();
        assert_eq!(read(job.path(), "memory.max").as_deref(), Some("1048576"));
        let limits = ResourceLimits { memory: 5, processes: 6, ..ResourceLimits::default() };
        let supervisor = groups.create(&limits).unwrap();
        assert_eq!(read(supervisor.path(), "memory.max").as_deref(), Some("5"));
        assert_eq!(read(supervisor.path(), "pids.max").as_deref(), Some("6"));
    }
}
