//! One child process: started in a group of its own, waited for until its deadline, killed with its whole group.

use std::{
    io,
    os::unix::process::ExitStatusExt,
    path::Path,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::{
    process::Child,
    time::{Instant, timeout},
};

use crate::pipeline::Command;

/// The variable that no child gets.
const SESSION_KEY: &str = "AGQ_SESSION_KEY";

/// A running child. Dropped, it is killed with everything it started.
pub(crate) struct Process {
    child: Child,
    group: Group,
    started: Instant,
    timeout: Duration,
}

/// How a child ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) timed_out: bool,
    pub(crate) after: Duration,
}

impl Ended {
    /// The exit code as a shell has it: 128 + the signal where a signal ended it.
    pub(crate) fn exit_code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| 128 + self.status.signal().unwrap_or_default())
    }

    /// The signal that ended it.
    pub(crate) fn signal(&self) -> Option<i32> {
        self.status.signal()
    }
}

impl Process {
    /// Starts a child. It gets no shell, none of our secrets, and a process group of its own. `program` is where its command
    /// was found when the worker started: a plan that sets PATH does not choose another.
    pub(crate) fn start(
        program: &Path,
        command: &Command,
        stdin: Stdio,
        stdout: Stdio,
        stderr: Stdio,
    ) -> io::Result<Self> {
        let mut starting = tokio::process::Command::new(program);
        // Only where it is there: a changed environment is put together anew for every child.
        if std::env::var_os(SESSION_KEY).is_some() {
            starting.env_remove(SESSION_KEY);
        }
        starting
            .arg0(&command.program)
            .args(&command.args)
            .envs(command.env.iter().map(|(name, value)| (name, value)))
            .stdin(stdin)
            .stdout(stdout)
            .stderr(stderr)
            .process_group(0);
        if let Some(cwd) = &command.cwd {
            starting.current_dir(cwd);
        }
        let child = starting.spawn()?;
        let group = Group(child.id().and_then(|id| Pid::from_raw(id.cast_signed())));
        Ok(Self { child, group, started: Instant::now(), timeout: command.timeout })
    }

    /// Waits until it ends, or its time is over: then its group gets SIGTERM, and SIGKILL after `grace`.
    pub(crate) async fn wait(&mut self, grace: Duration) -> io::Result<Ended> {
        let in_time = timeout(self.timeout.saturating_sub(self.started.elapsed()), self.child.wait()).await;
        match in_time {
            Ok(status) => Ok(self.ended(status?, false)),
            Err(_elapsed) => self.end_now(grace).await.map(|ended| Ended { timed_out: true, ..ended }),
        }
    }

    /// Ends it: SIGTERM to its group, and SIGKILL after `grace`.
    pub(crate) async fn end_now(&mut self, grace: Duration) -> io::Result<Ended> {
        self.group.kill(Signal::TERM);
        let status = if let Ok(status) = timeout(grace, self.child.wait()).await {
            status?
        } else {
            self.group.kill(Signal::KILL);
            self.child.wait().await?
        };
        Ok(self.ended(status, false))
    }

    fn ended(&mut self, status: ExitStatus, timed_out: bool) -> Ended {
        let after = self.started.elapsed();
        // What it started in the background has no one left to report to.
        self.group.kill(Signal::KILL);
        self.group.forget();
        Ended { status, timed_out, after }
    }
}

/// A process group that is killed when this is dropped.
struct Group(Option<Pid>);

impl Group {
    fn kill(&self, signal: Signal) {
        if let Some(group) = self.0 {
            // Nobody left in it is what we want.
            let _gone = kill_process_group(group, signal);
        }
    }

    /// Its number may belong to somebody else from now on.
    fn forget(&mut self) {
        self.0 = None;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill(Signal::KILL);
    }
}
