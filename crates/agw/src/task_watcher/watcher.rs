//! The watcher: waits for the end of its worker, and ends all processes of the worker's tasks.
//!
//! The watcher finds the processes by the mark in their environment, by the inherited limit, and as
//! descendants of such processes. The watcher ends no other process, and no process of another
//! user.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, fs,
    io::{self, BufRead, Read},
    os::unix::process::CommandExt,
    process::{Command, ExitCode},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
    process::{Pid, PidfdFlags, Signal, getpid, getppid, pidfd_open, setsid},
};

use crate::exec::{
    inherited_limit,
    job_mark::is_of_worker,
    process_table::{ProcessStat, environment, processes},
    stray_processes::StrayProcess,
};

/// Only argument of the watcher. The help does not show the argument, because it is no option for
/// users.
pub(super) const ARGUMENT: &str = "--task-watcher";
/// Second argument of a watcher that has no inherited files.
const CLEAN: &str = "clean";
/// Name of the process, so that `pkill -KILL agw` does not hit the watcher.
const NAME: &str = "task-watcher";
/// Maximum number of searches, because processes may start others without end.
const ROUNDS: u32 = 50;
/// Number of searches without a result after which no process is left. A search may miss a process
/// that starts another one and ends meanwhile.
const EMPTY_SEARCHES: u32 = 3;
/// Maximum time for the end of killed processes before the next search.
const BOUND: Duration = Duration::from_secs(1);

/// Returns true if this process was started as a watcher.
pub(crate) fn is_asked_for() -> bool {
    std::env::args_os().nth(1).is_some_and(|argument| argument == ARGUMENT)
}

/// Waits for the end of the worker that stdin names, and ends its tasks.
pub(crate) fn run() -> ExitCode {
    if std::env::args_os().nth(2).is_none_or(|argument| argument != CLEAN) {
        close_inherited_files();
    }
    let mut line = String::new();
    let read = io::stdin().lock().read_line(&mut line);
    let Some(worker) = read.ok().and_then(|_| WatchedWorker::parse(line.trim_end())) else {
        return ExitCode::FAILURE;
    };
    // Signals to a process group or a terminal are meant for the worker, which ends the watcher.
    let _still_useful = (agenix_sys::ignore_end_requests(), setsid(), fs::write("/proc/self/comm", NAME));
    worker.wait();
    worker.end_tasks();
    ExitCode::SUCCESS
}

/// Executes this program again without the descriptors that it has inherited, if there are any: the
/// other users of these files would wait for the watcher.
fn close_inherited_files() {
    // The descriptor of the list itself is a fourth one.
    if fs::read_dir("/dev/fd").is_ok_and(|open| open.count() <= 4) {
        return;
    }
    agenix_sys::keep_from_children();
    // The call returns only if it fails. The files then stay open.
    let _failed = Command::new("/proc/self/exe").arg0("agw").args([ARGUMENT, CLEAN]).exec();
}

/// Worker whose tasks end with it. The text of the type is one line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct WatchedWorker {
    pub(super) pid: i32,
    /// Beginning of the marks of the worker's tasks.
    pub(super) id: String,
    /// Limit that the worker's tasks inherit.
    pub(super) limit: Option<u64>,
}

impl fmt::Display for WatchedWorker {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pid, id, limit } = self;
        write!(formatter, "{pid} {id} {}", limit.unwrap_or_default())
    }
}

impl WatchedWorker {
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let (pid, id) = (words.next()?.parse().ok()?, words.next()?.to_owned());
        let limit: u64 = words.next()?.parse().ok()?;
        (!id.is_empty()).then_some(Self { pid, id, limit: Some(limit).filter(|limit| *limit > 0) })
    }

    /// Waits until the worker, which is the parent of this process, has ended.
    fn wait(&self) {
        let is_parent = || getppid().is_some_and(|parent| parent.as_raw_pid() == self.pid);
        let parent = Pid::from_raw(self.pid).map(|pid| pidfd_open(pid, PidfdFlags::empty()));
        match parent {
            // The check is after the opening, because another process may get the process id.
            Some(Ok(pidfd)) if is_parent() => {
                let mut asked = [PollFd::new(&pidfd, PollFlags::IN)];
                while poll(&mut asked, None) == Err(Errno::INTR) {}
            }
            // An old kernel has no pidfd, but the pipe closes at the end of the worker.
            Some(Err(_)) if is_parent() => drop(io::stdin().lock().read_to_end(&mut Vec::new())),
            _ => {}
        }
    }

    /// Ends all processes of tasks, until [`EMPTY_SEARCHES`] in a row find none.
    fn end_tasks(&self) {
        let mut empty = 0;
        for _ in 0..ROUNDS {
            let processes = self.stopped_processes();
            empty = if processes.is_empty() { empty + 1 } else { 0 };
            if empty == EMPTY_SEARCHES {
                return;
            }
            for process in &processes {
                let _not_permitted = process.signal(Signal::KILL);
            }
            let end = Instant::now() + BOUND;
            for process in &processes {
                process.ends_within(end.saturating_duration_since(Instant::now()));
            }
        }
    }

    /// Stops all processes of tasks, so that none can start another one unseen, and returns them.
    fn stopped_processes(&self) -> Vec<StrayProcess> {
        let mut stopped = BTreeMap::new();
        for _ in 0..ROUNDS {
            let mut has_new = false;
            // The newest processes come first, because a process may start another one and end.
            for pid in processes().into_iter().rev().filter(|pid| *pid != getpid()) {
                has_new |= self.is_marked(pid) && stop(&mut stopped, pid, |_| self.is_marked(pid));
            }
            let table = process_table();
            for pid in with_descendants(&table, stopped.keys().copied().collect()) {
                let is_same = |stat: &ProcessStat| table.get(&pid).is_some_and(|seen| seen == stat);
                has_new |= Pid::from_raw(pid).is_some_and(|pid| stop(&mut stopped, pid, is_same));
            }
            if !has_new {
                break;
            }
        }
        stopped.into_values().collect()
    }

    fn is_marked(&self, pid: Pid) -> bool {
        is_of_worker(&environment(pid), &self.id)
            || (self.limit.is_some() && inherited_limit::of(pid) == self.limit)
    }
}

/// Stops `pid` if it is running, `is_wanted`, and not among `stopped`. Returns true if this call
/// has stopped `pid`.
fn stop(
    stopped: &mut BTreeMap<i32, StrayProcess>,
    pid: Pid,
    is_wanted: impl FnOnce(&ProcessStat) -> bool,
) -> bool {
    if stopped.get(&pid.as_raw_pid()).is_some_and(|process| !process.has_ended()) {
        return false;
    }
    let Ok(Some(process)) = StrayProcess::if_running(pid, is_wanted) else { return false };
    let is_stopped = process.signal(Signal::STOP).is_ok();
    if is_stopped {
        stopped.insert(pid.as_raw_pid(), process);
    }
    is_stopped
}

/// Returns the processes by their ids, without this one.
fn process_table() -> BTreeMap<i32, ProcessStat> {
    let others = processes().into_iter().filter(|pid| *pid != getpid());
    others.filter_map(|pid| Some((pid.as_raw_pid(), ProcessStat::of(pid)?))).collect()
}

/// Adds the processes whose parent, process group or session is among `found`, and their
/// descendants.
fn with_descendants(table: &BTreeMap<i32, ProcessStat>, mut found: BTreeSet<i32>) -> BTreeSet<i32> {
    loop {
        let is_below = |stat: &ProcessStat| {
            [stat.parent, stat.group, stat.session].iter().any(|above| found.contains(above))
        };
        let below = table.iter().filter(|(pid, stat)| !found.contains(pid) && is_below(stat));
        let below: Vec<i32> = below.map(|(pid, _)| *pid).collect();
        if below.is_empty() {
            return found;
        }
        found.extend(below);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::{ProcessStat, WatchedWorker, with_descendants};

    #[test]
    fn worker_is_read_from_its_line() {
        for limit in [None, Some(7)] {
            let worker = WatchedWorker { pid: 12, id: "ab".into(), limit };
            assert_eq!(WatchedWorker::parse(&worker.to_string()), Some(worker));
        }
        for line in ["", "12", "12 ab", "12 ab x", "x ab 1", "12  1"] {
            assert_eq!(WatchedWorker::parse(line), None, "{line}");
        }
    }

    #[test]
    fn descendants_include_groups_and_sessions_of_found_processes() {
        let stat = |parent, group, session| ProcessStat { parent, group, session, started: 0 };
        let table = BTreeMap::from([
            (5, stat(1, 5, 5)),
            (6, stat(1, 6, 2)),
            (7, stat(6, 7, 7)),
            (8, stat(1, 6, 2)),
            (9, stat(1, 9, 7)),
        ]);
        assert_eq!(with_descendants(&table, BTreeSet::from([6])), BTreeSet::from([6, 7, 8, 9]));
    }
}
