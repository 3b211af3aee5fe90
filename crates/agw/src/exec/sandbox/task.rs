//! Task in a sandbox: waits for its end until its deadline, and ends it.

use std::{io, os::unix::process::ExitStatusExt, process::ExitStatus, sync::Arc, time::Duration};

use agenix_sandbox::{
    fault::{Step, StepFault},
    protocol::{TaskExit, TaskSignal},
};
use agenix_sys::Reaped;
use tokio::{
    sync::oneshot,
    time::{Instant, timeout},
};

use super::{
    replies::StartAnswer,
    supervisor::{ReadySupervisor, ended_unexpectedly, killed_for_memory},
};
use crate::exec::{ended::Ended, out_of_memory, resource_wait};

/// Maximum time between SIGKILL and the answer of the supervisor.
const ANSWER_TIME: Duration = Duration::from_secs(5);

/// Task that a supervisor has started. A drop before the end of the task kills its process group.
#[derive(Debug)]
pub(crate) struct SandboxedTask {
    pub(super) task: u32,
    pub(super) supervisor: Arc<ReadySupervisor>,
    /// Answer to the start, until it has arrived. Most tasks do not wait for the answer, because
    /// the next task of a pipeline can start before.
    pub(super) start: Option<oneshot::Receiver<StartAnswer>>,
    /// Answer to the start, once it has arrived.
    pub(super) answer: Option<Result<(), StepFault>>,
    pub(super) end: oneshot::Receiver<TaskExit>,
    pub(super) started: Instant,
    pub(super) timeout: Duration,
    /// [`ReadySupervisor::oom_kills`] before the start. `None` also once the worker ends the task.
    pub(super) oom_kills: Option<u64>,
    /// True once the timeout of the task is over, which then is the cause of its end.
    pub(super) timed_out: bool,
    /// Set once the task has ended.
    pub(super) ended: Option<Ended>,
}

impl SandboxedTask {
    /// Returns true if the supervisor has answered that the task has started.
    pub(crate) fn has_started(&self) -> bool {
        matches!(self.answer, Some(Ok(())))
    }

    /// Waits for the task. After the timeout of the task, its process group gets SIGTERM, and
    /// SIGKILL after `grace`. The call may be dropped at any time, and repeated.
    pub(crate) async fn wait(&mut self, grace: Duration) -> io::Result<Ended> {
        if let Some(ended) = self.ended {
            return Ok(ended);
        }
        if self.timed_out {
            // A dropped call has begun to end the task.
            return self.end_now(grace).await;
        }
        let left = self.timeout.saturating_sub(self.started.elapsed());
        let Ok(end) = timeout(left, self.end()).await else {
            self.timed_out = true;
            return self.end_now(grace).await;
        };
        let ended = self.ended(end?);
        let kills = (self.oom_kills, || self.supervisor.oom_kills());
        let ended = Ended { out_of_memory: out_of_memory::was_cause(ended.exit_code(), kills), ..ended };
        self.ended = Some(ended);
        Ok(ended)
    }

    /// Ends the task: SIGTERM for its process group, then SIGKILL after `grace` if its first
    /// process still runs. The rest of the group ends with the first process. The call may be
    /// dropped at any time, and repeated.
    pub(crate) async fn end_now(&mut self, grace: Duration) -> io::Result<Ended> {
        if let Some(ended) = self.ended {
            return Ok(ended);
        }
        // From here on, a SIGKILL may be that of the worker.
        self.oom_kills = None;
        self.signal(TaskSignal::Terminate);
        if let Ok(end) = timeout(grace, self.end()).await {
            self.signal(TaskSignal::Kill);
            return Ok(self.ended(end?));
        }
        self.signal(TaskSignal::Kill);
        match timeout(ANSWER_TIME, self.end()).await {
            Ok(end) => Ok(self.ended(end?)),
            Err(_elapsed) => {
                self.supervisor.kill();
                Err(ended_unexpectedly())
            }
        }
    }

    fn signal(&self, signal: TaskSignal) {
        // The end of the supervisor, which is the other cause of an error, is the end of the task.
        let _is_sent = self.supervisor.commands.signal(self.task, signal);
    }

    /// Waits for the end of the task. Returns the error of a start that has failed. Cancel-safe.
    async fn end(&mut self) -> io::Result<TaskExit> {
        if let Some(start) = &mut self.start {
            let answer = start.await;
            self.start = None;
            let answer = answer.map_err(|_| self.lost())?;
            self.answer = Some(answer.map(drop));
        }
        if let Some(Err(fault)) = &self.answer {
            return Err(error_of(fault));
        }
        (&mut self.end).await.map_err(|_| self.lost())
    }

    /// Returns the error with the reason for the end of the supervisor.
    fn lost(&self) -> io::Error {
        match self.oom_kills.zip(self.supervisor.oom_kills()) {
            Some((before, after)) if after > before => killed_for_memory(),
            _ => ended_unexpectedly(),
        }
    }

    fn ended(&mut self, TaskExit { wait_status, usage, .. }: TaskExit) -> Ended {
        let reaped = Reaped {
            status: ExitStatus::from_raw(wait_status),
            peak_memory_bytes: usage.peak_memory_bytes,
            user: Duration::from_micros(usage.user_us),
            system: Duration::from_micros(usage.system_us),
        };
        let ended = Ended::of(&reaped, None, self.started.elapsed());
        *self.ended.insert(Ended { timed_out: self.timed_out, ..ended })
    }
}

/// Returns the error of a step that the supervisor could not take. Only a missing program is
/// `NotFound`, and only a shortage has an error number.
pub(super) fn error_of(fault: &StepFault) -> io::Error {
    let of_system = fault.errno.map(io::Error::from_raw_os_error);
    match of_system {
        Some(error) if resource_wait::is_descriptor_shortage(&error) => error,
        Some(error) if fault.step == Step::Exec && resource_wait::is_shortage(&error) => error,
        Some(error) if fault.step == Step::Exec && error.kind() == io::ErrorKind::NotFound => {
            io::Error::new(io::ErrorKind::NotFound, fault.to_string())
        }
        _ => io::Error::other(fault.to_string()),
    }
}

impl Drop for SandboxedTask {
    fn drop(&mut self) {
        if self.ended.is_none() {
            self.signal(TaskSignal::Kill);
        }
    }
}
