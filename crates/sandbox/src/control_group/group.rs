//! Control group of one supervisor.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use super::ControlGroups;
use crate::profile::Limits;

/// Control group of one supervisor. The drop ends its processes, and removes it.
#[derive(Debug)]
pub struct ControlGroup {
    path: PathBuf,
    groups: ControlGroups,
}

impl ControlGroup {
    pub(super) fn create(path: PathBuf, limits: &Limits, groups: ControlGroups) -> io::Result<Self> {
        fs::create_dir(&path)?;
        // The drop removes a group whose limits cannot be set.
        let group = Self { path, groups };
        set_limits(&group.path, limits)?;
        Ok(group)
    }

    /// Returns the directory of the group.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the file through which a process joins the group by writing `0` to it. The kernel
    /// checks the permissions of the process that opens it.
    ///
    /// # Errors
    ///
    /// Returns the error of the system.
    pub fn entrance(&self) -> io::Result<File> {
        File::options().write(true).open(self.path.join("cgroup.procs"))
    }

    /// Kills all processes of the group.
    ///
    /// # Errors
    ///
    /// Returns the error of the system. Linux before 5.14 cannot kill a group.
    pub fn kill(&self) -> io::Result<()> {
        fs::write(self.path.join("cgroup.kill"), "1")
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        let _is_empty_or_old = self.kill();
        self.groups.remove(&self.path);
    }
}

fn set_limits(group: &Path, limits: &Limits) -> io::Result<()> {
    fs::write(group.join("memory.max"), limits.memory.to_string())?;
    fs::write(group.join("pids.max"), limits.processes.to_string())?;
    // Otherwise a job at its limit would use the swap space of the machine.
    match fs::write(group.join("memory.swap.max"), "0") {
        // A kernel without swap has no such file.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
