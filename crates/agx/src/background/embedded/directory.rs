//! Temporary directory of a command that runs its own agq and agw. A locked file in the directory
//! shows that the command still runs. A process id means nothing to another container or machine
//! that shares the parent directory.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::Duration,
};

use agenix_cli::temp_dir;
use tempfile::TempDir;

/// Prefix of the name of the directory. The process id, `-` and random characters follow the
/// prefix.
const PREFIX: &str = "agx-";
/// Number of random letters and digits at the end of the name.
const RANDOM: usize = 6;
/// Log of agq, which the directory has.
const AGQ_LOG: &str = "agq.log";
/// Names of the entries of the directory.
const ENTRIES: [&str; 6] = ["agq", AGQ_LOG, "agw.log", "data", LOCK, UNLOCKED];
/// Prefix of the names of further entries: the scratch directories of agw.
const SCRATCH: &str = "agw-scratch-";
/// Name of the lock file. The file gets this name after the lock is taken.
const LOCK: &str = "lock";
/// Name of the lock file before the lock is taken.
const UNLOCKED: &str = "unlocked";
/// Maximum length of the directory's path; leaves room for a socket's path (`sun_path` of macOS).
const MAX_PATH: usize = 100;
/// Parent directory for the case that TMPDIR is too long.
const SHORT: &str = "/tmp";
/// Age of an abandoned directory without a lock, as of an older agx or some file systems.
const OLD: Duration = Duration::from_secs(7 * 86_400);

/// Temporary directory that is removed at the end of this process.
pub(super) struct EmbeddedDir {
    /// `dir` comes before `_lock`, so that the lock is held until the directory is removed.
    dir: TempDir,
    _lock: Option<File>,
}

impl EmbeddedDir {
    /// Creates a directory, below TMPDIR if the path of a socket fits there.
    pub(super) fn new() -> io::Result<Self> {
        let pid = std::process::id();
        let place = Self::new_in(&temp_dir(), pid)?;
        if place.path().as_os_str().len() < MAX_PATH {
            Ok(place)
        } else {
            Self::new_in(Path::new(SHORT), pid)
        }
    }

    fn new_in(base: &Path, pid: u32) -> io::Result<Self> {
        let prefix = format!("{PREFIX}{pid}-");
        let dir = tempfile::Builder::new().prefix(&prefix).rand_bytes(RANDOM).tempdir_in(base)?;
        let lock = locked(dir.path())?;
        Ok(Self { dir, _lock: lock })
    }

    pub(super) fn path(&self) -> &Path {
        self.dir.path()
    }
}

/// Creates and locks the lock file of a new directory. Returns `None` without locks.
fn locked(dir: &Path) -> io::Result<Option<File>> {
    let unlocked = dir.join(UNLOCKED);
    let lock = File::create_new(&unlocked)?;
    if lock.try_lock().is_err() {
        return Ok(None);
    }
    fs::rename(unlocked, dir.join(LOCK))?;
    Ok(Some(lock))
}

/// Removes the directories of killed commands.
pub(super) fn sweep() {
    let (usual, short) = (temp_dir(), PathBuf::from(SHORT));
    sweep_in(&usual);
    if usual != short {
        sweep_in(&short);
    }
}

fn sweep_in(base: &Path) {
    let Ok(entries) = fs::read_dir(base) else { return };
    for entry in entries.flatten() {
        let Some(pid) = pid_in(&entry.file_name()) else { continue };
        // The lock is held until the directory is removed.
        let Some(_lock) = left_behind(&entry.path(), pid) else { continue };
        let _may_be_left = fs::remove_dir_all(entry.path());
    }
}

/// Returns the process id in the name of a directory, or `None` if the name has another form.
fn pid_in(name: &OsStr) -> Option<i32> {
    let (pid, random) = name.to_str()?.strip_prefix(PREFIX)?.split_once('-')?;
    let is_random = random.len() == RANDOM && random.bytes().all(|byte| byte.is_ascii_alphanumeric());
    pid.parse().ok().filter(|_| is_random)
}

/// Returns true if the entries of `dir` are those of a directory that agx has created. The name of
/// `dir` does not show its origin, because a directory of the user may have such a name.
fn has_own_entries(dir: &Path) -> io::Result<bool> {
    let mut has_log = false;
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name();
        let is_known = ENTRIES.iter().any(|known| name == *known);
        if !is_known && !name.as_encoded_bytes().starts_with(SCRATCH.as_bytes()) {
            return Ok(false);
        }
        has_log |= name == AGQ_LOG;
    }
    Ok(has_log)
}

/// Returns the lock of an abandoned directory of this user, or `Some(None)` if it never had one.
fn left_behind(dir: &Path, pid: i32) -> Option<Option<File>> {
    let about = fs::symlink_metadata(dir).ok()?;
    if !about.is_dir() || about.uid() != rustix::process::geteuid().as_raw() {
        return None;
    }
    has_own_entries(dir).ok().filter(|is_own| *is_own)?;
    match File::options().read(true).write(true).open(dir.join(LOCK)) {
        Ok(lock) => lock.try_lock().is_ok().then_some(Some(lock)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let age = about.modified().ok()?.elapsed().ok()?;
            (age > OLD && has_ended(pid)).then_some(None)
        }
        Err(_) => None,
    }
}

/// Returns true if this machine has no process `pid`.
fn has_ended(pid: i32) -> bool {
    let pid = rustix::process::Pid::from_raw(pid);
    pid.is_some_and(|pid| rustix::process::test_kill_process(pid) == Err(rustix::io::Errno::SRCH))
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, File},
        os::unix::fs::symlink,
        path::Path,
        time::{Duration, SystemTime},
    };

    use super::{AGQ_LOG, EmbeddedDir, LOCK, OLD, sweep_in};

    /// Process id of another namespace or machine, which no process here has.
    const ELSEWHERE: u32 = 999_999_999;

    fn directory(base: &Path, name: &str, lock: bool) -> std::path::PathBuf {
        let dir = base.join(name);
        fs::create_dir(&dir).unwrap();
        File::create(dir.join(AGQ_LOG)).unwrap();
        if lock {
            File::create(dir.join(LOCK)).unwrap();
        }
        dir
    }

    fn grow_old(dir: &Path) {
        let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1);
        assert!(long_ago.elapsed().unwrap() > OLD);
        File::open(dir).unwrap().set_modified(long_ago).unwrap();
    }

    #[test]
    fn sweep_keeps_directories_of_live_commands_in_other_namespaces() {
        let base = tempfile::tempdir().unwrap();
        let place = EmbeddedDir::new_in(base.path(), ELSEWHERE).unwrap();
        grow_old(place.path());
        sweep_in(base.path());
        assert!(place.path().join(LOCK).exists());
        let path = place.path().to_owned();
        drop(place);
        assert!(!path.exists(), "it goes with its command");
    }

    #[test]
    fn sweep_removes_directories_of_killed_commands_despite_pid_reuse() {
        let base = tempfile::tempdir().unwrap();
        let lived_here = directory(base.path(), &format!("agx-{}-Ab3xyz", std::process::id()), true);
        let lived_elsewhere = directory(base.path(), &format!("agx-{ELSEWHERE}-Ab3xyz"), true);
        sweep_in(base.path());
        assert!(!lived_here.exists() && !lived_elsewhere.exists());
    }

    #[test]
    fn sweep_removes_unlocked_directories_only_when_old() {
        let base = tempfile::tempdir().unwrap();
        let of_older_agx = directory(base.path(), &format!("agx-{ELSEWHERE}-Ab3xyz"), false);
        let (alive, other) =
            (directory(base.path(), "agx-1-Ab3xyz", false), directory(base.path(), "agx-old", true));
        sweep_in(base.path());
        assert!(of_older_agx.exists(), "it may be about to be locked");
        for dir in [&of_older_agx, &alive, &other] {
            grow_old(dir);
        }
        sweep_in(base.path());
        assert!(!of_older_agx.exists() && alive.exists() && other.exists());
    }

    #[test]
    fn sweep_keeps_directories_that_agx_did_not_create() {
        let base = tempfile::tempdir().unwrap();
        let named = directory(base.path(), &format!("agx-{ELSEWHERE}-results"), true);
        let with_other_entry = directory(base.path(), &format!("agx-{ELSEWHERE}-report"), true);
        File::create(with_other_entry.join("notes.txt")).unwrap();
        let without_log = directory(base.path(), &format!("agx-{ELSEWHERE}-Ab3xyz"), true);
        fs::remove_file(without_log.join(AGQ_LOG)).unwrap();
        let all = [named, with_other_entry, without_log];
        all.iter().for_each(|dir| grow_old(dir));
        sweep_in(base.path());
        assert!(all.iter().all(|dir| dir.join(LOCK).exists()));
    }

    #[test]
    fn sweep_follows_no_symbolic_links() {
        let base = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        for name in [AGQ_LOG, LOCK] {
            File::create(elsewhere.path().join(name)).unwrap();
        }
        symlink(elsewhere.path(), base.path().join(format!("agx-{ELSEWHERE}-Ab3xyz"))).unwrap();
        sweep_in(base.path());
        assert!(elsewhere.path().join(LOCK).exists());
    }
}
