//! Supervisor process of the sandbox, as the worker sees it: its start, its connection and its end.

use std::{collections::BTreeSet, io, sync::Arc, time::Duration};

use agenix_sandbox::{
    client::{Commands, Replies, Settings, SupervisorError, prepare},
    control_group::ControlGroup,
    report::Report,
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open},
};
use tokio::{
    runtime::Handle,
    time::{sleep, timeout},
};
use tracing::warn;

use super::scratch::{ScratchDirectory, ScratchRoot};
use crate::exec::{
    job_resources::ResourceHold,
    out_of_memory::{self, MemoryEvents},
    process_table::descendants,
    readiness::readable,
    subreaper,
};

/// Maximum time for the set-up of a supervisor, on a busy machine.
const SETUP_TIME: Duration = Duration::from_secs(30);
/// Time that a supervisor has to end after its connection is closed, before it is killed.
const END_TIME: Duration = Duration::from_secs(10);
/// Interval between two polls for the end of a supervisor.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Supervisor that has set up its confinement. The drop ends the supervisor and all its processes.
#[derive(Debug)]
pub(super) struct ReadySupervisor {
    pub(super) commands: Commands,
    /// `None` while a job receives the replies, and after its end.
    pub(super) replies: Option<Replies>,
    pub(super) report: Report,
    process: SupervisorProcess,
    /// Evidence of a lack of memory among the tasks of the supervisor. `None` if the supervisor has
    /// no control group of its own.
    memory_events: Option<MemoryEvents>,
}

impl ReadySupervisor {
    /// Starts a supervisor, and waits until its confinement is complete. `settings` lack the
    /// scratch directory.
    pub(super) async fn start(settings: Settings, root: &ScratchRoot) -> Result<Self, SupervisorError> {
        let scratch = root.directory()?;
        let settings = Settings { scratch: scratch.path(), ..settings };
        let (mut command, connection) = prepare(&settings)?;
        let pid = subreaper::start(|| Ok(command.spawn()?.id().cast_signed()))?;
        let control_group = settings.control_group.clone();
        let memory_events = control_group.as_ref().and_then(|group| MemoryEvents::of(group.path()));
        let outer = OuterProcess { pid, has_ended: false, scratch, control_group, hold: None };
        let process = SupervisorProcess(Some(outer));
        // The end of the process has to close the connection.
        drop(command);
        let waiting = readable(connection)?;
        let is_slow = |_| io::Error::new(io::ErrorKind::TimedOut, "it was not ready within 30 s");
        let ready = timeout(SETUP_TIME, waiting.readable()).await.map_err(is_slow)?;
        drop(ready?);
        let (commands, replies, report) = waiting.into_inner().ready()?;
        Ok(Self { commands, replies: Some(replies), report, process, memory_events })
    }

    /// Returns the outer process, until it has ended.
    pub(super) fn pid(&self) -> Option<Pid> {
        self.process.0.as_ref().map(|process| process.pid)
    }

    /// Sets the guard of the resources of the supervisor's job. The guard is dropped with the
    /// process of the supervisor at the latest.
    pub(super) fn set_hold(&mut self, hold: Option<ResourceHold>) {
        if let Some(process) = &mut self.process.0 {
            process.hold = hold;
        }
    }

    /// Returns the control group of the supervisor, if it has one of its own.
    pub(super) fn control_group(&self) -> Option<&ControlGroup> {
        self.process.0.as_ref()?.control_group.as_deref()
    }

    /// Returns true if the supervisor waits for a job, and still has its scratch directory.
    pub(super) fn is_idle(&self) -> bool {
        // A supervisor sends nothing between two jobs, so anything that arrives is its end.
        let has_ended = self.replies.as_ref().is_none_or(Replies::is_readable);
        !has_ended && self.process.0.as_ref().is_some_and(|process| process.scratch.exists())
    }

    /// Returns the number of tasks of the supervisor that the kernel has killed for lack of memory.
    pub(super) fn oom_kills(&self) -> Option<u64> {
        self.memory_events.as_ref().map_or_else(out_of_memory::kills, MemoryEvents::kills)
    }

    /// Kills the processes of a supervisor that does not answer.
    pub(super) fn kill(&self) {
        self.commands.close();
        self.process.kill();
    }

    /// Ends the supervisor, and waits until its process has ended.
    pub(super) fn end(mut self, bound: Duration) {
        self.commands.close();
        self.process.end(bound);
    }
}

impl Drop for ReadySupervisor {
    fn drop(&mut self) {
        self.commands.close();
    }
}

/// Process of a supervisor. The drop gives the process time to end, and then kills the process.
#[derive(Debug)]
struct SupervisorProcess(Option<OuterProcess>);

impl SupervisorProcess {
    fn kill(&self) {
        self.0.iter().for_each(OuterProcess::kill);
    }

    fn end(&mut self, bound: Duration) {
        if let Some(mut process) = self.0.take() {
            process.has_ended = process.ends_within(bound);
        }
    }
}

impl Drop for SupervisorProcess {
    fn drop(&mut self) {
        // Without a runtime, the worker ends, and the drop of the process kills it.
        if let (Some(process), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            drop(runtime.spawn(process.end_or_kill()));
        }
    }
}

/// Outer process of a supervisor. The drop kills the process unless it has ended, and leaves its
/// reaping to [`subreaper::reap`].
#[derive(Debug)]
struct OuterProcess {
    pid: Pid,
    has_ended: bool,
    /// Scratch directory, which is removed when no process uses it.
    scratch: ScratchDirectory,
    /// Control group, which is removed with its processes.
    control_group: Option<Arc<ControlGroup>>,
    /// Guard of the resources of the job whose tasks the supervisor runs.
    hold: Option<ResourceHold>,
}

impl OuterProcess {
    /// Waits until the process has ended, or kills it.
    async fn end_or_kill(mut self) {
        let ended = async {
            while !self.ends_within(Duration::ZERO) {
                sleep(LOOK_EVERY).await;
            }
        };
        self.has_ended = timeout(END_TIME, ended).await.is_ok();
        if !self.has_ended {
            warn!("a sandbox supervisor did not end and is killed: process {}", self.pid.as_raw_pid());
        }
    }

    /// Waits at most `bound` for the end of the process, and returns whether it has ended.
    fn ends_within(&self, bound: Duration) -> bool {
        let Ok(bound) = Timespec::try_from(bound) else { return false };
        let Ok(pidfd) = pidfd_open(self.pid, PidfdFlags::empty()) else { return false };
        poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&bound)).is_ok_and(|ended| ended > 0)
    }

    /// Kills the process, which is not reaped, and its descendants. The kernel makes orphans among
    /// the descendants children of this worker, which ends them as stray processes.
    fn kill(&self) {
        if self.control_group.as_ref().is_some_and(|group| group.kill().is_ok()) {
            // A process that has just started is not in the group yet.
            let _has_ended = kill_process(self.pid, Signal::KILL);
            return;
        }
        let mut all = BTreeSet::new();
        descendants(vec![self.pid], &mut all);
        for process in all.into_iter().filter_map(Pid::from_raw) {
            let _has_ended = kill_process(process, Signal::KILL);
        }
    }
}

impl Drop for OuterProcess {
    fn drop(&mut self) {
        if !self.has_ended {
            self.kill();
        }
        subreaper::abandon(self.pid);
    }
}

/// Returns the error of a job whose supervisor is gone.
pub(super) fn ended_unexpectedly() -> io::Error {
    io::Error::other("the sandbox supervisor has ended unexpectedly, or does not answer")
}

/// Returns the error of a job whose supervisor the kernel has killed for lack of memory. The kernel
/// prefers the greatest process, but files of a file system in memory count, too.
pub(super) fn killed_for_memory() -> io::Error {
    io::Error::other(
        "the kernel killed the sandbox supervisor, because the job took more memory than limits.memory \
         of its profile",
    )
}
