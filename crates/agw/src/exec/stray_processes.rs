//! Escaped processes: processes of a job that have left the process group of their task, by
//! setsid(2) or the double fork of a daemon. The worker finds an escaped process by its parents or,
//! if these have ended, by the mark of the job. The search needs `/proc` of Linux, and finds
//! nothing on other systems.

use std::{collections::BTreeSet, os::fd::OwnedFd, time::Duration};

#[cfg(target_os = "linux")]
use rustix::process::{PidfdFlags, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    process::{Pid, Signal, getpgid, kill_process},
};

#[cfg(target_os = "linux")]
use crate::exec::process_table::ProcessStat;
use crate::exec::{
    job_mark::RunNumber,
    process_table::{adopted_of, descendants},
};

/// Process outside the group of its task. The pidfd of the process protects other processes from
/// signals.
#[derive(Debug)]
pub(crate) struct StrayProcess {
    pid: Pid,
    descriptor: OwnedFd,
}

/// Finds the processes of `run` that are outside the process group `group` and not among `known`.
/// `parent` is the first process of the group, or `None` if its process id may belong to another
/// process. Processes that other tasks of the run have left behind are found, too.
pub(crate) fn find(
    group: Pid,
    parent: Option<Pid>,
    run: RunNumber,
    known: &[StrayProcess],
) -> Vec<StrayProcess> {
    // The process id of a process that has ended may belong to another one.
    let running = known.iter().filter(|known| !known.has_ended()).map(|known| known.pid);
    let mut found = BTreeSet::new();
    descendants(running.chain(parent).collect(), &mut found);
    // Adopted processes are listed last, because a process is adopted if its parent ends during the
    // search above.
    descendants(adopted_of(run), &mut found);
    let known: BTreeSet<i32> = known.iter().map(|known| known.pid.as_raw_pid()).collect();
    let left_it = |pid: &Pid| getpgid(Some(*pid)).is_ok_and(|its| its != group);
    let new = found.into_iter().filter_map(Pid::from_raw);
    new.filter(|pid| !known.contains(&pid.as_raw_pid()))
        .filter(left_it)
        .filter_map(StrayProcess::open_or_kill)
        .collect()
}

pub(crate) fn signal(strays: &[StrayProcess], signal: Signal) {
    for process in strays {
        // The call fails, without harm, if the process has ended.
        let _gone = process.signal(signal);
    }
}

pub(crate) fn have_ended(strays: &[StrayProcess]) -> bool {
    strays.iter().all(StrayProcess::has_ended)
}

impl StrayProcess {
    #[cfg(target_os = "linux")]
    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    /// Opens a pidfd for `pid`. A process without a pidfd is killed at once.
    fn open_or_kill(pid: Pid) -> Option<Self> {
        let opened = Self::open(pid);
        if opened.is_err() {
            let _gone = kill_process(pid, Signal::KILL);
        }
        opened.ok()
    }

    #[cfg(target_os = "linux")]
    fn open(pid: Pid) -> Result<Self, Errno> {
        Ok(Self { pid, descriptor: pidfd_open(pid, PidfdFlags::empty())? })
    }

    #[cfg(not(target_os = "linux"))]
    fn open(_pid: Pid) -> Result<Self, Errno> {
        Err(Errno::NOSYS)
    }

    /// Opens a pidfd for the running process `pid` if `is_wanted`. Returns `Ok(None)` if the
    /// process is not wanted, or if it has ended: its process id may belong to another process.
    #[cfg(target_os = "linux")]
    pub(crate) fn if_running(
        pid: Pid,
        is_wanted: impl FnOnce(&ProcessStat) -> bool,
    ) -> Result<Option<Self>, Errno> {
        let opened = match Self::open(pid) {
            Ok(opened) => opened,
            Err(Errno::SRCH) => return Ok(None),
            Err(error) => return Err(error),
        };
        let stat = ProcessStat::of(pid).filter(is_wanted);
        // A zombie has ended, unless threads besides its first one still run.
        Ok(stat.filter(|_| !opened.has_ended()).map(|_| opened))
    }

    #[cfg(target_os = "linux")]
    pub(crate) fn signal(&self, signal: Signal) -> Result<(), Errno> {
        pidfd_send_signal(&self.descriptor, signal)
    }

    #[cfg(not(target_os = "linux"))]
    fn signal(&self, signal: Signal) -> Result<(), Errno> {
        kill_process(self.pid, signal)
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ends_within(Duration::ZERO)
    }

    /// Waits for at most `bound`, and returns whether the process has ended.
    pub(crate) fn ends_within(&self, bound: Duration) -> bool {
        let mut asked = [PollFd::new(&self.descriptor, PollFlags::IN)];
        let bound = Timespec::try_from(bound).ok();
        poll(&mut asked, bound.as_ref()).is_ok_and(|ended| ended > 0)
    }

    /// Reaps the process if it has ended, and is a child of this worker.
    #[cfg(target_os = "linux")]
    pub(crate) fn reap(&self) {
        use std::os::fd::AsFd;

        let pidfd = WaitId::PidFd(self.descriptor.as_fd());
        let _not_a_child = waitid(pidfd, WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
    }
}
