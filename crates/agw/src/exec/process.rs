//! Child process in a process group of its own. The worker waits for the child until its deadline,
//! and ends the child with its process group and its escaped processes.

use std::{
    ffi::{OsStr, OsString},
    io,
    os::fd::OwnedFd,
    path::Path,
    sync::Arc,
    time::Duration,
};

use agenix_protocol::byte_escape::decode_os;
use agenix_sys::{ChildProgram, Reaped};
use rustix::process::Signal;
use tokio::time::{Instant, timeout, timeout_at};

use crate::exec::{
    ended::Ended,
    exit::Exit,
    io_counters::{IoCounters, TransferredBytes},
    job_mark::{JobMark, VARIABLE},
    job_resources::TaskResources,
    memory_bound::MemoryBound,
    open_file_limit, out_of_memory,
    process_group::Group,
    processor_time::LeaderProcess,
    stages::StageCommand,
    subreaper, task_environment,
};

/// Running child. A drop before the end of the child kills its process group and its escaped
/// processes.
pub(crate) struct Process {
    group: Group,
    exit: Exit,
    started: Instant,
    timeout: Duration,
    /// [`kills`] before the start. `None` also once the worker ends the child.
    oom_kills: Option<u64>,
    /// Bound of the memory of the job, if it has one.
    memory: Option<Arc<MemoryBound>>,
    io: Option<IoCounters>,
    /// True once the timeout of the task is over, which then is the cause of its end.
    timed_out: bool,
    /// Set once the worker has reaped the child.
    reaped: Option<(Reaped, Option<TransferredBytes>)>,
    /// Set once the process group of the child has ended, too.
    ended: Option<Ended>,
}

impl Process {
    /// Starts a child without a shell, without the secrets of the worker, and in a process group of
    /// its own. `program` is the path that the capability search found, so a PATH of the plan has
    /// no effect on it. A path of the plan is relative to the working directory of the child,
    /// because the child changes its directory before it executes the program.
    pub(crate) fn start(
        program: &Path,
        command: &StageCommand,
        (mark, resources): (&JobMark, Option<TaskResources<'_>>),
        stdio: [OwnedFd; 3],
    ) -> io::Result<Self> {
        let mut env = task_environment::variables();
        env.extend(command.environment().map(|(name, value)| (decode_os(name), decode_os(value))));
        env.insert(VARIABLE.into(), mark.next_value().into());
        for name in resources.into_iter().flat_map(|resources| resources.withheld) {
            env.remove(OsStr::new(name));
        }
        let of_resources = resources.into_iter().flat_map(|resources| resources.environment);
        env.extend(of_resources.map(|(name, value)| (name.into(), value.into())));
        let args: Vec<OsString> =
            [&command.program].into_iter().chain(&command.args).map(|arg| decode_os(arg)).collect();
        let mut child = ChildProgram::new(program, &env, stdio);
        child.args = args.iter().map(OsString::as_os_str).collect();
        child.cwd = command.cwd.as_ref().map(|cwd| decode_os(cwd).into());
        #[cfg(target_os = "linux")]
        {
            child.inherits_files = task_environment::inherits_files();
        }
        let memory = resources.and_then(|resources| resources.memory);
        if let Some(memory) = memory {
            memory.apply(&mut child)?;
        }
        let oom_kills = kills(memory);
        let leader = subreaper::start(|| child.start())?;
        // A short task may exit at any moment.
        let io = IoCounters::of(leader);
        open_file_limit::restore(leader);
        let group = Group::of(leader, mark.run());
        // If `Exit::of` fails, the drop of `group` kills the child.
        let exit = Exit::of(leader)?;
        let (started, timeout) = (Instant::now(), command.timeout);
        let memory = memory.cloned();
        let (timed_out, reaped, ended) = (false, None, None);
        Ok(Self { group, exit, started, timeout, oom_kills, memory, io, timed_out, reaped, ended })
    }

    /// Returns the first process of the task, until it is reaped.
    pub(crate) fn leader(&self) -> Option<LeaderProcess> {
        self.group.leader().and_then(LeaderProcess::of)
    }

    /// Waits for the child. After the timeout of the child, its group gets SIGTERM, and SIGKILL
    /// after `grace`. The call may be dropped at any time, and repeated.
    pub(crate) async fn wait(&mut self, grace: Duration) -> io::Result<Ended> {
        if let Some(ended) = self.ended {
            return Ok(ended);
        }
        if self.reaped.is_some() || self.timed_out {
            // A dropped call has begun to end the child.
            return self.end_now(grace).await;
        }
        let left = self.timeout.saturating_sub(self.started.elapsed());
        let Ok(exited) = timeout(left, self.exit.wait()).await else {
            self.timed_out = true;
            return self.end_now(grace).await;
        };
        let ended = exited.and_then(|()| self.killed())?;
        let kills = (self.oom_kills, || kills(self.memory.as_ref()));
        let ended = Ended { out_of_memory: out_of_memory::was_cause(ended.exit_code(), kills), ..ended };
        self.ended = Some(ended);
        Ok(ended)
    }

    /// Ends the child: SIGTERM for the process group and the escaped processes, then SIGKILL after
    /// `grace` for those that still run. If the first process of the group ends earlier, the other
    /// processes still have the rest of `grace`. The call may be dropped at any time, and repeated.
    pub(crate) async fn end_now(&mut self, grace: Duration) -> io::Result<Ended> {
        if let Some(ended) = self.ended {
            return Ok(ended);
        }
        let end = Instant::now() + grace;
        // From here on, a SIGKILL may be that of the worker.
        self.oom_kills = None;
        self.group.terminate();
        let reaped = match self.reaped {
            Some(reaped) => reaped,
            None => match timeout_at(end, self.exit.wait()).await {
                // An unreaped leader is a process of the group, which would not become empty.
                Ok(exited) => exited.and_then(|()| self.reap())?,
                Err(_elapsed) => {
                    self.group.kill();
                    self.exit.wait().await?;
                    return self.killed();
                }
            },
        };
        let _grace_is_over = timeout_at(end, self.group.wait_until_empty()).await;
        self.group.kill();
        Ok(self.ended(reaped))
    }

    /// Kills what the exited child has left in the background, and reaps the child.
    fn killed(&mut self) -> io::Result<Ended> {
        // The group is killed first, because after the reaping its id may belong to another group.
        self.group.signal(Signal::KILL);
        let reaped = self.reap()?;
        Ok(self.ended(reaped))
    }

    /// Reaps the exited child, whose counters of bytes exist only until then.
    fn reap(&mut self) -> io::Result<(Reaped, Option<TransferredBytes>)> {
        let bytes = self.io.take().and_then(|counters| counters.read());
        Ok(*self.reaped.insert((self.group.reap_leader()?, bytes)))
    }

    fn ended(&mut self, (reaped, bytes): (Reaped, Option<TransferredBytes>)) -> Ended {
        self.group.give_up();
        let ended = Ended::of(&reaped, bytes, self.started.elapsed());
        *self.ended.insert(Ended { timed_out: self.timed_out, ..ended })
    }
}

/// Returns the number of processes that the kernel has killed for lack of memory, in the control
/// group of the job or else in that of the worker.
fn kills(memory: Option<&Arc<MemoryBound>>) -> Option<u64> {
    memory.map_or_else(out_of_memory::kills, |memory| memory.kills())
}

#[cfg(test)]
mod tests;
