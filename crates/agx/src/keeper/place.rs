//! The directory of a keeper: what it is to run, its lock, its socket, its logs.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

/// The file that says what is to run.
pub(super) const SPEC: &str = "keeper.json";
const SOCKET: &str = "keeper.sock";
const LOCK: &str = "keeper.lock";
/// What is said on the socket.
pub(super) const DOWN: &[u8] = b"down\n";
pub(super) const GONE: &str = "gone\n";
/// Most bytes of a Unix socket's path (`sun_path`, less the byte that ends it).
const MOST_PATH: usize = if cfg!(target_os = "linux") { 107 } else { 103 };

/// What is to run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Spec {
    pub(crate) parts: Vec<Part>,
}

/// One program of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Part {
    /// `agq` or `agw`; its log is named after it.
    pub(crate) name: String,
    pub(crate) program: PathBuf,
    pub(crate) args: Vec<String>,
}

/// Where a keeper is told to end.
pub(super) fn socket(dir: &Path) -> PathBuf {
    dir.join(SOCKET)
}

/// The file that is locked as long as a keeper runs, or is being started. It is made when it is missing.
pub(super) fn lock(dir: &Path) -> io::Result<File> {
    File::options().read(true).write(true).create(true).truncate(false).mode(0o600).open(dir.join(LOCK))
}

/// Whether somebody holds the lock.
pub(super) fn is_locked(dir: &Path) -> bool {
    let lock = File::options().read(true).write(true).open(dir.join(LOCK));
    lock.is_ok_and(|lock| matches!(lock.try_lock(), Err(fs::TryLockError::WouldBlock)))
}

/// Whether the path of a socket in this directory is short enough; else how long it is, and how long it may be.
pub(super) fn has_room_for_sockets(dir: &Path) -> Result<(), (usize, usize)> {
    // The longest name of a socket there.
    let length = socket(dir).as_os_str().len();
    if length > MOST_PATH { Err((length, MOST_PATH)) } else { Ok(()) }
}

/// A log, to be written to at its end.
pub(super) fn log(dir: &Path, name: &str) -> io::Result<File> {
    File::options().create(true).append(true).mode(0o600).open(log_path(dir, name))
}

pub(super) fn log_path(dir: &Path, name: &str) -> PathBuf {
    dir.join(name).with_extension("log")
}
