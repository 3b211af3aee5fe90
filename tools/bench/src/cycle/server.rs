//! A server process of a comparison, with a log. The drop kills the process.

use std::{
    fs::{self, File},
    io,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, anyhow};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// Time within which a server has to be ready, even if it reads a million jobs.
const READY_WITHIN: Duration = Duration::from_secs(120);
/// Time within which a server has to exit.
const EXIT_WITHIN: Duration = Duration::from_secs(60);
/// Number of lines of the log that an error shows.
const TAIL_LINES: usize = 5;

pub(super) struct ServerProcess {
    child: Child,
    log: PathBuf,
}

impl ServerProcess {
    /// Starts a command with its output in a log.
    pub(super) fn start(command: &mut Command, log: &Path) -> anyhow::Result<Self> {
        let out = File::create(log)?;
        let err = out.try_clone()?;
        Self::spawn(command.stdin(Stdio::null()).stdout(out).stderr(err), log)
    }

    /// Starts a command with pipes for stdin and stdout.
    pub(super) fn start_piped(
        command: &mut Command,
        log: &Path,
    ) -> anyhow::Result<(Self, ChildStdin, ChildStdout)> {
        let err = File::create(log)?;
        let mut server = Self::spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(err), log)?;
        let stdin = server.child.stdin.take().expect("stdin is piped");
        let stdout = server.child.stdout.take().expect("stdout is piped");
        Ok((server, stdin, stdout))
    }

    fn spawn(command: &mut Command, log: &Path) -> anyhow::Result<Self> {
        let child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
        Ok(Self { child, log: log.to_owned() })
    }

    /// Calls `look` until it returns a value. Returns an error that names `description` if the
    /// server exits before.
    pub(super) fn wait_for<T>(
        &mut self,
        description: &str,
        mut look: impl FnMut() -> Option<T>,
    ) -> anyhow::Result<T> {
        let child = &mut self.child;
        let found = e2e::within(READY_WITHIN, || match look() {
            Some(found) => Some(Some(found)),
            None => child.try_wait().is_ok_and(|ended| ended.is_some()).then_some(None),
        });
        found.flatten().ok_or_else(|| self.error(description))
    }

    /// Returns the error that `description` is missing, with the last lines of the log.
    pub(super) fn error(&self, description: &str) -> anyhow::Error {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<_> = log.lines().collect();
        let tail = &lines[lines.len().saturating_sub(TAIL_LINES)..];
        anyhow!("the server did not give {description}; its log ends with: {}", tail.join(" / "))
    }

    /// Sends SIGTERM, and waits until the server has exited with 0.
    pub(super) fn stop(mut self) -> anyhow::Result<()> {
        self.signal(Signal::TERM);
        let status = e2e::within(EXIT_WITHIN, || self.child.try_wait().ok().flatten());
        match status {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(self.error(&format!("a clean exit, and ended with {status}"))),
            None => Err(self.error("an exit")),
        }
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = Pid::from_raw(self.child.id().cast_signed()) {
            // The process may have exited already.
            let _ended = kill_process(pid, signal);
        }
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|ended| ended.is_some()) {
            return;
        }
        self.signal(Signal::KILL);
        if e2e::within(Duration::from_secs(10), || self.child.try_wait().ok().flatten()).is_none() {
            let _ended = self.child.kill();
            let _ended = self.child.wait();
        }
    }
}

/// Creates a temporary directory for a server.
pub(super) fn directory() -> io::Result<TempDir> {
    tempfile::Builder::new().prefix("agenix-bench-").tempdir()
}

/// Returns a port on which no process listens.
pub(super) fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// Preloads a library into a command.
pub(super) fn preload(command: &mut Command, library: Option<&Path>) {
    if let Some(library) = library {
        command.env("LD_PRELOAD", library);
    }
}

/// Returns the path of a file in tools/bench/assets.
pub(super) fn file(name: &str) -> PathBuf {
    agenix_harness::report::root().join("tools/bench/assets").join(name)
}
