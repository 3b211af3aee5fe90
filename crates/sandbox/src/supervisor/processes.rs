//! Processes below a supervisor: tasks, their descendants, and orphans that the supervisor adopts.

use std::{collections::BTreeMap, io, os::unix::process::ExitStatusExt};

use agenix_sys::{Reaped, reap_any};
use rustix::{
    io::{Errno, retry_on_intr},
    process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid},
};

use crate::{
    fault::{Step, StepFault},
    protocol::{ResourceUsage, TaskExit, TaskSignal},
};

/// Kills all processes that this process may signal, and waits until none is left. Returns the
/// processes in the order of their end.
///
/// The caller is PID 1 of its namespace, or Landlock restricts its signals to its descendants. The
/// kernel signals all descendants at once, so no process escapes by starting others.
pub(super) fn end_all() -> Result<Vec<(i32, Reaped)>, StepFault> {
    let mut ended = Vec::new();
    // Without a child there is no process, because orphans become children of the caller. The
    // signal to all would cost time for each process of the machine.
    while has_children()? {
        match kill_process_group(Pid::INIT, Signal::KILL) {
            Ok(()) | Err(Errno::SRCH | Errno::PERM) => {}
            Err(error) => return Err(StepFault::of(Step::Clean, "kill all processes of the job", error)),
        }
        while let Some(child) = reaped(true)? {
            ended.push(child);
        }
    }
    Ok(ended)
}

/// Returns true if the caller has a child, ended or not.
fn has_children() -> Result<bool, StepFault> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    match retry_on_intr(|| waitid(WaitId::All, options)) {
        Ok(_) => Ok(true),
        Err(Errno::CHILD) => Ok(false),
        Err(error) => Err(StepFault::of(Step::Clean, "look for processes", error)),
    }
}

/// Reaps a child. Returns `None` without children, or without ended ones if `waits` is false.
fn reaped(waits: bool) -> Result<Option<(i32, Reaped)>, StepFault> {
    match reap_any(waits) {
        Err(error) if error.raw_os_error() == Some(libc::ECHILD) => Ok(None),
        reaped => reaped.map_err(|error: io::Error| StepFault::of(Step::Clean, "wait for processes", error)),
    }
}

/// Tasks of a job by the process id of their first process.
#[derive(Debug, Default)]
pub(super) struct Tasks {
    running: BTreeMap<i32, RunningTask>,
    /// Process group of each task of the job, ended or not.
    groups: BTreeMap<u32, Pid>,
}

#[derive(Debug)]
struct RunningTask {
    task: u32,
    /// True if the worker has sent SIGTERM, so that the rest of the group has time to end.
    is_terminating: bool,
}

impl Tasks {
    /// Returns true if the job has had a task with this id.
    pub(super) fn has(&self, task: u32) -> bool {
        self.groups.contains_key(&task)
    }

    /// Returns true if the first process of a task runs.
    pub(super) fn are_running(&self) -> bool {
        !self.running.is_empty()
    }

    /// Adds a task whose first process leads a process group.
    pub(super) fn add(&mut self, task: u32, leader: Pid) {
        self.groups.insert(task, leader);
        self.running.insert(leader.as_raw_pid(), RunningTask { task, is_terminating: false });
    }

    /// Signals the process group of a task. An unknown task is ignored.
    pub(super) fn signal(&mut self, task: u32, signal: TaskSignal) {
        let Some(&group) = self.groups.get(&task) else { return };
        if signal == TaskSignal::Terminate
            && let Some(running) = self.running.get_mut(&group.as_raw_pid())
        {
            running.is_terminating = true;
        }
        let signals: &[Signal] = match signal {
            // A stopped process handles no SIGTERM before SIGCONT.
            TaskSignal::Terminate => &[Signal::TERM, Signal::CONT],
            TaskSignal::Kill => &[Signal::KILL],
        };
        for &signal in signals {
            let _has_ended = kill_process_group(group, signal);
        }
    }

    /// Reaps the processes that have ended, and returns the tasks among them. Kills the rest of the
    /// process group of such a task, unless the task is terminating.
    pub(super) fn reap(&mut self) -> Result<Vec<TaskExit>, StepFault> {
        let mut ends = Vec::new();
        while let Some((pid, reaped)) = reaped(false)? {
            let Some(running) = self.running.remove(&pid) else { continue };
            if !running.is_terminating
                && let Some(&group) = self.groups.get(&running.task)
            {
                let _is_empty = kill_process_group(group, Signal::KILL);
            }
            ends.push(end(running.task, &reaped));
        }
        Ok(ends)
    }

    /// Ends all processes of the job. Returns the tasks among them, and the number of the others.
    pub(super) fn end(&mut self) -> Result<(Vec<TaskExit>, u32), StepFault> {
        let mut ends = self.reap()?;
        let mut strays = 0;
        for (pid, reaped) in end_all()? {
            match self.running.remove(&pid) {
                Some(running) => ends.push(end(running.task, &reaped)),
                None => strays += 1,
            }
        }
        self.groups.clear();
        self.running.clear();
        Ok((ends, strays))
    }
}

fn end(task: u32, reaped: &Reaped) -> TaskExit {
    let microseconds = |time: std::time::Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    let usage = ResourceUsage {
        user_us: microseconds(reaped.user),
        system_us: microseconds(reaped.system),
        peak_memory_bytes: reaped.peak_memory_bytes,
    };
    TaskExit { task, wait_status: reaped.status.into_raw(), usage }
}
