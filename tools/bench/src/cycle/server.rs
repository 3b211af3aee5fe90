//! A server of a contest: its log, its end. Killed and waited for when it is dropped.

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

/// How long a server may take to be there, with a million jobs to be read.
const START: Duration = Duration::from_secs(120);
/// How long it may take to end.
const END: Duration = Duration::from_secs(60);
/// So much of a log is shown.
const TAIL_LINES: usize = 5;

/// A child process that serves.
pub(super) struct Server {
    child: Child,
    log: PathBuf,
}

impl Server {
    /// Starts it, its output in a log.
    pub(super) fn start(command: &mut Command, log: &Path) -> anyhow::Result<Self> {
        let out = File::create(log)?;
        let err = out.try_clone()?;
        Self::spawn(command.stdin(Stdio::null()).stdout(out).stderr(err), log)
    }

    /// Starts one that is told by stdin what to do, and answers on stdout.
    pub(super) fn start_talking(
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

    /// Asks until `look` finds something; an error where the server ends instead.
    pub(super) fn until<T>(&mut self, what: &str, mut look: impl FnMut() -> Option<T>) -> anyhow::Result<T> {
        let child = &mut self.child;
        let found = e2e::within(START, || match look() {
            Some(found) => Some(Some(found)),
            None => child.try_wait().is_ok_and(|ended| ended.is_some()).then_some(None),
        });
        found.flatten().ok_or_else(|| self.fault(what))
    }

    /// What went wrong, and what the server said last.
    pub(super) fn fault(&self, what: &str) -> anyhow::Error {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<_> = log.lines().collect();
        let tail = &lines[lines.len().saturating_sub(TAIL_LINES)..];
        anyhow!("{what} did not come; the last that was said: {}", tail.join(" / "))
    }

    /// Asks it to end, and waits until it has ended well.
    pub(super) fn stop(mut self) -> anyhow::Result<()> {
        self.signal(Signal::TERM);
        let status = e2e::within(END, || self.child.try_wait().ok().flatten());
        match status {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(self.fault(&format!("it ended with {status}: a good end"))),
            None => Err(self.fault("its end")),
        }
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = Pid::from_raw(self.child.id().cast_signed()) {
            // It may have ended already.
            let _ended = kill_process(pid, signal);
        }
    }

    /// Its process.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Server {
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

/// A directory for a server, which vanishes.
pub(super) fn directory() -> io::Result<TempDir> {
    tempfile::Builder::new().prefix("agenix-bench-").tempdir()
}

/// A port on which nobody listens.
pub(super) fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// What is preloaded into a server.
pub(super) fn preload(command: &mut Command, library: Option<&Path>) {
    if let Some(library) = library {
        command.env("LD_PRELOAD", library);
    }
}

/// A file of the benchmark's own.
pub(super) fn file(name: &str) -> PathBuf {
    agenix_harness::report::root().join("tools/bench/assets").join(name)
}
