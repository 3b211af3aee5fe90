//! Directory of a supervisor: the description of the programs, the lock, the socket, the logs.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::{profiles::LOCAL, util::path_text::PathText};

/// Name of the file that describes the programs of a supervisor.
pub(super) const SPEC: &str = "supervisor.json";
const SOCKET: &str = "supervisor.sock";
const LOCK: &str = "supervisor.lock";
/// Name of the supervisor's own log.
pub(super) const LOG: &str = "supervisor";
/// Request to end, on the socket, and its answer when everything has ended.
pub(super) const STOP_REQUEST: &[u8] = b"stop\n";
pub(super) const STOPPED: &str = "stopped\n";
/// Maximum length of the path of a Unix socket (`sun_path` without its terminating NUL).
const MAX_PATH: usize = if cfg!(target_os = "linux") { 107 } else { 103 };

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct SupervisorSpec {
    pub(crate) services: Vec<ServiceSpec>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ServiceSpec {
    /// `agq` or `agw`; also the name of the log.
    pub(crate) name: String,
    pub(crate) program: PathText,
    /// Arguments, with byte escapes for bytes that are not UTF-8.
    pub(crate) args: Vec<String>,
}

/// Returns the path of the socket for requests to a supervisor.
pub(super) fn socket(dir: &Path) -> PathBuf {
    dir.join(SOCKET)
}

/// Opens or creates the lock file. A supervisor holds the lock from its start to its end.
pub(super) fn lock(dir: &Path) -> io::Result<File> {
    File::options().read(true).write(true).create(true).truncate(false).mode(0o600).open(dir.join(LOCK))
}

pub(super) fn is_locked(dir: &Path) -> bool {
    let lock = File::options().read(true).write(true).open(dir.join(LOCK));
    lock.is_ok_and(|lock| matches!(lock.try_lock(), Err(fs::TryLockError::WouldBlock)))
}

/// Checks the length of the path of a socket in `dir`. The error holds the length and the maximum.
pub(super) fn has_room_for_sockets(dir: &Path) -> Result<(), (usize, usize)> {
    // The socket of the supervisor has the longest name of all sockets in `dir`.
    let length = socket(dir).as_os_str().len();
    if length > MAX_PATH { Err((length, MAX_PATH)) } else { Ok(()) }
}

pub(super) fn log(dir: &Path, name: &str) -> io::Result<File> {
    File::options().create(true).append(true).mode(0o600).open(log_path(dir, name))
}

/// Returns the command that ends the supervisor of `dir`, whose name is that of the profile.
pub(super) fn down_command(dir: &Path) -> String {
    let name = dir.file_name().unwrap_or_default().to_string_lossy();
    if name == LOCAL { "`agx down`".into() } else { format!("`agx down {name}`") }
}

pub(super) fn log_path(dir: &Path, name: &str) -> PathBuf {
    dir.join(name).with_extension("log")
}
