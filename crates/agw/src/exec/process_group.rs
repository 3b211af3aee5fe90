//! Process group of a child: signals, and the end of all of its processes.

use std::{io, time::Duration};

use agenix_sys::Reaped;
use rustix::{
    io::Errno,
    process::{Pid, Signal, WaitOptions, kill_process_group, test_kill_process_group, waitpgid},
};
use tokio::time::sleep;

use crate::exec::{
    job_mark::RunNumber,
    stray_processes::{self, StrayProcess},
    subreaper,
};

/// Interval between two checks whether a process group is empty.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Process group of a child, and its escaped processes, which an early drop kills.
pub(super) struct Group {
    /// First process of the group, whose process id is the id of the group.
    leader: Option<Pid>,
    /// Run of the job of the child.
    run: RunNumber,
    strays: Vec<StrayProcess>,
    /// True until `leader` is reaped, and its process id may belong to another process.
    has_leader: bool,
    /// True once no process of the group was left: the id of the group may belong to another one.
    is_empty: bool,
}

impl Group {
    /// Returns the group that the running child `leader` leads.
    pub(super) fn of(leader: Pid, run: RunNumber) -> Self {
        Self { leader: Some(leader), run, strays: Vec::new(), has_leader: true, is_empty: false }
    }

    /// Returns the leader until it is reaped.
    pub(super) fn leader(&self) -> Option<Pid> {
        self.leader.filter(|_| self.has_leader)
    }

    /// Gives the group up: its processes are not signalled any more, not even by the drop.
    pub(super) fn give_up(&mut self) {
        self.leader = None;
    }

    pub(super) fn signal(&self, signal: Signal) {
        if let (Some(leader), false) = (self.leader, self.is_empty) {
            // An error means that the group is empty already.
            let _gone = kill_process_group(leader, signal);
        }
    }

    /// Sends SIGTERM, then SIGCONT, because a stopped process would not handle SIGTERM.
    pub(super) fn terminate(&mut self) {
        self.find_stray_processes();
        for signal in [Signal::TERM, Signal::CONT] {
            self.signal(signal);
            stray_processes::signal(&self.strays, signal);
        }
    }

    /// Reaps the leader, whose process id may belong to another process from then on.
    pub(super) fn reap_leader(&mut self) -> io::Result<Reaped> {
        let leader = self.leader().ok_or(Errno::CHILD)?;
        let reaped = subreaper::reaped(leader, || agenix_sys::reap(leader.as_raw_pid()))?;
        self.has_leader = false;
        Ok(reaped)
    }

    pub(super) fn kill(&mut self) {
        self.find_stray_processes();
        // Without its leader, the group may have become empty since the last poll.
        self.is_empty = self.is_empty || (!self.has_leader && self.has_no_process());
        self.signal(Signal::KILL);
        stray_processes::signal(&self.strays, Signal::KILL);
    }

    fn find_stray_processes(&mut self) {
        if let Some(leader) = self.leader {
            let parent = self.leader.filter(|_| self.has_leader);
            let new = stray_processes::find(leader, parent, self.run, &self.strays);
            self.strays.extend(new);
        }
    }

    fn has_no_process(&self) -> bool {
        self.leader.is_some_and(|leader| test_kill_process_group(leader) == Err(Errno::SRCH))
    }

    /// Waits until no process of the group, whose leader is reaped, and no escaped one runs.
    pub(super) async fn wait_until_empty(&mut self) {
        let Some(leader) = self.leader else { return };
        loop {
            // An adopted process stays a zombie in the group until the worker waits for it.
            while !self.is_empty && matches!(waitpgid(leader, WaitOptions::NOHANG), Ok(Some(_))) {}
            self.is_empty = self.is_empty || self.has_no_process();
            if self.is_empty && stray_processes::have_ended(&self.strays) {
                return;
            }
            sleep(LOOK_EVERY).await;
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(leader) = self.leader {
            self.kill();
            if self.has_leader {
                subreaper::abandon(leader);
            }
        }
    }
}
