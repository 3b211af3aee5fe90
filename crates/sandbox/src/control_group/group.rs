//! Control group of one supervisor, or of one job without a sandbox.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use super::ControlGroups;

/// Control group of one supervisor or job. The drop ends the processes of the group, and removes
/// the group.
#[derive(Debug)]
pub struct ControlGroup {
    path: PathBuf,
    groups: ControlGroups,
}

impl ControlGroup {
    pub(super) fn create(path: PathBuf, groups: ControlGroups) -> io::Result<Self> {
        fs::create_dir(&path)?;
        Ok(Self { path, groups })
    }

    pub(super) fn limit_processes(&self, count: u64) -> io::Result<()> {
        fs::write(self.path.join("pids.max"), count.to_string())
    }

    /// Bounds the memory of all processes of the group to `bytes`, without swap space.
    ///
    /// # Errors
    ///
    /// Returns the error of the system.
    pub fn limit_memory(&self, bytes: u64) -> io::Result<()> {
        fs::write(self.path.join("memory.max"), bytes.to_string())?;
        // Otherwise a job at its limit would use the swap space of the machine.
        match fs::write(self.path.join("memory.swap.max"), "0") {
            // A kernel without swap has no such file.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
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
