//! Supervisor of the processes of `agx up` and `agx join`. The supervisor starts an agq, an agw, or
//! both, restarts them when they exit, and stops them on request. A supervisor has a directory with
//! the description of the programs, a lock that it holds while it runs, the logs, and the socket
//! for requests.

mod directory;
mod messages;
mod requests;
mod run;

use std::{
    fs::{File, TryLockError},
    io::{self, BufRead, BufReader},
    os::unix::net::UnixStream as StdUnixStream,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use agenix_protocol::documents::to_json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
    time::{Instant, sleep},
};

pub(crate) use self::run::run;
pub(crate) use crate::background::supervisor::{
    directory::{ServiceSpec, SupervisorSpec},
    messages::LogTails,
};
use crate::{
    background::supervisor::directory::{
        LOG, SPEC, STOP_REQUEST, STOPPED, down_command, has_room_for_sockets, is_locked, lock, log, log_path,
        socket,
    },
    error::{CliError, Result},
    output::OutputFormat,
};

/// Maximum wait for a supervisor that is about to end or to listen.
const MAX_WAIT: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Delay before `agx down` shows its user the jobs that the worker still runs.
const NOTICE_DELAY: Duration = Duration::from_secs(2);

/// File lock of a directory. No other process can start a supervisor in that directory.
#[derive(Debug)]
pub(crate) struct DirLock(File);

/// Takes the file lock of `dir`. Returns a failure if a supervisor runs there already.
pub(crate) async fn lock_dir(dir: &Path) -> Result<DirLock> {
    try_lock_dir(dir).await?.ok_or_else(|| {
        let problem = format!("a supervisor already runs in {}", dir.display());
        CliError::usage(problem, format!("{} ends it", down_command(dir)))
    })
}

/// Takes the file lock of `dir`. Returns `None` if a supervisor runs there already.
pub(crate) async fn try_lock_dir(dir: &Path) -> Result<Option<DirLock>> {
    if let Err((length, most)) = has_room_for_sockets(dir) {
        let problem = format!(
            "the path of a socket in {} would have {length} bytes, and at most {most} are possible",
            dir.display()
        );
        return Err(CliError::usage(problem, "choose a shorter AGX_HOME"));
    }
    let cannot = |error| cannot(&format!("lock {}", dir.display()), &error);
    let file = lock(dir).map_err(cannot)?;
    let since = Instant::now();
    loop {
        // On a file system without locks, a supervisor holds no lock, but listens on the socket.
        if is_listening(dir) {
            return Ok(None);
        }
        match file.try_lock() {
            Ok(()) => return Ok(Some(DirLock(file))),
            // On a file system without locks, the check of the socket has to be enough.
            Err(TryLockError::Error(error)) if has_no_locks(&error) => return Ok(Some(DirLock(file))),
            Err(TryLockError::Error(error)) => return Err(cannot(error)),
            Err(TryLockError::WouldBlock) if since.elapsed() > MAX_WAIT => return Ok(None),
            // The other supervisor is about to start or to end.
            Err(TryLockError::WouldBlock) => sleep(POLL_INTERVAL).await,
        }
    }
}

/// Returns true if `error` means that the file system has no locks, as NFS without a lock daemon.
fn has_no_locks(error: &io::Error) -> bool {
    let no_daemon = rustix::io::Errno::NOLCK.raw_os_error();
    error.kind() == io::ErrorKind::Unsupported || error.raw_os_error() == Some(no_daemon)
}

/// Starts a supervisor with the lock. Returns the first line of the supervisor, and the ends of the
/// logs; a failure quotes the logs.
pub(crate) fn start(hold: DirLock, dir: &Path, spec: &SupervisorSpec) -> Result<(String, LogTails)> {
    crate::util::atomic_file::write_private(dir, SPEC, to_json(spec).as_bytes())?;
    let logs = LogTails::from_now_on(dir, spec);
    let mut child = spawn(hold, dir)?;
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        BufReader::new(stdout).read_line(&mut line).map_err(|error| cannot("read its output", &error))?;
    }
    match line.trim().strip_prefix("ok ") {
        Some(listens) => Ok((listens.to_owned(), logs)),
        None => {
            let _ended = child.wait();
            Err(CliError::usage(
                format!("agq or its worker did not start: {}", logs.since()),
                format!("remove the cause, and run the command again; the logs are in {}", dir.display()),
            ))
        }
    }
}

fn spawn(hold: DirLock, dir: &Path) -> Result<Child> {
    // An inherited lock or pipe of the caller would stay open as long as the supervisor runs.
    agenix_sys::keep_from_children();
    let own = std::env::current_exe().map_err(|error| cannot("find agx", &error))?;
    let stderr = log(dir, LOG).map_err(|error| cannot("write a log", &error))?;
    let mut command = Command::new(own);
    command.arg("supervise").arg(dir).stdin(Stdio::from(hold.0)).stdout(Stdio::piped()).stderr(stderr);
    command.spawn().map_err(|error| cannot("start agx", &error))
}

/// Requests the end of a supervisor and its programs. Returns false if no supervisor runs.
pub(crate) async fn stop(dir: &Path, output: OutputFormat) -> Result<bool> {
    let Some(mut stream) = reached(dir).await? else { return Ok(false) };
    let look = format!("look at {}, and run {} again", log_path(dir, LOG).display(), down_command(dir));
    let request = async {
        let mut answer = String::new();
        stream.write_all(STOP_REQUEST).await?;
        stream.read_to_string(&mut answer).await.map(|_| answer)
    };
    tokio::pin!(request);
    let answer = tokio::select! {
        answer = &mut request => answer,
        () = sleep(NOTICE_DELAY) => {
            output.note(
                "agx: waiting for the jobs that its worker runs (`agx worker list` says how many); after 300 s agq gives \
                 them to other workers. Ctrl-C only stops waiting",
            );
            request.await
        }
    };
    match answer {
        Ok(answer) if answer == STOPPED => Ok(true),
        Ok(_) => Err(CliError::usage("the supervisor of agq and its worker ended without an answer", look)),
        Err(error) => Err(CliError::usage(
            format!("the supervisor of agq and its worker does not answer: {error}"),
            look,
        )),
    }
}

/// Connects to the supervisor of `dir`, and returns `None` if no supervisor runs there.
async fn reached(dir: &Path) -> Result<Option<UnixStream>> {
    let since = Instant::now();
    loop {
        if let Ok(stream) = UnixStream::connect(socket(dir)).await {
            return Ok(Some(stream));
        }
        if !is_locked(dir) {
            return Ok(None);
        }
        if since.elapsed() > MAX_WAIT {
            return Err(CliError::usage(
                format!("a supervisor runs in {}, but cannot be reached", dir.display()),
                "is it on another machine, or in another container, that shares this directory? End it there",
            ));
        }
        // The supervisor holds the lock and is about to listen.
        sleep(POLL_INTERVAL).await;
    }
}

/// Returns true if a supervisor was ever started in `dir`.
pub(crate) fn was_started(dir: &Path) -> bool {
    dir.join(SPEC).exists()
}

/// Returns true if a supervisor listens in `dir`.
fn is_listening(dir: &Path) -> bool {
    StdUnixStream::connect(socket(dir)).is_ok()
}

fn cannot(operation: &str, error: &io::Error) -> CliError {
    CliError::usage(format!("cannot {operation}: {error}"), "check the free space and the permissions")
}

#[cfg(test)]
mod tests {
    use super::{is_locked, lock, lock_dir, reached};

    #[tokio::test]
    async fn a_directory_has_one_supervisor() {
        let dir = tempfile::tempdir().unwrap();
        assert!(!is_locked(dir.path()) && reached(dir.path()).await.unwrap().is_none());
        let held = lock_dir(dir.path()).await.unwrap();
        // This supervisor holds the lock and does not listen yet.
        assert!(is_locked(dir.path()));
        assert!(lock(dir.path()).unwrap().try_lock().is_err());
        drop(held);
        assert!(!is_locked(dir.path()));
        let _again = lock_dir(dir.path()).await.unwrap();
    }

    #[tokio::test]
    async fn a_listening_supervisor_counts_even_without_a_lock() {
        let home = tempfile::tempdir().unwrap();
        for (name, advice) in [("local", "`agx down` ends it"), ("cluster", "`agx down cluster` ends it")] {
            let dir = home.path().join(name);
            std::fs::create_dir(&dir).unwrap();
            let _listening = std::os::unix::net::UnixListener::bind(super::socket(&dir)).unwrap();
            let error = lock_dir(&dir).await.unwrap_err();
            assert!(error.to_string().contains("a supervisor already runs"), "{error}");
            assert_eq!(error.help().unwrap(), advice);
        }
    }

    #[tokio::test]
    async fn a_path_too_long_for_a_socket_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let long = dir.path().join("x".repeat(110));
        std::fs::create_dir(&long).unwrap();
        let error = lock_dir(&long).await.unwrap_err();
        assert!(error.to_string().contains("the path of a socket"), "{error}");
    }
}
