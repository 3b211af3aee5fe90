//! Start of a program in a child of this process.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(not(target_os = "linux"))]
mod portable;

#[cfg(target_os = "linux")]
use std::fs::File;
use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

#[cfg(target_os = "linux")]
use linux::start;
#[cfg(not(target_os = "linux"))]
use portable::start;

/// Program for a child, with what the child does before it executes the program.
///
/// The child leads a process group of its own, has no signals blocked, and ignores only the signals
/// that this process ignores, without SIGPIPE.
#[derive(Debug)]
pub struct ChildProgram<'p> {
    /// Path of the program. A relative path is relative to `cwd`. `PATH` is not searched.
    pub program: &'p Path,
    /// Arguments of the program. The first argument is the name of the program.
    pub args: Vec<&'p OsStr>,
    /// All environment variables of the program.
    pub env: &'p BTreeMap<OsString, OsString>,
    /// Working directory, or that of this process.
    pub cwd: Option<PathBuf>,
    /// Stdin, stdout and stderr, in this order.
    pub stdio: [OwnedFd; 3],
    /// Maximum number of bytes of the data of the child, and of each of its children: its heap and
    /// its private writable mappings (`RLIMIT_DATA`). A lower hard limit of this process stays.
    pub data_limit: Option<u64>,
    /// File `cgroup.procs` of the control group that the child joins before it can start others.
    #[cfg(target_os = "linux")]
    pub control_group: Option<File>,
    /// True if the child inherits every descriptor without close-on-exec. Otherwise the child
    /// closes its copies of all descriptors but stdin, stdout and stderr before it executes the
    /// program: an execve(2) that hangs would hold the pipes of other children open. Linux before
    /// 5.9 does not close these copies. On other systems the child always inherits.
    #[cfg(target_os = "linux")]
    pub inherits_files: bool,
}

impl<'p> ChildProgram<'p> {
    /// Returns a program without arguments and environment variables.
    #[must_use]
    pub fn new(program: &'p Path, env: &'p BTreeMap<OsString, OsString>, stdio: [OwnedFd; 3]) -> Self {
        Self {
            program,
            args: Vec::new(),
            env,
            cwd: None,
            stdio,
            data_limit: None,
            #[cfg(target_os = "linux")]
            control_group: None,
            #[cfg(target_os = "linux")]
            inherits_files: false,
        }
    }

    /// Starts the child, and returns its process id. The caller reaps the child.
    ///
    /// # Errors
    ///
    /// Returns the error of the system if the child cannot be started, or cannot execute the
    /// program. Returns `InvalidInput` for a NUL in a path, an argument or a variable.
    pub fn start(self) -> io::Result<i32> {
        start(self)
    }
}

/// Returns the limit of the data of a child: `bytes`, or a lower hard limit of this process.
#[allow(unsafe_code)]
fn data_limit(bytes: u64) -> io::Result<libc::rlimit> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is valid for writes of its type during the call.
    if unsafe { libc::getrlimit(libc::RLIMIT_DATA, &raw mut limit) } < 0 {
        return Err(io::Error::last_os_error());
    }
    let bytes = bytes.min(limit.rlim_max);
    Ok(libc::rlimit { rlim_cur: bytes, rlim_max: bytes })
}

#[cfg(test)]
mod tests;
